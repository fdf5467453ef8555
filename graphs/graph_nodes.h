// SPDX-License-Identifier: Apache-2.0
// What a captured graph is made of: its nodes with their kernels, grids and shared memory, written
// down from the function that enqueues them. A graph is captured on one stream, so its nodes run in
// this order, each behind the one before it; no driver is asked, and every device tells the same.
#ifndef REPRISE_GRAPHS_GRAPH_NODES_H_
#define REPRISE_GRAPHS_GRAPH_NODES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "graphs/bucket.h"
#include "runtime/device.h"

namespace reprise::graphs {

struct GraphNode {
  enum class Kind : uint8_t { kKernel, kHost, kCopy, kFill };
  Kind kind = Kind::kKernel;
  // Of kernels alone:
  std::string kernel;  // its name: "reprise_linear_matrix_bf16_16"
  std::string op;      // of its label: "linear_matrix"; the kernel's name where the label is empty
  std::string shape;   // of its label: "<rows>x<columns>", "" where it names none
  unsigned grid_x = 0, grid_y = 0;
  unsigned block = 0;         // threads
  size_t shared_bytes = 0;    // dynamic shared memory of a block
  size_t argument_bytes = 0;  // copied into the graph
  bool from_table = false;    // of its label: a table that was measured chose the kernel
  // Of any node, as a device tells it of a captured graph (captured_nodes.h), and false before one
  // is asked: it may begin before the node ahead of it has ended.
  bool early = false;
  bool operator==(const GraphNode&) const = default;
};
// "kernel", "host", "copy", "fill".
std::string_view NameOf(GraphNode::Kind kind);
// "linear_matrix 4096x4096"; a node that is no kernel by its kind.
std::string LabelOf(const GraphNode& node);

// The nodes of a bucket's graph, in order. Nothing is enqueued on `stream`. Errors: InvalidArgument
// when the function is empty; its own.
absl::StatusOr<std::vector<GraphNode>> ListNodes(runtime::Stream& stream, const Bucket& bucket,
                                                 const EnqueueFn& enqueue);

}  // namespace reprise::graphs

#endif  // REPRISE_GRAPHS_GRAPH_NODES_H_
