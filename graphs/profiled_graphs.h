// SPDX-License-Identifier: Apache-2.0
// ProfiledGraphs: captured graphs that tell when each of their launches was done. A profiled graph
// is the same work as a plain one, enqueued by the same function, through a stream that puts a
// stamp kernel behind every launch: twice the kernel nodes, the same results, slower by what the
// stamps cost. It is for measuring; the graphs of a GraphManager carry no stamps.
//
//   auto profiled = ProfiledGraphs::Create(*device, *stream, stamp, {.buckets = {8}}, enqueue);
//   (*profiled)->graphs().Replay(8);
//   (*profiled)->Read(8, &done_ns);   // one word per launch, on the device's clock
//
// Threads: as GraphManager, one at a time.
#ifndef REPRISE_GRAPHS_PROFILED_GRAPHS_H_
#define REPRISE_GRAPHS_PROFILED_GRAPHS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graphs/graph_manager.h"
#include "runtime/device.h"
#include "runtime/memory/buffer.h"

namespace reprise::graphs {

// Launches one kernel on `stream` that writes the device's clock, in nanoseconds, to *out (device
// memory) once everything before it on the stream is done.
using StampFn = std::function<absl::Status(runtime::Stream& stream, uint64_t* out)>;

// What a launch of a profiled graph is, in the words of whoever enqueued it.
struct ProfiledLaunch {
  std::string kernel;  // its name: "reprise_linear_matrix_bf16_16"
  std::string op;      // of its label: "linear_matrix"; the kernel's name where the label is empty
  std::string shape;   // of its label: "<rows>x<columns>", "" where it names none
  bool operator==(const ProfiledLaunch&) const = default;
};

class ProfiledGraphs {
 public:
  // Captures a profiled graph of every bucket. Errors: InvalidArgument when a function is empty;
  // Internal when `enqueue` does not enqueue the same number of launches each time; those of
  // GraphManager::Create and of the device's memory.
  static absl::StatusOr<std::unique_ptr<ProfiledGraphs>> Create(runtime::Device& device,
                                                                runtime::Stream& stream,
                                                                const StampFn& stamp,
                                                                GraphManagerOptions options,
                                                                const EnqueueFn& enqueue);

  // Replays as any other.
  GraphManager& graphs() { return *graphs_; }

  // The launches of the bucket that serves `size`, in order; stamps are not among them. Errors:
  // those of BucketTable::SmallestThatFits.
  absl::StatusOr<std::span<const ProfiledLaunch>> LaunchesOf(int64_t size) const;
  // When each launch of that bucket's last replay was done, nanoseconds on the device's clock.
  // Waits for the stream. Errors: as above, and the stream's.
  absl::Status Read(int64_t size, std::vector<uint64_t>* done_ns);

 private:
  explicit ProfiledGraphs(runtime::Stream& stream) : stream_(stream) {}

  runtime::Stream& stream_;
  std::vector<std::vector<ProfiledLaunch>> launches_;  // by bucket index
  // [launches of the largest bucket] u64, shared: replays run one after another. Outlives the
  // graphs, which hold its address.
  runtime::DeviceBuffer stamps_;
  std::unique_ptr<GraphManager> graphs_;
};

}  // namespace reprise::graphs

#endif  // REPRISE_GRAPHS_PROFILED_GRAPHS_H_
