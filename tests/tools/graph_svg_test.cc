// SPDX-License-Identifier: Apache-2.0
// A graph as a drawing: what repeats in it, a box and an edge for each node, text that XML can
// hold.
#include "tools/graph/graph_svg.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace reprise::tools {
namespace {

using ::reprise::testing::StatusIs;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;
using ::testing::StartsWith;

std::vector<graphs::GraphNode> Nodes(const std::string& ops) {
  std::vector<graphs::GraphNode> nodes;
  for (const char op : ops) {
    nodes.push_back({.kind = graphs::GraphNode::Kind::kKernel,
                     .kernel = std::string("reprise_kernel_") + op,
                     .op = std::string("op<") + op,
                     .shape = op == 'l' ? "8x4" : "",
                     .grid_x = 4,
                     .grid_y = 2,
                     .block = 128,
                     .shared_bytes = 1024,
                     .argument_bytes = 48});
  }
  return nodes;
}

GraphDump Dump(const std::string& ops) {
  return {.where = "tiny & small",
          .graph = "decode/8",
          .capacity = 8,
          .device_bytes = 0,
          .nodes = Nodes(ops)};
}

size_t CountOf(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(RepeatedPart, IsWhereTheLayersAre) {
  // The norm behind the layers is as the one that each begins with.
  EXPECT_THAT(FindRepeatedPart(Nodes("fpenlanlanlanlanxs")),
              Optional(RepeatedPart{.begin = 3, .length = 3, .repeats = 4}));
  // Layers that take turns.
  EXPECT_THAT(FindRepeatedPart(Nodes("fnlanlbnlanlbx")),
              Optional(RepeatedPart{.begin = 1, .length = 6, .repeats = 2}));
  EXPECT_THAT(FindRepeatedPart(Nodes("aab")),
              Optional(RepeatedPart{.begin = 0, .length = 1, .repeats = 2}));
  EXPECT_EQ(FindRepeatedPart(Nodes("abcdef")), std::nullopt);
  EXPECT_EQ(FindRepeatedPart({}), std::nullopt);
}

TEST(RepeatedPart, LooksAtShapesToo) {
  std::vector<graphs::GraphNode> nodes = Nodes("fnlnl");
  EXPECT_TRUE(FindRepeatedPart(nodes).has_value());
  nodes[4].shape = "16x4";
  EXPECT_EQ(FindRepeatedPart(nodes), std::nullopt);
}

TEST(GraphSvg, DrawsEveryNodeOfAStepAndTheEdgesBetween) {
  const std::string svg = StepSvg(Dump("fpnlanlanlax"));
  EXPECT_THAT(svg, StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_THAT(svg, EndsWith("</svg>\n"));
  EXPECT_EQ(CountOf(svg, "<rect "), 12u);
  EXPECT_EQ(CountOf(svg, "class=\"edge\""), 11u);
  EXPECT_EQ(CountOf(svg, "class=\"head\""), 11u);
  EXPECT_THAT(svg, HasSubstr(">2 of 3</text>"));
  EXPECT_THAT(svg, HasSubstr(">op&lt;l</text>"));
  EXPECT_THAT(svg, HasSubstr(">8x4</text>"));
  EXPECT_THAT(svg, HasSubstr(">grid 4x2, block 128</text>"));
  EXPECT_THAT(svg, HasSubstr("<title>3: reprise_kernel_l, grid 4x2, block 128, shared 1.00 KiB, "
                             "arguments 48 B</title>"));
  EXPECT_THAT(svg, HasSubstr("tiny &amp; small"));
  EXPECT_THAT(svg, HasSubstr("@media (prefers-color-scheme: dark)"));
  // Nothing is loaded: the only address is the name of the language.
  EXPECT_EQ(CountOf(svg, "http"), 1u);
  EXPECT_THAT(svg, Not(HasSubstr("url(")));
}

TEST(GraphSvg, DrawsALayerWithItsKernels) {
  ASSERT_OK_AND_ASSIGN(const std::string svg, LayerSvg(Dump("fpnlanlanlax")));
  EXPECT_EQ(CountOf(svg, "<rect "), 3u);
  EXPECT_EQ(CountOf(svg, "class=\"edge\""), 2u);
  EXPECT_THAT(svg, HasSubstr(">3: op&lt;l 8x4</text>"));
  EXPECT_THAT(svg, HasSubstr(">reprise_kernel_l</text>"));
  EXPECT_THAT(svg, HasSubstr("3 nodes from node 2 on, 3 times"));
  EXPECT_THAT(LayerSvg(Dump("abc")),
              StatusIs(absl::StatusCode::kFailedPrecondition, "of which no part repeats"));
}

// The first node of a drawing has no edge that leads to it.
TEST(GraphSvg, EdgesToEarlyNodesAreDashedAndALegendSaysWhy) {
  GraphDump dump = Dump("fpnlanlanlax");
  dump.knows_early = true;
  EXPECT_EQ(CountOf(StepSvg(dump), "edge early"), 0u);
  EXPECT_THAT(StepSvg(dump), Not(HasSubstr("begins early")));
  for (const size_t early : {3, 5}) dump.nodes[early].early = true;  // in a line, and across two
  const std::string svg = StepSvg(dump);
  EXPECT_EQ(CountOf(svg, "class=\"edge early\""), 2u + 1u) << "with the legend's";
  EXPECT_EQ(CountOf(svg, "class=\"edge\""), 9u);
  EXPECT_EQ(CountOf(svg, ">begins early: while the node ahead of it may still run</text>"), 1u);
  EXPECT_EQ(CountOf(svg, "arguments 48 B, begins early</title>"), 2u);
  EXPECT_THAT(svg, HasSubstr(".early { stroke-dasharray: "));
  ASSERT_OK_AND_ASSIGN(const std::string layer, LayerSvg(dump));
  EXPECT_EQ(CountOf(layer, "class=\"edge early\""), 1u + 1u);
  EXPECT_EQ(CountOf(layer, "class=\"edge\""), 1u);
}

TEST(GraphSvg, LayerWhoseFirstNodeAloneIsEarlyHasNoLegend) {
  GraphDump dump = Dump("fpnlanlanlax");
  dump.nodes[2].early = true;
  ASSERT_OK_AND_ASSIGN(const std::string layer, LayerSvg(dump));
  EXPECT_EQ(CountOf(layer, "edge early"), 0u);
  EXPECT_THAT(layer, Not(HasSubstr("node ahead of it")));
}

TEST(GraphSvg, DrawsNodesThatAreNoKernels) {
  GraphDump dump = Dump("ab");
  dump.nodes[1] = {};
  dump.nodes[1].kind = graphs::GraphNode::Kind::kFill;
  EXPECT_THAT(StepSvg(dump), HasSubstr(">fill</text>"));
}

}  // namespace
}  // namespace reprise::tools
