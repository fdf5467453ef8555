// SPDX-License-Identifier: Apache-2.0
// `reprise bench attention` as users run it: real output against the schema, numbers that must
// agree with each other, the chart, and what is refused before anything is measured.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
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
using ::testing::Not;
using ::testing::StartsWith;

json Schema() { return SchemaNamed("bench_attention"); }

class BenchProgram : public BenchProgramTest {
 protected:
  static std::vector<std::string> Arguments(const std::vector<std::string>& more) {
    std::vector<std::string> all = {"bench",         "attention", "--device",  "host",
                                    "--max-context", "128",       "--replays", "3",
                                    "--pool-bytes",  "64KiB"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static std::vector<std::string> Small(const std::vector<std::string>& more) {
    std::vector<std::string> all = {"--heads", "4",      "--kv-heads", "2",          "--head-dim",
                                    "16",      "--rows", "1,2",        "--contexts", "16,64"};
    all.insert(all.end(), more.begin(), more.end());
    return Arguments(all);
  }
  // Its path.
  std::string WriteFile(const std::string& name, const std::string& text) const {
    const std::string path = directory_.path() + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
};

TEST_F(BenchProgram, WritesWhatTheSchemaDescribes) {
  const json bench = RunBench(
      Small({"--check", "--candidates", "best,portable", "--sustain", "0.02", "--batch",
             "uniform,skewed", "--decode-share", "50,100", "--chunk", "8", "--dtype", "f32"}));
  EXPECT_THAT(SchemaErrors(Schema(), bench), IsEmpty());
  EXPECT_EQ(bench["cells"].size(), 16u);
  EXPECT_EQ(bench["shape"]["heads"], 4);
  EXPECT_EQ(bench["shape"]["dtype"], "f32");
  EXPECT_EQ(bench["settings"]["calls"], nullptr);
  EXPECT_EQ(bench["telemetry"]["source"], nullptr);  // the host reports nothing
  const json& candidate = bench["cells"][0]["candidates"][1];
  EXPECT_EQ(candidate["name"], "portable");
  EXPECT_GE(candidate["check"]["pairs"], 2);
  EXPECT_EQ(candidate["sustained"]["power_w"], nullptr);
}

TEST_F(BenchProgram, MeasuresKvOfEightBits) {
  const json bench = RunBench(Small(
      {"--check", "--candidates", "best,portable", "--dtype", "bf16", "--kv-dtype", "fp8_e4m3"}));
  EXPECT_THAT(SchemaErrors(Schema(), bench), IsEmpty());
  EXPECT_EQ(bench["shape"]["dtype"], "bf16");
  EXPECT_EQ(bench["shape"]["kv_dtype"], "fp8_e4m3");
  // 2 (K, V) * 2 heads * 16 elements of a byte.
  const json& cell = bench["cells"][0];
  EXPECT_EQ(cell["kv_bytes"], cell["seen_tokens"].get<int>() * 64);
  EXPECT_GE(cell["candidates"][0]["check"]["pairs"], 2);
}

TEST_F(BenchProgram, FiguresAgreeWithEachOther) {
  const json bench = RunBench(Small({"--seed", "3"}));
  EXPECT_THAT(SchemaErrors(Schema(), bench), IsEmpty());
  ASSERT_EQ(bench["cells"].size(), 4u);
  EXPECT_EQ(bench["cells"][3]["name"], "b2 x 64");
  for (const json& cell : bench["cells"]) {
    // 2 (K, V) * 2 heads * 16 elements * 2 bytes a token.
    EXPECT_EQ(cell["kv_bytes"], cell["seen_tokens"].get<int>() * 128);
    EXPECT_EQ(cell["rows"].get<size_t>(), cell["lengths"].size());
    EXPECT_GE(cell["cycled_bytes"], cell["kv_bytes"]);
    const json& floor = cell["floor"];
    const json& best = cell["candidates"][0];
    EXPECT_EQ(best["us"]["count"], 9);  // 3 replays in 3 rounds
    EXPECT_EQ(best["round_us"].size(), 3u);
    EXPECT_LE(best["us"]["p10"], best["us"]["p50"]);
    EXPECT_LE(best["us"]["p50"], best["us"]["p90"]);
    const double us = best["us"]["p50"].get<double>();
    EXPECT_NEAR(best["of_floor"].get<double>(), us / floor["us"]["p50"].get<double>(), 1e-6 * us);
    EXPECT_NEAR(best["bytes_per_s"].get<double>(), cell["kv_bytes"].get<double>() / us * 1e6,
                1e-6 * best["bytes_per_s"].get<double>());
    EXPECT_EQ(best["check"], nullptr);
    EXPECT_EQ(best["sustained"], nullptr);
  }
  auto lengths = bench["cells"][3]["lengths"];
  EXPECT_EQ(lengths, json({{63, 1}, {63, 1}}));
}

TEST_F(BenchProgram, TakesHeadsAndWindowOfAModel) {
  const auto model = WriteTinyModel({.architecture = "mistral", .sliding_window = 30},
                                    directory_.path() + "/windowed");
  ASSERT_TRUE(model.ok()) << model.status();
  const json bench = RunBench(
      Arguments({"--model", *model, "--rows", "2", "--contexts", "64", "--calls", "3", "--check"}));
  EXPECT_THAT(SchemaErrors(Schema(), bench), IsEmpty());
  EXPECT_EQ(bench["shape"]["model"], "windowed");
  EXPECT_EQ(bench["shape"]["head_dim"], 8);
  EXPECT_EQ(bench["shape"]["window"], 30);
  EXPECT_EQ(bench["shape"]["dtype"], "f32");
  EXPECT_EQ(bench["cells"][0]["seen_tokens"], 60);
  EXPECT_EQ(bench["cells"][0]["longest"], 64);
  EXPECT_EQ(bench["cells"][0]["calls"], 3);
}

TEST_F(BenchProgram, ClimbsTheLadder) {
  const json bench = RunBench(Small({"--ladder", "--check", "--decode-share", "100,50", "--chunk",
                                     "8", "--svg", File("bench.svg")}));
  EXPECT_THAT(SchemaErrors(Schema(), bench), IsEmpty());
  std::vector<std::string> names;
  for (const json& candidate : bench["candidates"]) {
    names.push_back(candidate["name"]);
    EXPECT_EQ(candidate["between_graphs"], names.back() == "partial-graph");
  }
  EXPECT_THAT(names, ::testing::ElementsAre("naive", "q-blocks", "two-kernels", "tiles", "frozen",
                                            "partial-graph", "best"));
  EXPECT_EQ(bench["candidates"][0]["tree"]["rows"]["max_splits"], 1);
  EXPECT_EQ(bench["candidates"][3]["tree"], nullptr);
  EXPECT_EQ(bench["candidates"][4]["tree"]["rows"]["then"]["leaf"], "decode, as captured");
  for (const json& cell : bench["cells"])
    for (const json& candidate : cell["candidates"]) EXPECT_GT(candidate["us"]["p50"], 0);
  const std::string svg = ReadTextFile(File("bench.svg"));
  for (const std::string& name : names) EXPECT_THAT(svg, HasSubstr(">" + name + "</text>"));
}

constexpr char kTree[] = R"({
  "schema": "reprise-attention-tree/1",
  "rows": {"ask": "visible_tokens", "below": 20,
           "then": {"leaf": "short", "min_split_tokens": 64},
           "else": {"leaf": "long", "min_split_tokens": 16, "split_multiple": 16}},
  "batch": {"leaf": "all"},
  "notes": {"anything": [1, 2]}
})";

TEST_F(BenchProgram, NamesTheLeavesOfATreeThatItIsGiven) {
  const std::string file = WriteFile("tree.json", kTree);
  std::string text;
  const json bench = RunBench(Small({"--tree", file, "--check"}), &text);
  EXPECT_THAT(SchemaErrors(Schema(), bench), IsEmpty());
  EXPECT_EQ(bench["tree"]["file"], file);
  EXPECT_EQ(bench["tree"]["tree"]["rows"]["then"]["leaf"], "short");
  EXPECT_EQ(bench["tree"]["tree"].count("notes"), 0u);
  EXPECT_EQ(bench["cells"][2]["name"], "b2 x 16");
  EXPECT_EQ(bench["cells"][2]["leaves"],
            json({{"batch", "all"},
                  {"rows", {{{"leaf", "short"}, {"rows", 2}}, {{"leaf", "long"}, {"rows", 0}}}}}));
  EXPECT_THAT(text, HasSubstr("row leaves"));
  EXPECT_THAT(text, HasSubstr("2 short"));
  EXPECT_THAT(text, HasSubstr("1 long"));
}

TEST_F(BenchProgram, RefusesTreesBeforeItMeasures) {
  const std::string broken = WriteFile("broken.json", "{\"schema\": ");
  const std::string other =
      WriteFile("other.json", R"({"schema": "reprise-attention-tree/1", "made_for": {"heads": 5},
                        "rows": {"leaf": "a"}, "batch": {"leaf": "b"}})");
  const std::string dealt =
      WriteFile("dealt.json", R"({"schema": "reprise-attention-tree/1", "rows": {"leaf": "a"},
                        "batch": {"leaf": "b", "shares": 7}})");
  const std::string large = WriteFile("large.json", std::string((64 << 10) + 1, ' '));
  const std::vector<std::pair<std::string, std::string>> refusals = {
      {"/no/such/tree.json", "/no/such/tree.json"},
      {directory_.path(), "got a directory, allowed a regular file"},
      {broken, "broken.json: attention tree"},
      {other, "attention tree: made for heads 5, got 4"},
      {dealt, "batch: leaf \"b\": shares is 7; allowed: 0 to 0"},
      {large, "got 65537 bytes, allowed at most 65536"}};
  for (const auto& [file, says] : refusals) {
    Program program(Small({"--tree", file}));
    EXPECT_EQ(program.Wait(), 1) << file;
    EXPECT_THAT(program.stderr_text(), HasSubstr(says));
    EXPECT_THAT(program.stdout_text(), IsEmpty());
  }
}

TEST_F(BenchProgram, DrawsAChartThatAnXmlParserReads) {
  RunBench(Small({"--svg", File("bench.svg")}));
  const std::string svg = ReadTextFile(File("bench.svg"));
  EXPECT_THAT(svg, StartsWith("<?xml"));
  EXPECT_THAT(svg, HasSubstr("page walk (floor)"));
  EXPECT_THAT(svg, HasSubstr("b2 x 64"));
  if (std::system("python3 -c ''") != 0) GTEST_SKIP() << "needs python3 to parse XML";
  const std::string parse =
      "python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' " +
      File("bench.svg");
  EXPECT_EQ(std::system(parse.c_str()), 0);
}

TEST_F(BenchProgram, PrintsTablesForPeopleAndShowsThatItMeasures) {
  Program log(Small({"--check", "--sustain", "0.01"}));
  EXPECT_EQ(log.Wait(std::chrono::seconds(120)), 0) << log.stderr_text();
  for (const char* word :
       {"attention", "4 heads of 16 on 2 KV heads, bf16, blocks of 16",
        "not available: device 'host'", "page walk", "of floor", "plan us", "sustained us"}) {
    EXPECT_THAT(log.stdout_text(), HasSubstr(word));
  }
  EXPECT_THAT(log.stderr_text(), HasSubstr("checked: 4 cells, 1 candidate, worst error "));
  EXPECT_THAT(log.stderr_text(), HasSubstr("measured: round 3 of 3 in "));
  Program watched(Small({}), {.terminal_columns = 80});
  EXPECT_EQ(watched.Wait(std::chrono::seconds(120)), 0);
  EXPECT_THAT(watched.terminal().output(), HasSubstr("replays, round 1 of 3"));
  EXPECT_THAT(watched.terminal().screen().text(), Not(HasSubstr("replays, round")));
  EXPECT_EQ(watched.terminal().screen().num_overflows, 0u) << watched.terminal().screen().text();
}

TEST_F(BenchProgram, AloneShowsWhatCanBeTimed) {
  Program program({"bench"});
  EXPECT_EQ(program.Wait(), 0);
  EXPECT_THAT(program.stdout_text(), HasSubstr("reprise bench"));
  EXPECT_THAT(program.stdout_text(), HasSubstr("Time paged attention alone"));
}

TEST_F(BenchProgram, RefusesWhatCannotBeMeasuredBeforeItMeasures) {
  struct Refusal {
    std::vector<std::string> arguments;
    int exit_code;
    std::string says;
  };
  const std::vector<Refusal> refusals = {
      {Small({"--contexts", "129"}), 2, "--contexts"},  // given twice
      {Arguments({"--rows", "1", "--contexts", "129"}), 1,
       "cell \"b1 x 129\" has a row of 129 tokens, allowed: at most 128 (--max-context)"},
      {Arguments({"--rows", "2", "--contexts", "100", "--decode-share", "50", "--chunk", "29"}), 1,
       "has a row of 129 tokens"},
      {Arguments({"--heads", "5", "--kv-heads", "2"}), 1,
       "heads: got 5, allowed: multiples of the KV heads, 2"},
      {Arguments({"--head-dim", "20"}), 1, "head size: got 20, allowed: multiples of 8"},
      {Arguments({"--preset", "llama-3.1-8b", "--heads", "4"}), 2, "got both a model and --heads"},
      {Arguments({"--preset", "gpt"}), 2, "got \"gpt\", allowed: llama-3.1-8b"},
      {Arguments({"--candidates", "best", "--ladder"}), 2, "got both --ladder and --candidates"},
      {Arguments({"--candidates", "bst"}), 2, "got \"bst\"; did you mean \"best\"?"},
      {Small({"--ladder", "--kv-dtype", "fp8_e4m3"}), 2,
       "candidates: naive has no kernel for KV of 8 bits; allowed: best, alone, splits, portable, "
       "q-blocks, partial-graph"},
      {Small({"--candidates", "best,frozen", "--kv-dtype", "fp8_e5m2"}), 2,
       "candidates: frozen has no kernel for KV of 8 bits; allowed: best, "},
      {Arguments({"--batch", "skew"}), 2, "did you mean \"skewed\"?"},
      {Arguments({"--decode-share", "101"}), 2, "got \"101\""},
      {Arguments({"--chunk", "1"}), 2, "--chunk: got \"1\""},
      {Arguments({"--svg", "-"}), 2, "--svg: got \"-\", allowed: a file"},
      {Small({"--svg", "/no/such/dir/a.svg"}), 1, "cannot write"},
      {Small({"--json", "/no/such/dir/a.json"}), 1, "cannot write"},
      {Arguments({"--standard-cells", "--rows", "1"}), 2,
       "got both --standard-cells and --rows, allowed: one of them"},
      {Arguments({"--standard-cells", "--shared-prefix", "64"}), 2,
       "got both --standard-cells and --shared-prefix, allowed: one of them"},
      {Arguments({"--standard-cells"}), 1, "tokens, allowed: at most 128"},
      {Small({"--shared-prefix", "24"}), 1,
       "cell \"b1 x 16 sharing 24\" has 24, allowed: whole blocks, multiples of 16"},
      {Small({"--shared-prefix", "32"}), 1,
       "cell \"b1 x 16 sharing 32\" has 32 and a row with 15 tokens before its step, allowed: at "
       "most that"},
      {{"bench", "attention", "--pool-bytes", "100TiB"}, 2, "allowed: 1B to 1TiB"},
      {Arguments({"--rows", "1024", "--contexts", "128", "--heads", "4096", "--kv-heads", "4096",
                  "--head-dim", "256"}),
       1, "memory: the cells need "},
      {{"bench", "atention"}, 2, "unknown command \"atention\"; did you mean \"attention\"?"},
      {{"bench", "--rows", "1"}, 2, "unknown argument \"--rows\"; reprise"},
      {{"bench", "attention", "--context", "1"}, 2, "did you mean \"--contexts\"?"},
  };
  for (const Refusal& refusal : refusals) {
    Program program(refusal.arguments);
    EXPECT_EQ(program.Wait(), refusal.exit_code) << refusal.says;
    EXPECT_THAT(program.stderr_text(), HasSubstr(refusal.says));
    EXPECT_THAT(program.stderr_text(), StartsWith("reprise bench"));
    EXPECT_THAT(program.stdout_text(), IsEmpty());
  }
}

}  // namespace
}  // namespace reprise::testing
