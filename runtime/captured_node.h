// SPDX-License-Identifier: Apache-2.0
// CapturedNodeAccess: what the nodes of a captured graph are, what they were given as arguments,
// and other arguments for its later replays. Beside CapturedGraph, for those who list nodes, audit
// pointers or move buffers; no replay comes by here.
//
//   KeepNodes(*stream);                           // before the capture
//   CapturedNodeAccess* nodes = NodesOf(*graph);  // nullptr: this device does not tell
//   nodes->List(), nodes->SetArgs(2, bytes)
//
// Threads: as the graph's.
#ifndef REPRISE_RUNTIME_CAPTURED_NODE_H_
#define REPRISE_RUNTIME_CAPTURED_NODE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/device.h"

namespace reprise::runtime {

// The arguments of a copy and of a fill, as CapturedNode has them.
struct CopyNodeArgs {
  void* dst;
  const void* src;
};
struct FillNodeArgs {
  void* dst;
};

struct CapturedNode {
  enum class Kind : uint8_t {
    kKernel,
    kCopy,   // args: CopyNodeArgs
    kFill,   // args: FillNodeArgs
    kOther,  // no args: opaque, or a node that uses no memory, such as a wait for an event
  };
  int index = 0;  // its place in List()
  Kind kind = Kind::kKernel;
  std::string name = {};  // of a kernel, as the driver calls it, "": it has no name for it; "copy",
                          // "fill", or what the device calls another node
  // Of a kernel:
  unsigned grid_x = 0, grid_y = 0, grid_z = 1;
  unsigned block = 0;       // threads
  size_t shared_bytes = 0;  // dynamic shared memory of a block
  // Of a kernel, all parameters, each at its own offset, as later replays get them. Empty: it has
  // none, or they cannot be told (`opaque`).
  std::vector<std::byte> args = {};
  // It may use memory and does not tell which, or what it tells cannot be changed.
  bool opaque = false;
  // The nodes that it waits for, in the order of their places: the edges of the graph.
  struct Wait {
    int node = 0;  // its place in List()
    // It may begin once that one lets it, before that one has ended (on CUDA, programmatic
    // dependent launch).
    bool early = false;
    bool operator==(const Wait&) const = default;
  };
  std::vector<Wait> waits = {};
};

class CapturedNodeAccess {
 public:
  virtual ~CapturedNodeAccess() = default;
  // All, in the order of the graph. Valid until the graph goes. Errors: the driver's.
  virtual absl::StatusOr<std::span<const CapturedNode>> List() = 0;
  // Replays that are enqueued from here on get these arguments; those in flight keep theirs.
  // `node`: a place in List(). Errors: InvalidArgument on a place or a size that is wrong, or where
  // the node is opaque; the driver's.
  virtual absl::Status SetArgs(size_t node, std::span<const std::byte> args) = 0;
  // Whether a word is the address of memory that kernels may use, as far as the device knows.
  virtual bool IsAddress(uint64_t word) = 0;
};

// The bytes of an argument struct, as CapturedNode::args has them.
template <typename Args>
std::vector<std::byte> ArgsBytes(const Args& args) {
  const auto bytes = std::as_bytes(std::span(&args, 1));
  return {bytes.begin(), bytes.end()};
}
// And the struct again. REQUIRES: so many bytes.
template <typename Args>
Args ArgsFromBytes(std::span<const std::byte> bytes) {
  Args args;
  std::memcpy(&args, bytes.data(), sizeof(args));
  return args;
}

// The checks of SetArgs.
absl::Status CheckSetArgs(std::span<const CapturedNode> nodes, size_t node,
                          std::span<const std::byte> args);

// The graph's own, as long as it lives; nullptr where the device does not tell, or the stream was
// not told to keep them.
inline CapturedNodeAccess* NodesOf(CapturedGraph& graph) {
  return dynamic_cast<CapturedNodeAccess*>(&graph);
}

// A stream whose graphs have to keep something for that.
class KeepsNodes {
 public:
  virtual ~KeepsNodes() = default;
  virtual void KeepNodes() = 0;
};
// Captures that end on `stream` from here on tell their nodes, where its device can: on CUDA they
// keep the captured graph, which costs host memory. Nothing elsewhere.
inline void KeepNodes(Stream& stream) {
  if (auto* keeps = dynamic_cast<KeepsNodes*>(&stream)) keeps->KeepNodes();
}

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_CAPTURED_NODE_H_
