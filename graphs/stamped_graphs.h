// SPDX-License-Identifier: Apache-2.0
// StampedGraphs: twins of captured graphs that tell when each of their kernels was done. A twin is
// the same work, enqueued by the same function through a stream that puts a stamp kernel
// (kernels/stamp) behind every launch: twice the kernel nodes, the same results, slower by what the
// stamps cost. For measuring; a step's own graph never carries stamps.
//
//   auto twins = StampedGraphs::Create(*device, *stream, *kernels, {.buckets = {8}}, enqueue);
//   (*twins)->graphs().Replay(8);
//   (*twins)->Read(8, &done_ns);   // one word per launch, on the device's clock
//
// Threads: as GraphManager, one at a time.
#ifndef REPRISE_GRAPHS_STAMPED_GRAPHS_H_
#define REPRISE_GRAPHS_STAMPED_GRAPHS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graphs/graph_manager.h"
#include "kernels/kernel_set.h"
#include "runtime/device.h"
#include "runtime/memory/buffer.h"

namespace reprise::graphs {

// What a launch of a twin is.
struct LaunchLabel {
  std::string kernel;  // its name in the catalogue: "reprise_linear_matrix_bf16_16"
  std::string op;      // the name without project, dtype and tile: "linear_matrix"
  std::string shape;   // of a linear "<out_features>x<in_features>", "" for the others
  bool operator==(const LaunchLabel&) const = default;
};

// The op in a kernel's name: what stands before the dtype, without "reprise_".
std::string OpOfKernel(std::string_view kernel);

class StampedGraphs {
 public:
  // Captures a twin of every bucket. `kernels` must outlive this object. Errors: those of
  // GraphManager::Create and of the device's memory.
  static absl::StatusOr<std::unique_ptr<StampedGraphs>> Create(runtime::Device& device,
                                                               runtime::Stream& stream,
                                                               const kernels::KernelSet& kernels,
                                                               GraphManagerOptions options,
                                                               const EnqueueFn& enqueue);

  // Replays as any other.
  GraphManager& graphs() { return *graphs_; }

  // The launches of the bucket that serves `size`, in order; stamps not counted. Errors: those of
  // BucketTable::SmallestThatFits.
  absl::StatusOr<std::span<const LaunchLabel>> LaunchesOf(int64_t size) const;
  // When each launch of that bucket's last replay was done, nanoseconds on the device's clock.
  // Waits for the stream. Errors: as above, and the stream's.
  absl::Status Read(int64_t size, std::vector<uint64_t>* done_ns);

 private:
  explicit StampedGraphs(runtime::Stream& stream) : stream_(stream) {}

  runtime::Stream& stream_;
  std::vector<std::vector<LaunchLabel>> launches_;  // by bucket index
  // [launches of the largest bucket] u64, shared: replays run one after another. Outlives the
  // graphs, which hold its address.
  runtime::DeviceBuffer stamps_;
  std::unique_ptr<GraphManager> graphs_;
};

}  // namespace reprise::graphs

#endif  // REPRISE_GRAPHS_STAMPED_GRAPHS_H_
