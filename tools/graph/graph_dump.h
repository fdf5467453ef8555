// SPDX-License-Identifier: Apache-2.0
// GraphDump: a captured graph as text, JSON and DOT, and what differs between two of them. Text in,
// text out; docs/profile.md shows them, docs/graph.schema.json describes the JSON.
#ifndef REPRISE_TOOLS_GRAPH_GRAPH_DUMP_H_
#define REPRISE_TOOLS_GRAPH_GRAPH_DUMP_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "graphs/graph_nodes.h"
#include "kernels/step_kernel/stage_list.h"
#include "nlohmann/json.hpp"

namespace reprise::tools {

struct GraphDump {
  std::string where;  // a file, or the model: for messages and headings
  std::string graph;  // "decode/8"
  int64_t capacity = 0;
  size_t device_bytes = 0;  // that the driver took for it, as measured
  bool captured = false;    // the device was asked for nodes and edges; else they are as enqueued
  // Which nodes are early. Not of nodes as enqueued, nor of files of earlier versions.
  bool knows_early = false;
  std::vector<graphs::GraphNode> nodes;
  std::vector<kernels::ListedStage> stages = {};  // of its step kernel; none of files that are read
};

// What the graph holds, a line for each node, and below them for each stage of a step kernel; ends
// in a newline.
std::string GraphText(const GraphDump& dump, size_t width);
// For graphviz: a box for each node, an edge to the one behind it, dashed where that one is early.
std::string GraphDot(const GraphDump& dump);
// All but what RecordOf says.
nlohmann::json GraphToJson(const GraphDump& dump);
// The dump in a file that `reprise graph dump --json` wrote; `file` begins the messages. Errors:
// InvalidArgument names the field, what stands there and what is allowed.
absl::StatusOr<GraphDump> ParseGraph(const std::string& file, std::string_view text);
// Errors: as above; those of reading the file.
absl::StatusOr<GraphDump> ReadGraph(const std::string& file);

// A node that one graph has not, or that differs. Nodes are matched in order by kind, op and shape,
// so that the fewest are left over.
struct NodeDifference {
  std::optional<size_t> a, b;  // places; both where a node differs
  std::string what;            // "grid 8x1 -> 16x1, shared 0 B -> 1.00 KiB"; "" for one left over
};
std::vector<NodeDifference> DiffGraphs(const GraphDump& a, const GraphDump& b);

std::string DifferencesText(const GraphDump& a, const GraphDump& b,
                            const std::vector<NodeDifference>& differences, size_t width);
nlohmann::json DifferencesToJson(const GraphDump& a, const GraphDump& b,
                                 const std::vector<NodeDifference>& differences);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_GRAPH_GRAPH_DUMP_H_
