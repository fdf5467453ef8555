// SPDX-License-Identifier: Apache-2.0
// `reprise graph` as users run it: the graphs of a model, their nodes, and where two of them
// differ.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/end_to_end/bench_program.h"
#include "tests/end_to_end/program.h"
#include "tests/testing/json_schema.h"

namespace reprise::testing {
namespace {

using ::nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// Rectangles of a drawing.
size_t NumBoxes(const std::string& svg) {
  size_t count = 0;
  for (size_t at = svg.find("<rect "); at != svg.npos; at = svg.find("<rect ", at + 1)) ++count;
  return count;
}

class GraphProgram : public BenchProgramTest {
 protected:
  void SetUp() override {
    const auto model = WriteTinyModel({}, directory_.path() + "/tiny");
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
  }
  std::vector<std::string> Arguments(const std::string& command,
                                     const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"graph",      command, "--model",         model_,
                                    "--device",   "host",  "--max-rows",      "8",
                                    "--kv-cache", "1MiB",  "--mixed-buckets", "16"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  json Written(const std::string& name) const { return json::parse(ReadTextFile(File(name))); }
  std::string model_;
};

TEST_F(GraphProgram, ListsAndDumpsWhatWasCaptured) {
  Program list(Arguments("list", {"--json", File("list.json")}));
  EXPECT_EQ(list.Wait(), 0) << list.stderr_text();
  for (const char* name : {"decode/1 ", "decode/8 ", "mixed/16 "})
    EXPECT_THAT(list.stdout_text(), HasSubstr(name));
  EXPECT_THAT(SchemaErrors(SchemaNamed("graph_list"), Written("list.json")), IsEmpty());
  const json graphs = Written("list.json")["engine"]["graphs"];
  for (const json& graph : graphs) {
    const std::string name = graph["name"];
    Program dump(
        Arguments("dump", {"--graph", name, "--json", File("dump.json"), "--dot", File("dump.dot"),
                           "--svg", File("step.svg"), "--layer-svg", File("layer.svg")}));
    EXPECT_EQ(dump.Wait(), 0) << dump.stderr_text();
    EXPECT_THAT(dump.stdout_text(), StartsWith(name + " of "));
    const json written = Written("dump.json");
    EXPECT_THAT(SchemaErrors(SchemaNamed("graph"), written), IsEmpty()) << name;
    // What was written down is what was captured.
    EXPECT_EQ(written["nodes"].size(), graph["kernel_nodes"]);
    EXPECT_EQ(written["graph"]["other_nodes"], graph["other_nodes"]);
    EXPECT_EQ(written["nodes"].back()["op"], "publish");
    EXPECT_EQ(written["graph"]["nodes_from"], "enqueued");
    EXPECT_THAT(ReadTextFile(File("dump.dot")), StartsWith("digraph \"" + name + "\" {\n"));
    const std::string step = ReadTextFile(File("step.svg")),
                      layer = ReadTextFile(File("layer.svg"));
    EXPECT_THAT(step, HasSubstr("A step of " + name));
    EXPECT_EQ(NumBoxes(step), written["nodes"].size());
    EXPECT_THAT(step, HasSubstr(">2 of 2</text>"));  // the model's layers
    EXPECT_THAT(layer, HasSubstr("What repeats in " + name));
    EXPECT_GE(NumBoxes(layer), 8u);
    EXPECT_LE(2 * NumBoxes(layer), NumBoxes(step));
  }
}

TEST_F(GraphProgram, AsksTheDeviceWhatWasCaptured) {
  for (const char* name : {"decode/8", "mixed/16"}) {
    ASSERT_EQ(RunProgram(Arguments("dump", {"--graph", name, "--json", File("enqueued.json")})), 0);
    Program dump(
        Arguments("dump", {"--graph", name, "--captured", "--json", File("captured.json")}));
    EXPECT_EQ(dump.Wait(), 0) << dump.stderr_text();
    EXPECT_THAT(dump.stdout_text(), HasSubstr("nodes as captured"));
    const json written = Written("captured.json");
    EXPECT_THAT(SchemaErrors(SchemaNamed("graph"), written), IsEmpty()) << name;
    EXPECT_EQ(written["graph"]["nodes_from"], "captured");
    EXPECT_EQ(written["nodes"], Written("enqueued.json")["nodes"]);
    EXPECT_EQ(written["edges"], Written("enqueued.json")["edges"]);
    EXPECT_EQ(written["early_edges"], json::array());  // the host runs one kernel at a time
    EXPECT_EQ(Written("enqueued.json")["early_edges"], nullptr);
  }
  Program diff(Arguments("diff", {"decode/8", "decode/8", "--captured", "--json", File("d.json")}));
  EXPECT_EQ(diff.Wait(), 0) << diff.stderr_text();
  EXPECT_THAT(SchemaErrors(SchemaNamed("graph_diff"), Written("d.json")), IsEmpty());
  EXPECT_EQ(Written("d.json")["a"]["nodes_from"], "captured");
}

TEST_F(GraphProgram, DiffTellsByItsExitCode) {
  for (const char* name : {"decode/1", "decode/8"}) {
    const std::string file = File(std::string(name).substr(7) + ".json");
    ASSERT_EQ(RunProgram(Arguments("dump", {"--graph", name, "--json", file})), 0);
  }
  Program same({"graph", "diff", File("1.json"), File("1.json")});
  EXPECT_EQ(same.Wait(), 0) << same.stderr_text();
  EXPECT_THAT(same.stdout_text(), HasSubstr("every node is the same"));
  Program files({"graph", "diff", File("1.json"), File("8.json"), "--json", File("diff.json")});
  EXPECT_EQ(files.Wait(), 1);
  EXPECT_THAT(SchemaErrors(SchemaNamed("graph_diff"), Written("diff.json")), IsEmpty());
  EXPECT_THAT(files.stderr_text(), HasSubstr(" nodes differ\n"));
  EXPECT_THAT(files.stdout_text(), HasSubstr("grid "));
  Program buckets(Arguments("diff", {"decode/1", "decode/8", "--json", File("again.json")}));
  EXPECT_EQ(buckets.Wait(), 1);
  EXPECT_EQ(Written("again.json")["differences"], Written("diff.json")["differences"]);
}

TEST_F(GraphProgram, RefusesWhatThereIsNot) {
  struct Refusal {
    std::vector<std::string> arguments;
    std::string says;
  };
  const std::vector<Refusal> refusals = {
      {Arguments("dump", {"--graph", "decode/3"}),
       "graph: got \"decode/3\", allowed: decode/1, decode/2, decode/4, decode/8, mixed/16"},
      {Arguments("dump", {}), "--graph is required"},
      {Arguments("dump", {"--graph", "decode/1", "--json", "-", "--dot", "-"}),
       "--dot: got \"-\", and so does --json"},
      {Arguments("dump", {"--graph", "decode/1", "--svg", "-", "--layer-svg", "-"}),
       "--layer-svg: got \"-\", and so does --svg, allowed: one of them"},
      {Arguments("dump", {"--graph", "decode/1", "--json", File("z"), "--svg", File("z")}),
       "z\", and so does --json, allowed: another file"},
      {{"graph", "diff", "a.json", "b.json", "--json", "b.json"}, "which is read (B)"},
      {{"graph", "diff", "/no/such/a.json", "/no/such/b.json"}, "/no/such/a.json"},
      {{"graph", "diff", "a.json", "b.json", "--captured"}, "--captured: got two files, allowed"},
      {{"graph", "list"}, "--model DIR or --preset NAME"},
      {{"graph", "lst"}, "unknown command \"lst\"; did you mean \"list\"?"},
  };
  for (const Refusal& refusal : refusals) {
    Program program(refusal.arguments);
    EXPECT_EQ(program.Wait(), 2) << refusal.says;
    EXPECT_THAT(program.stderr_text(), HasSubstr(refusal.says));
    EXPECT_THAT(program.stdout_text(), IsEmpty());
  }
}

}  // namespace
}  // namespace reprise::testing
