// SPDX-License-Identifier: Apache-2.0
// KernelNodes: what the kernels of a captured graph are, what they were given as arguments, and
// other arguments for its later replays. Beside CapturedGraph, for those who list nodes, audit
// pointers or move buffers; no replay comes by here.
//
//   KeepKernelNodes(*stream);                    // before the capture
//   KernelNodes* nodes = KernelNodesOf(*graph);  // nullptr: this device does not tell
//   nodes->List(), nodes->SetArgs(2, bytes)
//
// Threads: as the graph's.
#ifndef REPRISE_RUNTIME_KERNEL_NODES_H_
#define REPRISE_RUNTIME_KERNEL_NODES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/device.h"

namespace reprise::runtime {

struct KernelNode {
  int index = 0;            // among all nodes of the graph, in its order
  std::string kernel = {};  // "": the driver has no name for it
  unsigned grid_x = 0, grid_y = 0, grid_z = 1;
  unsigned block = 0;       // threads
  size_t shared_bytes = 0;  // dynamic shared memory of a block
  // All parameters, each at its own offset, as later replays get them. Empty: it has none, or they
  // cannot be told (`opaque`).
  std::vector<std::byte> args = {};
  bool opaque = false;
};

class KernelNodes {
 public:
  virtual ~KernelNodes() = default;
  // In the order of the graph. Valid until the graph goes. Errors: the driver's.
  virtual absl::StatusOr<std::span<const KernelNode>> List() = 0;
  // Replays that are enqueued from here on get these arguments; those in flight keep theirs.
  // `node`: a place in List(). Errors: InvalidArgument on a place or a size that is wrong, or where
  // the node is opaque; the driver's.
  virtual absl::Status SetArgs(size_t node, std::span<const std::byte> args) = 0;
  // Whether a word is the address of memory that kernels may use, as far as the device knows.
  virtual bool IsAddress(uint64_t word) = 0;
};

// The checks of SetArgs.
absl::Status CheckSetArgs(std::span<const KernelNode> nodes, size_t node,
                          std::span<const std::byte> args);

// The graph's own, as long as it lives; nullptr where the device does not tell, or the stream was
// not told to keep them.
inline KernelNodes* KernelNodesOf(CapturedGraph& graph) {
  return dynamic_cast<KernelNodes*>(&graph);
}

// A stream whose graphs have to keep something for that.
class KeepsKernelNodes {
 public:
  virtual ~KeepsKernelNodes() = default;
  virtual void KeepKernelNodes() = 0;
};
// Captures that end on `stream` from here on have kernel nodes, where its device can: on CUDA they
// keep the captured graph, which costs host memory. Nothing elsewhere.
inline void KeepKernelNodes(Stream& stream) {
  if (auto* keeps = dynamic_cast<KeepsKernelNodes*>(&stream)) keeps->KeepKernelNodes();
}

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_KERNEL_NODES_H_
