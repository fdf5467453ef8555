// SPDX-License-Identifier: Apache-2.0
// `reprise tune` as users run it. Of attention: a tree that `bench attention --tree` takes, and a
// run that is continued. Of linear layers: a table that engines take, and tables that they refuse.
// And what is refused before anything is measured.
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/attention_tree_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/end_to_end/bench_program.h"
#include "tests/end_to_end/program.h"
#include "tests/testing/json_schema.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using ::nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

const std::vector<std::string> kHeads = {"--device",   "host", "--heads",    "4",
                                         "--kv-heads", "2",    "--head-dim", "16"};

class TuneProgram : public ::testing::Test {
 protected:
  static std::vector<std::string> Tune(const std::vector<std::string>& more,
                                       const std::string& budget = "3") {
    std::vector<std::string> all = {"tune", "attention"};
    all.insert(all.end(), kHeads.begin(), kHeads.end());
    all.insert(all.end(), {"--max-rows", "2", "--max-context", "96", "--chunk", "32"});
    all.insert(all.end(), {"--pool-bytes", "16KiB", "--budget", budget});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string File(const std::string& name) const { return directory_.path() + "/" + name; }
  static size_t Lines(const std::string& path) {
    const std::string text = ReadTextFile(path);
    return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  TemporaryDirectory directory_;
};

TEST_F(TuneProgram, WritesATreeThatBenchTakes) {
  Program tune(Tune({"--out", File("tree.json"), "--replays", "2"}));
  ASSERT_EQ(tune.Wait(std::chrono::seconds(120)), 0) << tune.stderr_text();
  for (const char* part : {"rows are dealt", "fitted on", "regret", "measured: splits ",
                           "held out: ", "than by the built-in tree"})
    EXPECT_THAT(tune.stdout_text(), HasSubstr(part));
  EXPECT_THAT(tune.stderr_text(), HasSubstr("written: "));
  const std::string text = ReadTextFile(File("tree.json"));
  ASSERT_OK_AND_ASSIGN(const auto named, engine::ParseAttentionTree(text));
  EXPECT_TRUE(named.batch_invariant);
  EXPECT_TRUE(named.device.has_value());
  EXPECT_EQ(named.num_heads, 4);
  EXPECT_EQ(named.num_kv_heads, 2);
  EXPECT_EQ(named.head_dim, 16);
  EXPECT_EQ(named.block_size, 16);
  EXPECT_EQ(named.window, 0);
  EXPECT_EQ(named.dtype, runtime::DType::kBf16);
  const json notes = json::parse(text)["notes"];
  EXPECT_EQ(notes["made_by"]["command"], "tune attention");
  EXPECT_EQ(notes["made_by"]["argv"][1], "tune");
  EXPECT_EQ(notes["settings"]["max_rows"], 2);
  EXPECT_EQ(notes["swept"][0]["stage"], "splits");
  EXPECT_GT(notes["swept"][0]["batches"], 0);
  EXPECT_EQ(notes["leaves"].size(), named.row_leaves.size() + named.batch_leaves.size());
  EXPECT_GT(notes["regret"]["batches"], 0);
  EXPECT_GE(notes["regret"]["largest"], notes["regret"]["mean"]);
  std::vector<std::string> arguments = {"bench", "attention", "--rows", "1", "--contexts", "32"};
  arguments.insert(arguments.end(), kHeads.begin(), kHeads.end());
  arguments.insert(arguments.end(), {"--max-context", "64", "--pool-bytes", "16KiB", "--replays",
                                     "2", "--check", "--tree", File("tree.json")});
  Program bench(arguments);
  EXPECT_EQ(bench.Wait(std::chrono::seconds(60)), 0) << bench.stderr_text();
  EXPECT_THAT(bench.stdout_text(), ContainsRegex("1 [0-9]+ x [0-9]+"));
  // No other file is left.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path()), {}), 1);
}

TEST_F(TuneProgram, ContinuesAnEarlierRunFromItsJournal) {
  const std::vector<std::string> options = {"--replays",    "2",     "--journal",
                                            File("j"),      "--out", File("tree.json"),
                                            "--max-memory", "64KiB"};
  Program first(Tune(options));
  ASSERT_EQ(first.Wait(std::chrono::seconds(120)), 0) << first.stderr_text();
  const size_t lines = Lines(File("j"));
  EXPECT_GT(lines, 20u);
  // As if it had been cut off in the middle of a line.
  const std::string whole = ReadTextFile(File("j"));
  std::ofstream(File("j")) << whole.substr(0, whole.size() / 2);
  Program second(Tune(options));
  ASSERT_EQ(second.Wait(std::chrono::seconds(120)), 0) << second.stderr_text();
  EXPECT_THAT(second.stderr_text(), ContainsRegex("continues: [0-9]+ measurements in "));
  EXPECT_GT(Lines(File("j")), lines / 2);
  std::vector<std::string> other = options;
  other.insert(other.end(), {"--seed", "7"});
  Program refused(Tune(other));
  EXPECT_EQ(refused.Wait(std::chrono::seconds(60)), 1);
  EXPECT_THAT(refused.stderr_text(), HasSubstr("was begun by another run: options.seed: 1, got 7"));
}

TEST_F(TuneProgram, AnInterruptedRunSaysHowToGoOn) {
  Program tune(Tune({"--replays", "20", "--journal", File("j"), "--out", File("tree.json")}, "600"),
               {.terminal_columns = 80});
  ASSERT_TRUE(tune.AwaitOutput("3 / "));
  tune.Signal(SIGINT);
  EXPECT_EQ(tune.Wait(std::chrono::seconds(60)), 128 + SIGINT);
  const std::string text = tune.terminal().screen().text();
  EXPECT_THAT(text, HasSubstr("kept: "));
  EXPECT_THAT(text, HasSubstr("the same command continues"));
  EXPECT_THAT(text, HasSubstr("reprise tune attention: stopped by SIGINT"));
  EXPECT_FALSE(std::filesystem::exists(File("tree.json")));
  EXPECT_GT(Lines(File("j")), 10u);
}

TEST_F(TuneProgram, LetsRowsBeAskedForTheBatchWhereItMay) {
  Program tune(Tune({"--out", File("tree.json"), "--replays", "1", "--no-batch-invariance",
                     "--decode-share", "100"}));
  ASSERT_EQ(tune.Wait(std::chrono::seconds(120)), 0) << tune.stderr_text();
  const json tree = json::parse(ReadTextFile(File("tree.json")));
  EXPECT_EQ(tree["batch_invariant"], false);
  EXPECT_GT(tree["notes"]["of_batch_invariant"]["batches"], 0);
  EXPECT_EQ(tree["notes"]["swept"].size(), 3u);
  EXPECT_THAT(tune.stdout_text(), HasSubstr("asking rows for the batch: "));
}

TEST_F(TuneProgram, SaysWhatInvarianceCostsInTheStandardCellsThatFit) {
  Program tune({"tune",          "attention",
                "--device",      "host",
                "--heads",       "1",
                "--kv-heads",    "1",
                "--head-dim",    "8",
                "--max-rows",    "2",
                "--max-context", "128",
                "--chunk",       "32",
                "--pool-bytes",  "16KiB",
                "--budget",      "10",
                "--replays",     "1",
                "--cut-prompts", "--standard-cells",
                "--out",         File("tree.json")});
  ASSERT_EQ(tune.Wait(std::chrono::seconds(120)), 0) << tune.stderr_text();
  for (const char* part : {"invariant us", "b1 x 128", "cost of invariance: held-out batches, "})
    EXPECT_THAT(tune.stdout_text(), HasSubstr(part));
  const json notes = json::parse(ReadTextFile(File("tree.json")))["notes"];
  EXPECT_EQ(notes["settings"]["cut_prompts"], true);
  size_t standard = 0;
  for (const json& cost : notes["invariance"]) {
    if (!cost["standard"]) continue;
    ++standard;
    EXPECT_NEAR(cost["us"].get<double>() / cost["best_us"].get<double>() - 1,
                cost["cost"].get<double>(), 0.01);
  }
  EXPECT_EQ(standard, 1u);  // that of 128 tokens and at most 2 rows
}

TEST_F(TuneProgram, AloneShowsWhatCanBeTuned) {
  Program program({"tune"});
  EXPECT_EQ(program.Wait(), 0);
  EXPECT_THAT(program.stdout_text(), HasSubstr("reprise tune attention"));
}

TEST_F(TuneProgram, RefusesWhatCannotBeDoneBeforeItMeasures) {
  struct Refusal {
    std::vector<std::string> arguments;
    int exit_code;
    std::string says;
  };
  const std::vector<std::string> out = {"--out", File("tree.json")};
  const auto with_out = [&](std::vector<std::string> more) {
    more.insert(more.end(), out.begin(), out.end());
    return Tune(more);
  };
  std::ofstream(File("text")) << "hello\n";
  const std::vector<Refusal> refusals = {
      {Tune({}), 2, "--out: got nothing, allowed: a file"},
      {Tune({"--out", "-"}), 2, "--out: got \"-\", allowed: a file"},
      {Tune({"--out", "/no/such/dir/tree.json"}), 1, "cannot write \"/no/such/dir/tree.json\""},
      {Tune({"--out", directory_.path()}), 1, "got a directory, allowed: a file"},
      {with_out({"--journal", "/no/such/dir/j"}), 1, "cannot write \"/no/such/dir/j\""},
      {with_out({"--journal", File("text")}), 1, "line 1"},
      {with_out({"--max-leaves", "9"}), 2, "--max-leaves: got \"9\""},
      {with_out({"--min-gain", "2"}), 2, "--min-gain: got \"2\""},
      {with_out({"--decode-share", "101"}), 2, "--decode-share: got \"101\""},
      {with_out({"--replays", "0"}), 2, "--replays: got \"0\""},
      {with_out({"--budgt", "1"}), 2, "did you mean \"--budget\"?"},
      {with_out({"--max-memory", "1B"}), 1, "batches: got none that fits"},
      {with_out({"--preset", "llama-3.1-8b"}), 2, "got both a model and --heads"},
      {{"tune", "atention"}, 2, "unknown command \"atention\"; did you mean \"attention\"?"},
  };
  for (const Refusal& refusal : refusals) {
    Program program(refusal.arguments);
    EXPECT_EQ(program.Wait(), refusal.exit_code) << refusal.says;
    EXPECT_THAT(program.stderr_text(), HasSubstr(refusal.says));
    EXPECT_THAT(program.stderr_text(), StartsWith("reprise tune"));
    EXPECT_THAT(program.stdout_text(), IsEmpty());
    EXPECT_FALSE(std::filesystem::exists(File("tree.json")));
  }
}

// ---- tune linear ----

class TuneLinearProgram : public ::testing::Test {
 protected:
  std::string File(const std::string& name) const { return directory_.path() + "/" + name; }
  static std::vector<std::string> Tune(const std::vector<std::string>& more) {
    std::vector<std::string> all = {"tune", "linear", "--device", "host", "--rows", "1,4"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // Of a model on the host, with this table.
  static std::vector<std::string> WithTable(std::vector<std::string> command,
                                            const std::string& table) {
    command.insert(command.end(), {"--model", ShippedModel(), "--device", "host", "--kv-cache",
                                   "16MiB", "--max-rows", "2", "--linear-table", table});
    return command;
  }
  // One shape, and one range: of two rows.
  static json Layers(const std::string& weights, int out_features, int in_features,
                     const std::string& kernel) {
    json range = {{"rows_from", 2}, {"rows_to", 2}, {"kernel", kernel}};
    json layer = {{"weights", weights},
                  {"group_size", 0},
                  {"out_features", out_features},
                  {"in_features", in_features}};
    layer["kernels"] = json::array();
    layer["kernels"].push_back(std::move(range));
    json layers = json::array();
    layers.push_back(std::move(layer));
    return layers;
  }
  void ExpectRefused(const std::string& table, const std::string& says) const {
    std::ofstream(File("refused.json")) << table;
    Program list(WithTable({"graph", "list"}, File("refused.json")));
    EXPECT_NE(list.Wait(), 0) << says;
    EXPECT_THAT(list.stderr_text(), HasSubstr(says));
    EXPECT_THAT(list.stdout_text(), IsEmpty());
  }
  TemporaryDirectory directory_;
};

// The host has one kernel of each format.
TEST_F(TuneLinearProgram, SaysThatTheHostHasNoChoiceAndWritesATableThatIsTaken) {
  Program tune(Tune({"--model", ShippedModel(), "--out", File("table.json")}));
  ASSERT_EQ(tune.Wait(std::chrono::seconds(120)), 0) << tune.stderr_text();
  EXPECT_THAT(tune.stdout_text(), HasSubstr("nothing to choose from"));
  EXPECT_THAT(tune.stderr_text(), HasSubstr("written: "));
  const json table = json::parse(ReadTextFile(File("table.json")));
  EXPECT_THAT(SchemaErrors(SchemaNamed("linear_table"), table), IsEmpty());
  EXPECT_THAT(table["layers"], IsEmpty());
  EXPECT_EQ(table["notes"]["made_by"]["command"], "tune linear");
  EXPECT_EQ(table["notes"]["settings"]["linear"], "row-major");
  EXPECT_EQ(table["notes"]["device"]["name"], table["made_for"]["device"]);
  EXPECT_THAT(table["notes"]["measured"], IsEmpty());
  // No other file is left.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path()), {}), 1);

  Program list(WithTable({"graph", "list", "--json", File("list.json")}, File("table.json")));
  ASSERT_EQ(list.Wait(std::chrono::seconds(60)), 0) << list.stderr_text();
  EXPECT_THAT(list.stdout_text(), HasSubstr("by table"));
  const json listed = json::parse(ReadTextFile(File("list.json")));
  EXPECT_THAT(SchemaErrors(SchemaNamed("graph_list"), listed), IsEmpty());
  EXPECT_EQ(listed["engine"]["linear_table_ranges"], 0);
  EXPECT_EQ(listed["by_table"][0]["kernel_nodes"], 0);
  Program run(
      WithTable({"run", "--prompt", "You", "--max-new-tokens", "2", "--json", File("run.json")},
                File("table.json")));
  ASSERT_EQ(run.Wait(std::chrono::seconds(60)), 0) << run.stderr_text();
  EXPECT_THAT(SchemaErrors(SchemaNamed("run"), json::parse(ReadTextFile(File("run.json")))),
              IsEmpty());
}

// A table of one entry: what the schema says of it is what is written and read.
TEST_F(TuneLinearProgram, TablesWithEntriesAreTakenAndShown) {
  Program tune(Tune({"--model", ShippedModel(), "--out", File("table.json")}));
  ASSERT_EQ(tune.Wait(std::chrono::seconds(120)), 0) << tune.stderr_text();
  json table = json::parse(ReadTextFile(File("table.json")));
  const std::string dtype = table["made_for"]["dtype"];
  Program dump(WithTable({"graph", "dump", "--graph", "decode/2", "--json", File("dump.json")},
                         File("table.json")));
  ASSERT_EQ(dump.Wait(std::chrono::seconds(60)), 0) << dump.stderr_text();
  // The shape of some linear layer, and the one kernel that it may have.
  std::string shape;
  const json plain = json::parse(ReadTextFile(File("dump.json")));
  for (const json& node : plain["nodes"])
    if (node["op"] == "linear_native" && shape.empty()) shape = node["shape"];
  const size_t by = shape.find('x');
  ASSERT_NE(by, shape.npos);
  table["layers"] = Layers(dtype, std::stoi(shape.substr(0, by)), std::stoi(shape.substr(by + 1)),
                           "reprise_linear_native_" + dtype);
  EXPECT_THAT(SchemaErrors(SchemaNamed("linear_table"), table), IsEmpty());
  std::ofstream(File("one.json")) << table.dump();
  Program one(WithTable({"graph", "dump", "--graph", "decode/2", "--json", File("one_dump.json")},
                        File("one.json")));
  ASSERT_EQ(one.Wait(std::chrono::seconds(60)), 0) << one.stderr_text();
  EXPECT_THAT(one.stdout_text(), HasSubstr("chosen by"));
  const json dumped = json::parse(ReadTextFile(File("one_dump.json")));
  EXPECT_THAT(SchemaErrors(SchemaNamed("graph"), dumped), IsEmpty());
  size_t from_table = 0;
  for (const json& node : dumped["nodes"]) {
    if (node["from_table"] == true) ++from_table;
    EXPECT_EQ(node["from_table"] == true, node["op"] == "linear_native" && node["shape"] == shape);
  }
  EXPECT_GT(from_table, 0u);
}

TEST_F(TuneLinearProgram, EnginesRefuseTablesThatCannotServe) {
  Program tune(Tune({"--model", ShippedModel(), "--out", File("table.json")}));
  ASSERT_EQ(tune.Wait(std::chrono::seconds(120)), 0) << tune.stderr_text();
  const json table = json::parse(ReadTextFile(File("table.json")));
  const auto with = [&](const char* place, json value) {
    json other = table;
    other[json::json_pointer(place)] = std::move(value);
    return other.dump();
  };
  const std::string dtype = table["made_for"]["dtype"];
  const auto entry = [&](const std::string& kernel) { return Layers(dtype, 64, 64, kernel); };
  ExpectRefused("{", "refused.json: linear table");
  ExpectRefused(with("/schema", "reprise-linear-table/2"), "linear table: schema: got");
  ExpectRefused(with("/made_for/device", "another"), "made for device 'another', got '");
  ExpectRefused(with("/layers", entry("reprise_linear_fast")),
                "layers[0].kernels[0].kernel: got \"reprise_linear_fast\", allowed");
  ExpectRefused(with("/layers", entry("reprise_linear_portable_" + dtype)),
                "got kernel reprise_linear_portable_" + dtype);
  Program missing(WithTable({"graph", "list"}, File("none.json")));
  EXPECT_NE(missing.Wait(), 0);
  EXPECT_THAT(missing.stderr_text(), HasSubstr("none.json"));
}

TEST_F(TuneLinearProgram, RefusesWhatCannotBeDoneBeforeItMeasures) {
  struct Refusal {
    std::vector<std::string> arguments;
    int exit_code;
    std::string says;
  };
  const std::vector<std::string> model = {"--model", ShippedModel()};
  const auto with_model = [&](std::vector<std::string> more) {
    more.insert(more.end(), model.begin(), model.end());
    return Tune(more);
  };
  const std::string out = File("table.json");
  const std::vector<Refusal> refusals = {
      {with_model({}), 2, "--out: got nothing, allowed: a file"},
      {with_model({"--out", "-"}), 2, "--out: got \"-\", allowed: a file"},
      {with_model({"--out", "/no/such/dir/t"}), 1, "cannot write \"/no/such/dir/t\""},
      {Tune({"--out", out}), 2, "shapes: got none, allowed: --model DIR"},
      {with_model({"--out", out, "--shape", "8x8"}), 2, "got both a model and --shape"},
      {with_model({"--out", out, "--linear", "portable"}), 2,
       "--linear: got \"portable\", allowed: tuned, row-major, packed"},
      {with_model({"--out", out, "--linear", "packed"}), 1, "which has no matrix units"},
      {with_model({"--out", out, "--rounds", "0"}), 2, "--rounds: got \"0\""},
      {with_model({"--out", out, "--row", "1"}), 2, "did you mean \"--rows\"?"},
  };
  for (const Refusal& refusal : refusals) {
    Program program(refusal.arguments);
    EXPECT_EQ(program.Wait(), refusal.exit_code) << refusal.says;
    EXPECT_THAT(program.stderr_text(), HasSubstr(refusal.says));
    EXPECT_THAT(program.stderr_text(), StartsWith("reprise tune"));
    EXPECT_THAT(program.stdout_text(), IsEmpty());
    EXPECT_FALSE(std::filesystem::exists(out));
  }
}

}  // namespace
}  // namespace reprise::testing
