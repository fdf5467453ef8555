// SPDX-License-Identifier: Apache-2.0
// What a captured graph itself holds, as its device tells it (runtime/captured_node.h), and whether
// that is what was enqueued (graph_nodes.h). Nothing is replayed.
#ifndef REPRISE_GRAPHS_CAPTURED_NODES_H_
#define REPRISE_GRAPHS_CAPTURED_NODES_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graphs/bucket.h"
#include "graphs/graph_nodes.h"
#include "runtime/captured_node.h"
#include "runtime/device.h"

namespace reprise::graphs {

struct CapturedNodes {
  std::vector<runtime::CapturedNode> nodes;  // all, in the order of the graph
};

// Captures the bucket's work on `stream`, and drops the graph. The stream's later graphs keep their
// nodes: it should be one that captures nothing else. Errors: Unimplemented where the device
// does not tell (HIP, and CUDA drivers before 12.4); InvalidArgument when the function is empty;
// its own; those of the capture.
absl::StatusOr<CapturedNodes> ListCapturedNodes(runtime::Stream& stream, const Bucket& bucket,
                                                const EnqueueFn& enqueue);

// What was enqueued, with what the captured graph alone tells of it (GraphNode::early), where the
// graph is that: the same kernels in the same order, by name, grid, block, dynamic shared memory
// and bytes of arguments, as many other nodes, and each node waiting for the one ahead of it and
// for no other. A name or arguments that the device cannot tell are not compared. Errors: Internal
// names the first node that differs and what either says of it.
absl::StatusOr<std::vector<GraphNode>> AsCaptured(std::vector<GraphNode> enqueued,
                                                  const CapturedNodes& captured);

}  // namespace reprise::graphs

#endif  // REPRISE_GRAPHS_CAPTURED_NODES_H_
