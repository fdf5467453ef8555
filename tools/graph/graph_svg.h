// SPDX-License-Identifier: Apache-2.0
// A captured graph as a drawing: SVG documents that need nothing else, light or dark as their
// reader's system is. Text out; graph_dump.h has the graph.
#ifndef REPRISE_TOOLS_GRAPH_GRAPH_SVG_H_
#define REPRISE_TOOLS_GRAPH_GRAPH_SVG_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graphs/graph_nodes.h"
#include "tools/graph/graph_dump.h"

namespace reprise::tools {

// Nodes [begin, begin + length * repeats) are `repeats` times the same work: of a decoder its
// layers, or, where layers take turns, so many of them.
struct RepeatedPart {
  size_t begin = 0;
  size_t length = 0;   // nodes of one
  size_t repeats = 0;  // at least 2
  bool operator==(const RepeatedPart&) const = default;
};

// The one that most nodes are in; of those the shortest, and of those the first. Unset: nothing
// repeats. Nodes are the same work by kind, op and shape.
std::optional<RepeatedPart> FindRepeatedPart(const std::vector<graphs::GraphNode>& nodes);

// The whole step: a box for each node, with its op, shape, grid and block, in the order in which
// they run, a line for every repetition. Of both drawings: an edge to a node that is early is
// dashed, and a line below the heading says what that means.
std::string StepSvg(const GraphDump& dump);
// The first repetition alone, with kernels and all that the dump says. Errors: FailedPrecondition
// where nothing repeats.
absl::StatusOr<std::string> LayerSvg(const GraphDump& dump);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_GRAPH_GRAPH_SVG_H_
