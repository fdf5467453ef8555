// SPDX-License-Identifier: Apache-2.0
// A graph as text, JSON and DOT, and the differences of two, node by node.
#include "tools/graph/graph_dump.h"

#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tools/text_width.h"

namespace reprise::tools {
namespace {

using ::nlohmann::json;
using ::reprise::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

graphs::GraphNode Node(const std::string& op, const std::string& shape = "", unsigned grid = 4) {
  return {.kind = graphs::GraphNode::Kind::kKernel,
          .kernel = "reprise_" + op,
          .op = op,
          .shape = shape,
          .grid_x = grid,
          .grid_y = 1,
          .block = 128,
          .shared_bytes = 1024,
          .argument_bytes = 48};
}

GraphDump Dump(std::vector<graphs::GraphNode> nodes) {
  return {.where = "tiny on a CPU",
          .graph = "decode/8",
          .capacity = 8,
          .device_bytes = 0,
          .nodes = std::move(nodes)};
}

TEST(GraphDump, ShowsEveryNode) {
  graphs::GraphNode fill;
  fill.kind = graphs::GraphNode::Kind::kFill;
  const GraphDump dump = Dump({Node("norm"), Node("linear", "8x4"), Node("norm"), fill});
  const std::string text = GraphText(dump, kNoWidth);
  EXPECT_THAT(text,
              HasSubstr("decode/8 of tiny on a CPU: 3 kernel nodes of 2 kernels, 1 other "
                        "nodes, 3 edges, 144 B of arguments, 0 B of the driver's memory; nodes as "
                        "enqueued\n"));
  EXPECT_THAT(text,
              HasSubstr("1     linear 8x4   4x1    128  1.00 KiB       48 B  reprise_linear\n"));
  const std::string dot = GraphDot(dump);
  EXPECT_THAT(dot, HasSubstr("digraph \"decode/8\" {"));
  EXPECT_THAT(dot,
              HasSubstr("  n1 [label=\"1: linear 8x4\\ngrid 4x1, block 128, shared 1.00 KiB\", "
                        "tooltip=\"reprise_linear\"];\n  n0 -> n1;\n"));
  EXPECT_THAT(dot, HasSubstr("  n3 [label=\"3: fill\", tooltip=\"\"];\n  n2 -> n3;\n}\n"));
}

TEST(GraphDump, IsReadAsItWasWritten) {
  const GraphDump dump = Dump({Node("norm"), Node("linear", "8x4")});
  ASSERT_OK_AND_ASSIGN(const GraphDump read, ParseGraph("a.json", GraphToJson(dump).dump()));
  EXPECT_EQ(read.where, "a.json");
  EXPECT_EQ(read.graph, dump.graph);
  EXPECT_EQ(read.capacity, 8);
  EXPECT_EQ(read.nodes, dump.nodes);
  EXPECT_FALSE(read.captured);
  EXPECT_THAT(DiffGraphs(dump, read), IsEmpty());
  EXPECT_THAT(DifferencesText(dump, read, {}, kNoWidth), HasSubstr("every node is the same\n"));
}

TEST(GraphDump, SaysWhereItsNodesAreFrom) {
  GraphDump dump = Dump({Node("norm")});
  EXPECT_EQ(GraphToJson(dump)["graph"]["nodes_from"], "enqueued");
  dump.captured = true;
  EXPECT_THAT(GraphText(dump, kNoWidth), HasSubstr("; nodes as captured\n"));
  json written = GraphToJson(dump);
  EXPECT_EQ(written["graph"]["nodes_from"], "captured");
  ASSERT_OK_AND_ASSIGN(const GraphDump read, ParseGraph("a.json", written.dump()));
  EXPECT_TRUE(read.captured);
  EXPECT_EQ(DifferencesToJson(dump, Dump({}), {})["a"]["nodes_from"], "captured");
  EXPECT_EQ(DifferencesToJson(dump, Dump({}), {})["b"]["nodes_from"], "enqueued");
  written["graph"].erase("nodes_from");  // as older versions wrote it
  written.erase("early_edges");
  ASSERT_OK_AND_ASSIGN(const GraphDump older, ParseGraph("a.json", written.dump()));
  EXPECT_FALSE(older.captured);
}

// Of what a device was asked alone: of nodes as enqueued it is not known.
TEST(GraphDump, TellsWhichNodesBeginEarly) {
  GraphDump dump = Dump({Node("norm"), Node("linear", "8x4"), Node("silu")});
  EXPECT_EQ(GraphToJson(dump)["early_edges"], nullptr);
  dump.captured = dump.knows_early = true;
  EXPECT_EQ(GraphToJson(dump)["early_edges"], json::array());
  dump.nodes[1].early = true;
  const std::string text = GraphText(dump, kNoWidth);
  EXPECT_THAT(text, HasSubstr(" 2 edges, of which 1 let a node begin early, "));
  EXPECT_THAT(text, HasSubstr("48 B       -    reprise_norm\n"));
  EXPECT_THAT(text, HasSubstr("48 B   early  reprise_linear\n"));
  EXPECT_THAT(text, HasSubstr("48 B  behind    reprise_silu\n"));
  const std::string dot = GraphDot(dump);
  EXPECT_THAT(dot, HasSubstr("  n0 -> n1 [style=dashed, label=\"early\"];\n"));
  EXPECT_THAT(dot, HasSubstr("  n1 -> n2;\n"));
  const json written = GraphToJson(dump);
  EXPECT_EQ(written["edges"], json::parse("[[0,1],[1,2]]"));
  EXPECT_EQ(written["early_edges"], json::parse("[[0,1]]"));
  ASSERT_OK_AND_ASSIGN(const GraphDump read, ParseGraph("a.json", written.dump()));
  EXPECT_EQ(read.nodes, dump.nodes);

  GraphDump other = dump;
  other.nodes[1].early = false;
  const std::vector<NodeDifference> differences = DiffGraphs(dump, other);
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_EQ(differences[0].what, "begins early -> behind");
  other.captured = other.knows_early = false;
  EXPECT_THAT(DiffGraphs(dump, other), IsEmpty());
  // As versions wrote it that asked for nodes alone.
  json earlier = GraphToJson(dump);
  earlier.erase("early_edges");
  ASSERT_OK_AND_ASSIGN(const GraphDump older, ParseGraph("a.json", earlier.dump()));
  EXPECT_TRUE(older.captured);
  EXPECT_THAT(GraphText(older, kNoWidth), Not(HasSubstr("early")));
  EXPECT_THAT(DiffGraphs(older, dump), IsEmpty());
}

// Where no table chose any, nothing is said of it.
TEST(GraphDump, TellsWhichKernelsATableChose) {
  GraphDump dump = Dump({Node("norm"), Node("linear", "8x4")});
  EXPECT_THAT(GraphText(dump, kNoWidth), Not(HasSubstr("table")));
  EXPECT_EQ(GraphToJson(dump)["nodes"][1]["from_table"], false);
  const GraphDump before = dump;
  dump.nodes[1].from_table = true;
  const std::string text = GraphText(dump, kNoWidth);
  EXPECT_THAT(text, HasSubstr("2 kernels, 1 of them chosen by the linear table, 0 other nodes"));
  EXPECT_THAT(text, HasSubstr("48 B          -    reprise_norm\n"));
  EXPECT_THAT(text, HasSubstr("48 B      table  reprise_linear\n"));
  const json written = GraphToJson(dump);
  EXPECT_EQ(written["nodes"][1]["from_table"], true);
  ASSERT_OK_AND_ASSIGN(const GraphDump read, ParseGraph("a.json", written.dump()));
  EXPECT_EQ(read.nodes, dump.nodes);
  ASSERT_EQ(DiffGraphs(before, dump).size(), 1u);
  EXPECT_EQ(DiffGraphs(before, dump)[0].what, "chosen by - -> table");
}

// A stage of a step kernel: of a linear layer where it has outputs.
kernels::ListedStage Stage(kernels::StageKind kind, std::string_view op, int64_t outputs = 0) {
  kernels::ListedStage stage{.kind = kind, .op = op, .out_features = outputs};
  if (outputs == 0) {
    stage.per_row = 4;
  } else {
    stage.in_features = 64;
    stage.num_tiles = stage.fixed = static_cast<uint32_t>(outputs / 16);
  }
  return stage;
}

// Two layers of a norm and two linear layers, a norm and a head behind them.
std::vector<kernels::ListedStage> Stages() {
  using Kind = kernels::StageKind;
  std::vector<kernels::ListedStage> stages;
  for (int layer = 0; layer < 2; ++layer) {
    stages.push_back(Stage(Kind::kNorm, "rms_norm"));
    stages.push_back(Stage(Kind::kLinear, "linear_stream", 128));
    stages.push_back(Stage(Kind::kLinear, "linear_stream", 32));
  }
  stages.push_back(Stage(Kind::kNorm, "rms_norm"));
  stages.push_back(Stage(Kind::kLinear, "linear_stream", 512));
  uint32_t tiles = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    if (i > 0) stages[i].waits_for = i - 1;
    if (stages[i].num_tiles != 0) stages[i].first_tile = tiles;
    tiles += stages[i].num_tiles;
  }
  return stages;
}

TEST(GraphDump, ShowsTheStagesOfAStepKernel) {
  GraphDump dump = Dump({Node("plan"), Node("step_kernel")});
  EXPECT_EQ(GraphToJson(dump)["stages"], nullptr);
  EXPECT_THAT(GraphText(dump, kNoWidth), Not(HasSubstr("stages")));
  dump.stages = Stages();
  const std::string text = GraphText(dump, kNoWidth);
  EXPECT_THAT(text, HasSubstr("stages of the step kernel: 8, with 52 tiles of 16 outputs in all"));
  EXPECT_THAT(text, HasSubstr("128x64"));
  EXPECT_THAT(text, HasSubstr("10 to 17"));
  EXPECT_THAT(text, HasSubstr("8 tiles"));
  EXPECT_THAT(text, HasSubstr("4 a row"));
  EXPECT_THAT(text, Not(HasSubstr("chosen by")));
  const json stages = GraphToJson(dump)["stages"];
  ASSERT_EQ(stages.size(), 8u);
  EXPECT_EQ(stages[0]["kind"], "norm");
  EXPECT_EQ(stages[0]["layer"], 0);
  EXPECT_EQ(stages[0]["waits_for"], nullptr);
  EXPECT_EQ(stages[0]["first_tile"], nullptr);
  EXPECT_EQ(stages[0]["shape"], nullptr);
  EXPECT_EQ(stages[0]["done_per_row"], 4);
  EXPECT_EQ(stages[4]["layer"], 1);
  EXPECT_EQ(stages[4]["shape"], "128x64");
  EXPECT_EQ(stages[4]["tiles"], 8);
  EXPECT_EQ(stages[4]["first_tile"], 10);
  EXPECT_EQ(stages[4]["done_fixed"], 8);
  EXPECT_EQ(stages[4]["waits_for"], 3);
  EXPECT_EQ(stages[4]["op"], "linear_stream");
  EXPECT_EQ(stages[7]["layer"], nullptr);
  // A dump with stages is read as one without: what is compared are nodes.
  ASSERT_OK_AND_ASSIGN(const GraphDump read, ParseGraph("a.json", GraphToJson(dump).dump()));
  EXPECT_THAT(DiffGraphs(dump, read), IsEmpty());
  dump.stages[1].from_table = true;
  EXPECT_THAT(GraphText(dump, kNoWidth), HasSubstr("chosen by"));
  EXPECT_EQ(GraphToJson(dump)["stages"][1]["from_table"], true);
}

TEST(GraphDump, RefusesFilesThatAreWrong) {
  const auto says = [](const char* place, json value, const char* message) {
    json dump = GraphToJson(Dump({Node("norm")}));
    dump[json::json_pointer(place)] = std::move(value);
    EXPECT_THAT(ParseGraph("a.json", dump.dump()),
                StatusIs(absl::StatusCode::kInvalidArgument, message))
        << place;
  };
  EXPECT_THAT(ParseGraph("a.json", "[]"), StatusIs(absl::StatusCode::kInvalidArgument, "a.json"));
  says("/schema", "reprise.run/1",
       "a.json: schema: got \"reprise.run/1\", allowed reprise.graph/1");
  says("/graph", 1, "a.json: graph: got 1, allowed an object");
  says("/graph/capacity", 0, "a.json: graph.capacity: got 0");
  says("/graph/nodes_from", "x",
       "a.json: graph.nodes_from: got \"x\", allowed captured or enqueued");
  says("/nodes", "x", "a.json: nodes: got \"x\", allowed an array of at most 8192");
  says("/nodes/0", 3, "a.json: nodes[0]: got 3, allowed: an object");
  says("/nodes/0/kind", "memset", "nodes[0].kind: got \"memset\", allowed kernel, host, copy or");
  says("/nodes/0/grid", {1}, "nodes[0].grid: got [1], allowed two whole numbers");
  says("/nodes/0/grid", {4294967304, 1}, "allowed two whole numbers of at most 4294967295");
  says("/nodes/0/block", -1, "nodes[0].block: got -1");
  says("/early_edges", json::array(),
       "early_edges: got [], allowed null where nodes are as enqueued");
}

TEST(GraphDump, RefusesEarlyEdgesThatAreNone) {
  GraphDump dump = Dump({Node("norm"), Node("silu")});
  dump.captured = dump.knows_early = true;
  for (const char* edges : {"1", "[1]", "[[0]]", "[[0,1,2]]", "[[0,2]]", "[[1,2]]", "[[-1,0]]",
                            "[[1,0]]", "[[18446744073709551615,0]]", "[[0,\"1\"]]"}) {
    json written = GraphToJson(dump);
    written["early_edges"] = json::parse(edges);
    EXPECT_THAT(ParseGraph("a.json", written.dump()),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "allowed an array of [node, the node behind it]"))
        << edges;
  }
}

TEST(GraphDiff, NamesWhatChangedWhatCameAndWhatWent) {
  const GraphDump a = Dump({Node("norm"), Node("linear", "8x4"), Node("silu"), Node("publish")});
  graphs::GraphNode wider = Node("linear", "8x4", 16);
  wider.kernel = "reprise_linear_wide";
  wider.shared_bytes = 2048;
  const GraphDump b = Dump({Node("norm"), Node("rope"), wider, Node("publish")});
  const std::vector<NodeDifference> differences = DiffGraphs(a, b);
  ASSERT_EQ(differences.size(), 3u);
  EXPECT_FALSE(differences[0].a.has_value());
  EXPECT_EQ(*differences[0].b, 1u);
  EXPECT_EQ(*differences[1].a, 1u);
  EXPECT_EQ(*differences[1].b, 2u);
  EXPECT_EQ(differences[1].what,
            "kernel reprise_linear -> reprise_linear_wide, grid 4x1 -> 16x1, shared 1.00 KiB -> "
            "2.00 KiB");
  EXPECT_EQ(*differences[2].a, 2u);
  EXPECT_FALSE(differences[2].b.has_value());
  const std::string text = DifferencesText(a, b, differences, kNoWidth);
  EXPECT_THAT(text, HasSubstr("-  1  rope        in b alone\n"));
  EXPECT_THAT(text, HasSubstr("2  -  silu        in a alone\n"));
  const json written = DifferencesToJson(a, b, differences);
  EXPECT_EQ(written["differences"][0]["a"], nullptr);
  EXPECT_EQ(written["differences"][1]["op"], "linear 8x4");
}

// Two layers against three: one layer's nodes are left over, and the others match.
TEST(GraphDiff, LeavesOverAsFewNodesAsPossible) {
  std::vector<graphs::GraphNode> two, three;
  for (int layer = 0; layer < 3; ++layer) {
    for (const char* op : {"norm", "linear", "silu"}) {
      if (layer < 2) two.push_back(Node(op));
      three.push_back(Node(op));
    }
  }
  EXPECT_EQ(DiffGraphs(Dump(two), Dump(three)).size(), 3u);
  EXPECT_EQ(DiffGraphs(Dump(three), Dump(two)).size(), 3u);
  EXPECT_EQ(DiffGraphs(Dump({}), Dump(two)).size(), 6u);
}

}  // namespace
}  // namespace reprise::tools
