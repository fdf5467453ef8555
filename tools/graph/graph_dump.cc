// SPDX-License-Identifier: Apache-2.0
#include "tools/graph/graph_dump.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "models/config/json_input.h"
#include "models/weights/file_input.h"
#include "runtime/status_macros.h"
#include "tools/graph/stage_dump.h"
#include "tools/table.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

using graphs::GraphNode;
using models::JsonFields;
using nlohmann::json;

constexpr char kSchema[] = "reprise.graph/1";
constexpr size_t kMaxFileBytes = size_t{64} << 20;
// Matching takes the product of two graphs' nodes in memory.
constexpr size_t kMostNodes = 8192;

std::string GridText(const GraphNode& node) { return absl::StrCat(node.grid_x, "x", node.grid_y); }

size_t ArgumentBytes(const GraphDump& dump) {
  size_t bytes = 0;
  for (const GraphNode& node : dump.nodes) bytes += node.argument_bytes;
  return bytes;
}

size_t NumKernels(const GraphDump& dump) {
  return static_cast<size_t>(
      std::count_if(dump.nodes.begin(), dump.nodes.end(),
                    [](const GraphNode& node) { return node.kind == GraphNode::Kind::kKernel; }));
}

// Who chose the kernel, where a table chose some.
std::string ChosenByText(const GraphNode& node) { return node.from_table ? "table" : "-"; }

size_t NumFromTable(const GraphDump& dump) {
  return static_cast<size_t>(std::count_if(dump.nodes.begin(), dump.nodes.end(),
                                           [](const GraphNode& node) { return node.from_table; }));
}

size_t NumEdges(const GraphDump& dump) { return dump.nodes.empty() ? 0 : dump.nodes.size() - 1; }

// "60 edges, of which 41 let a node begin early".
std::string EdgesText(const GraphDump& dump) {
  const std::string edges = absl::StrCat(NumEdges(dump), " edges");
  if (!dump.knows_early) return edges;
  const auto early = std::count_if(dump.nodes.begin(), dump.nodes.end(),
                                   [](const GraphNode& node) { return node.early; });
  return absl::StrCat(edges, ", of which ", early, " let a node begin early");
}

std::string NodesFrom(const GraphDump& dump) { return dump.captured ? "captured" : "enqueued"; }

std::string Heading(const GraphDump& dump) {
  std::set<std::string> kernels;
  for (const GraphNode& node : dump.nodes) kernels.insert(node.kernel);
  kernels.erase("");
  const size_t from_table = NumFromTable(dump);
  return absl::StrCat(
      dump.graph, " of ", dump.where, ": ", NumKernels(dump), " kernel nodes of ", kernels.size(),
      " kernels, ",
      from_table == 0 ? "" : absl::StrCat(from_table, " of them chosen by the linear table, "),
      dump.nodes.size() - NumKernels(dump), " other nodes, ", EdgesText(dump), ", ",
      FormatBytes(ArgumentBytes(dump)), " of arguments, ", FormatBytes(dump.device_bytes),
      " of the driver's memory; nodes as ", NodesFrom(dump));
}

std::string DotText(const std::string& text) {
  return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}});
}

json NodeToJson(const GraphNode& node, size_t index) {
  json shape = nullptr;
  if (!node.shape.empty()) shape = node.shape;
  return {{"index", index},
          {"kind", std::string(NameOf(node.kind))},
          {"kernel", node.kernel},
          {"op", node.op},
          {"shape", std::move(shape)},
          {"grid", {node.grid_x, node.grid_y}},
          {"block", node.block},
          {"shared_bytes", node.shared_bytes},
          {"argument_bytes", node.argument_bytes},
          {"from_table", node.from_table}};
}

absl::Status Refuse(const std::string& what, const json* got, const std::string& allowed) {
  return absl::InvalidArgumentError(absl::StrCat(
      what, ": got ", got == nullptr ? "none" : models::ShowJson(*got), ", allowed: ", allowed));
}

absl::StatusOr<GraphNode::Kind> ReadKind(const JsonFields& fields) {
  REPRISE_ASSIGN_OR_RETURN(const std::string name, fields.StringOr("kind", ""));
  using Kind = GraphNode::Kind;
  for (const Kind kind : {Kind::kKernel, Kind::kHost, Kind::kCopy, Kind::kFill}) {
    if (name == NameOf(kind)) return kind;
  }
  return fields.Refuse("kind", "kernel, host, copy or fill");
}

absl::StatusOr<GraphNode> ReadNode(const json& value, const std::string& path) {
  constexpr int64_t kMostThreads = std::numeric_limits<unsigned>::max();
  constexpr int64_t kMostBytes = int64_t{1} << 40;
  if (!value.is_object()) return Refuse(path, &value, "an object");
  const JsonFields fields(value, path + ".");
  GraphNode node;
  REPRISE_ASSIGN_OR_RETURN(node.kind, ReadKind(fields));
  REPRISE_ASSIGN_OR_RETURN(node.kernel, fields.StringOr("kernel", ""));
  REPRISE_ASSIGN_OR_RETURN(node.op, fields.StringOr("op", ""));
  REPRISE_ASSIGN_OR_RETURN(node.shape, fields.StringOr("shape", ""));
  const json* grid = fields.Find("grid");
  const auto is_count = [](const json& x) {
    return x.is_number_unsigned() && x.get<uint64_t>() <= kMostThreads;
  };
  if (grid == nullptr || !grid->is_array() || grid->size() != 2 || !is_count((*grid)[0]) ||
      !is_count((*grid)[1]))
    return fields.Refuse("grid", absl::StrCat("two whole numbers of at most ", kMostThreads));
  node.grid_x = (*grid)[0].get<unsigned>();
  node.grid_y = (*grid)[1].get<unsigned>();
  REPRISE_ASSIGN_OR_RETURN(const int64_t block, fields.Integer("block", 0, kMostThreads));
  REPRISE_ASSIGN_OR_RETURN(const int64_t shared, fields.Integer("shared_bytes", 0, kMostBytes));
  REPRISE_ASSIGN_OR_RETURN(const int64_t arguments,
                           fields.Integer("argument_bytes", 0, kMostBytes));
  REPRISE_ASSIGN_OR_RETURN(node.from_table, fields.BooleanOr("from_table", false));
  node.block = static_cast<unsigned>(block);
  node.shared_bytes = static_cast<size_t>(shared);
  node.argument_bytes = static_cast<size_t>(arguments);
  return node;
}

// Of a dump whose nodes are read.
absl::Status ReadEarlyEdges(const JsonFields& fields, GraphDump& dump) {
  const json* const edges = fields.Find("early_edges");
  if (edges == nullptr) return absl::OkStatus();  // null, or of an earlier version
  dump.knows_early = true;
  const auto refuse = [&] {
    return fields.Refuse("early_edges", dump.captured ? "an array of [node, the node behind it]"
                                                      : "null where nodes are as enqueued");
  };
  if (!dump.captured || !edges->is_array()) return refuse();
  for (const json& edge : *edges) {
    const bool is_pair = edge.is_array() && edge.size() == 2 && edge[0].is_number_unsigned() &&
                         edge[1].is_number_unsigned();
    if (!is_pair) return refuse();
    const auto from = edge[0].get<uint64_t>(), to = edge[1].get<uint64_t>();
    if (to >= dump.nodes.size() || from >= to || to - from != 1) return refuse();
    dump.nodes[to].early = true;
  }
  return absl::OkStatus();
}

bool SameWork(const GraphNode& a, const GraphNode& b) {
  return a.kind == b.kind && a.op == b.op && a.shape == b.shape;
}

// Of a graph of which that is known.
std::string BeginText(const GraphNode& node) { return node.early ? "early" : "behind"; }

std::string ChangeOf(const GraphNode& a, const GraphNode& b) {
  std::vector<std::string> changes;
  const auto add = [&](const char* what, const std::string& before, const std::string& after) {
    if (before != after) changes.push_back(absl::StrCat(what, " ", before, " -> ", after));
  };
  add("kernel", a.kernel, b.kernel);
  add("grid", GridText(a), GridText(b));
  add("block", absl::StrCat(a.block), absl::StrCat(b.block));
  add("shared", FormatBytes(a.shared_bytes), FormatBytes(b.shared_bytes));
  add("arguments", FormatBytes(a.argument_bytes), FormatBytes(b.argument_bytes));
  add("begins", BeginText(a), BeginText(b));
  add("chosen by", ChosenByText(a), ChosenByText(b));
  return absl::StrJoin(changes, ", ");
}

// Lengths of the longest common subsequences of the ends of two lists of nodes.
class CommonEnds {
 public:
  CommonEnds(const std::vector<GraphNode>& a, const std::vector<GraphNode>& b)
      : columns_(b.size() + 1), lengths_((a.size() + 1) * columns_, 0) {
    for (size_t i = a.size(); i-- > 0;) {
      for (size_t j = b.size(); j-- > 0;) {
        lengths_[i * columns_ + j] = SameWork(a[i], b[j])
                                         ? static_cast<uint16_t>(Of(i + 1, j + 1) + 1)
                                         : std::max(Of(i + 1, j), Of(i, j + 1));
      }
    }
  }
  // Of the nodes from `i` on and from `j` on.
  uint16_t Of(size_t i, size_t j) const { return lengths_[i * columns_ + j]; }

 private:
  const size_t columns_;
  std::vector<uint16_t> lengths_;
};

std::string PlaceText(const std::optional<size_t>& place) {
  return place ? absl::StrCat(*place) : "-";
}

std::string WhatText(const NodeDifference& difference) {
  if (!difference.what.empty()) return difference.what;
  return difference.a ? "in a alone" : "in b alone";
}

const GraphNode& NodeOf(const GraphDump& a, const GraphDump& b, const NodeDifference& difference) {
  return difference.b ? b.nodes[*difference.b] : a.nodes[*difference.a];
}

GraphDump WithoutEarly(GraphDump dump) {
  dump.knows_early = false;
  for (GraphNode& node : dump.nodes) node.early = false;
  return dump;
}

json DumpOf(const GraphDump& dump) {
  return {{"where", dump.where}, {"graph", dump.graph}, {"nodes_from", NodesFrom(dump)}};
}

}  // namespace

std::string GraphText(const GraphDump& dump, size_t width) {
  std::vector<std::string> heads = {"node", "op", "grid", "block", "shared", "arguments"};
  if (dump.knows_early) heads.push_back("begins");
  const bool has_table = NumFromTable(dump) != 0;
  if (has_table) heads.push_back("chosen by");
  heads.push_back("kernel");
  Table table(heads);
  table.SetKeys(2);
  for (size_t i = 0; i < dump.nodes.size(); ++i) {
    const GraphNode& node = dump.nodes[i];
    std::vector<std::string> row = {absl::StrCat(i),
                                    LabelOf(node),
                                    GridText(node),
                                    absl::StrCat(node.block),
                                    FormatBytes(node.shared_bytes),
                                    FormatBytes(node.argument_bytes)};
    if (dump.knows_early) row.push_back(i == 0 ? "-" : BeginText(node));
    if (has_table) row.push_back(ChosenByText(node));
    row.push_back(node.kernel);
    table.AddRow(std::move(row));
  }
  return absl::StrCat(Paragraph(Heading(dump), width), "\n", table.ToString(width),
                      dump.stages.empty() ? "" : "\n",
                      dump.stages.empty() ? "" : StagesText(dump.stages, width));
}

std::string GraphDot(const GraphDump& dump) {
  std::string dot = absl::StrCat("digraph \"", DotText(dump.graph),
                                 "\" {\n  node [shape=box, fontname=\"sans-serif\"];\n");
  for (size_t i = 0; i < dump.nodes.size(); ++i) {
    const GraphNode& node = dump.nodes[i];
    const std::string size = node.kind == GraphNode::Kind::kKernel
                                 ? absl::StrCat("\\ngrid ", GridText(node), ", block ", node.block,
                                                ", shared ", FormatBytes(node.shared_bytes))
                                 : "";
    absl::StrAppend(&dot, "  n", i, " [label=\"", i, ": ", DotText(LabelOf(node)), size,
                    "\", tooltip=\"", DotText(node.kernel), "\"];\n");
    const char* const style = node.early ? " [style=dashed, label=\"early\"]" : "";
    if (i > 0) absl::StrAppend(&dot, "  n", i - 1, " -> n", i, style, ";\n");
  }
  return absl::StrCat(dot, "}\n");
}

json GraphToJson(const GraphDump& dump) {
  json nodes = json::array(), edges = json::array(), early = json::array();
  for (size_t i = 0; i < dump.nodes.size(); ++i) {
    nodes.push_back(NodeToJson(dump.nodes[i], i));
    if (i > 0) edges.push_back({i - 1, i});
    if (dump.nodes[i].early) early.push_back({i - 1, i});
  }
  return {{"schema", kSchema},
          {"graph",
           {{"name", dump.graph},
            {"capacity", dump.capacity},
            {"kernel_nodes", NumKernels(dump)},
            {"other_nodes", dump.nodes.size() - NumKernels(dump)},
            {"argument_bytes", ArgumentBytes(dump)},
            {"device_bytes", dump.device_bytes},
            {"nodes_from", NodesFrom(dump)}}},
          {"nodes", std::move(nodes)},
          {"edges", std::move(edges)},
          {"early_edges", dump.knows_early ? std::move(early) : json(nullptr)},
          {"stages", StagesToJson(dump.stages)}};
}

absl::StatusOr<GraphDump> ParseGraph(const std::string& file, std::string_view text) {
  REPRISE_ASSIGN_OR_RETURN(const json value, models::ParseJsonObject(text, file));
  const std::string prefix = file + ": ";
  const JsonFields fields(value, prefix);
  REPRISE_ASSIGN_OR_RETURN(const std::string schema, fields.StringOr("schema", ""));
  if (schema != kSchema) {
    return fields.Refuse("schema",
                         absl::StrCat(kSchema, ", as `reprise graph dump` writes with --json"));
  }
  const json* graph = fields.Find("graph");
  if (graph == nullptr || !graph->is_object()) return fields.Refuse("graph", "an object");
  const JsonFields of_graph(*graph, prefix + "graph.");
  GraphDump dump;
  dump.where = file;
  REPRISE_ASSIGN_OR_RETURN(dump.graph, of_graph.StringOr("name", ""));
  if (dump.graph.empty()) return of_graph.Refuse("name", "a name");
  REPRISE_ASSIGN_OR_RETURN(dump.capacity, of_graph.Integer("capacity", 1, int64_t{1} << 40));
  REPRISE_ASSIGN_OR_RETURN(const int64_t bytes,
                           of_graph.Integer("device_bytes", 0, int64_t{1} << 50));
  dump.device_bytes = static_cast<size_t>(bytes);
  REPRISE_ASSIGN_OR_RETURN(const std::string from, of_graph.StringOr("nodes_from", "enqueued"));
  dump.captured = from == "captured";
  if (from != NodesFrom(dump)) return of_graph.Refuse("nodes_from", "captured or enqueued");
  const json* nodes = fields.Find("nodes");
  if (nodes == nullptr || !nodes->is_array() || nodes->size() > kMostNodes)
    return fields.Refuse("nodes", absl::StrCat("an array of at most ", kMostNodes));
  for (size_t i = 0; i < nodes->size(); ++i) {
    REPRISE_ASSIGN_OR_RETURN(GraphNode node,
                             ReadNode((*nodes)[i], absl::StrCat(prefix, "nodes[", i, "]")));
    dump.nodes.push_back(std::move(node));
  }
  REPRISE_RETURN_IF_ERROR(ReadEarlyEdges(fields, dump));
  return dump;
}

absl::StatusOr<GraphDump> ReadGraph(const std::string& file) {
  REPRISE_ASSIGN_OR_RETURN(const std::string text, models::ReadFile(file, kMaxFileBytes));
  return ParseGraph(file, text);
}

std::vector<NodeDifference> DiffGraphs(const GraphDump& a, const GraphDump& b) {
  if (a.knows_early != b.knows_early) return DiffGraphs(WithoutEarly(a), WithoutEarly(b));
  const CommonEnds common(a.nodes, b.nodes);
  std::vector<NodeDifference> differences;
  size_t i = 0, j = 0;
  while (i < a.nodes.size() || j < b.nodes.size()) {
    if (i < a.nodes.size() && j < b.nodes.size() && SameWork(a.nodes[i], b.nodes[j])) {
      if (a.nodes[i] != b.nodes[j])
        differences.push_back({.a = i, .b = j, .what = ChangeOf(a.nodes[i], b.nodes[j])});
      ++i;
      ++j;
    } else if (j == b.nodes.size() ||
               (i < a.nodes.size() && common.Of(i + 1, j) >= common.Of(i, j + 1))) {
      differences.push_back({.a = i++, .b = std::nullopt, .what = ""});
    } else {
      differences.push_back({.a = std::nullopt, .b = j++, .what = ""});
    }
  }
  return differences;
}

std::string DifferencesText(const GraphDump& a, const GraphDump& b,
                            const std::vector<NodeDifference>& differences, size_t width) {
  const std::string heads = absl::StrCat(Paragraph(absl::StrCat("a: ", Heading(a)), width),
                                         Paragraph(absl::StrCat("b: ", Heading(b)), width));
  if (differences.empty()) return absl::StrCat(heads, "\nevery node is the same\n");
  Table table({"a", "b", "op", "difference"});
  table.AlignLeft();
  table.SetKeys(3);
  for (const NodeDifference& difference : differences) {
    table.AddRow({PlaceText(difference.a), PlaceText(difference.b),
                  LabelOf(NodeOf(a, b, difference)), WhatText(difference)});
  }
  return absl::StrCat(heads, "\n", table.ToString(width));
}

json DifferencesToJson(const GraphDump& a, const GraphDump& b,
                       const std::vector<NodeDifference>& differences) {
  json list = json::array();
  for (const NodeDifference& difference : differences) {
    list.push_back({{"a", difference.a ? json(*difference.a) : json(nullptr)},
                    {"b", difference.b ? json(*difference.b) : json(nullptr)},
                    {"op", LabelOf(NodeOf(a, b, difference))},
                    {"difference", WhatText(difference)}});
  }
  return {{"schema", "reprise.graph_diff/1"},
          {"a", DumpOf(a)},
          {"b", DumpOf(b)},
          {"differences", std::move(list)}};
}

}  // namespace reprise::tools
