// SPDX-License-Identifier: Apache-2.0
// `reprise bench linear` as users run it: real output against the schema, numbers that must agree
// with each other, the chart, and what is refused before anything is measured.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/end_to_end/bench_program.h"
#include "tests/end_to_end/program.h"
#include "tests/testing/json_schema.h"
#include "tests/testing/source_dir.h"

namespace reprise::testing {
namespace {

using ::nlohmann::json;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

json Schema() { return SchemaNamed("bench_linear"); }

class BenchLinearProgram : public BenchProgramTest {
 protected:
  static std::vector<std::string> Small(const std::vector<std::string>& more) {
    std::vector<std::string> all = {"bench",     "linear", "--device",          "host",
                                    "--calls",   "3",      "--pool-bytes",      "64KiB",
                                    "--replays", "3",      "--bandwidth-bytes", "1MiB"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static std::vector<std::string> OfModel(const std::vector<std::string>& more) {
    std::vector<std::string> all = Small({"--model", ShippedModel(), "--rows", "1,3"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static std::vector<std::string> OfFixture(const std::string& name,
                                            const std::vector<std::string>& more) {
    std::vector<std::string> all =
        Small({"--model", testing::SourceDir() + "/tests/fixtures/" + name, "--rows", "1,3"});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

// What is checked of every candidate, in all cells.
void ExpectThatAllIsChecked(const json& bench) {
  for (const json& cell : bench["cells"]) {
    for (const json& candidate : cell["candidates"]) {
      ASSERT_NE(candidate["check"], nullptr) << cell["shape"];
      EXPECT_LE(candidate["check"]["worst"], 1.0) << cell["shape"];
    }
  }
}

TEST_F(BenchLinearProgram, WritesWhatTheSchemaDescribes) {
  std::string text;
  const json bench = RunBench(OfModel({"--check", "--candidate", "best,portable"}), &text);
  EXPECT_THAT(SchemaErrors(Schema(), bench), IsEmpty());
  EXPECT_EQ(bench["cells"].size(), 10u);
  EXPECT_EQ(bench["steps"].size(), 4u);
  EXPECT_EQ(bench["bandwidth"]["passes"], 24);  // 8 in each of 3 rounds
  EXPECT_EQ(bench["cells"][0]["candidates"][1]["name"], "portable");
  EXPECT_LE(bench["cells"][0]["candidates"][1]["check"]["worst"], 1.0);
  EXPECT_EQ(bench["shapes"][0]["weight_format"], "bf16");
  for (const char* word : {"byte-llama", "gate_up 1408x256", "of read", "lm_head", "sum us"})
    EXPECT_THAT(text, HasSubstr(word));
}

TEST_F(BenchLinearProgram, FiguresAgreeWithEachOther) {
  const json bench = RunBench(OfModel({"--dtype", "f32"}));
  EXPECT_THAT(SchemaErrors(Schema(), bench), IsEmpty());
  const double read = bench["bandwidth"]["read_bytes_per_s"]["best"];
  std::map<std::string, json> shapes;
  double step_bytes = 0;
  for (const json& shape : bench["shapes"]) {
    shapes[shape["name"]] = shape;
    const double bytes = shape["weight_bytes"];
    EXPECT_EQ(bytes,
              4.0 * shape["out_features"].get<double>() * shape["in_features"].get<double>());
    EXPECT_EQ(shape["calls"], 3);
    EXPECT_GE(shape["cycled_bytes"], bytes);
    step_bytes += bytes * shape["per_step"].get<double>();
  }
  std::map<int, double> sum_us;
  for (const json& cell : bench["cells"]) {
    const json& shape = shapes.at(cell["shape"]);
    const json& best = cell["candidates"][0];
    EXPECT_EQ(best["us"]["count"], 9);  // 3 replays in 3 rounds
    EXPECT_EQ(best["round_us"].size(), 3u);
    EXPECT_EQ(best["check"], nullptr);
    const double us = best["us"]["p50"];
    EXPECT_LE(best["us"]["p10"], us);
    EXPECT_GE(best["us"]["p90"], us);
    const double rate = shape["weight_bytes"].get<double>() / us * 1e6;
    EXPECT_NEAR(best["bytes_per_s"].get<double>(), rate, 1e-6 * rate);
    EXPECT_NEAR(best["share_of_read"].get<double>(), rate / read, 1e-6 * rate / read);
    sum_us[cell["rows"]] += us * shape["per_step"].get<double>();
  }
  ASSERT_EQ(bench["steps"].size(), 2u);
  for (const json& step : bench["steps"]) {
    const double sum = step["sum_us"];
    EXPECT_NEAR(sum, sum_us.at(step["rows"]), 1e-6 * sum);
    EXPECT_EQ(step["weight_bytes"], step_bytes);
    EXPECT_NEAR(step["sum_share_of_read"].get<double>(), step_bytes / sum * 1e6 / read,
                1e-6 * step_bytes / sum * 1e6 / read);
    const double chain = step["chain"]["us"]["p50"];
    EXPECT_NEAR(step["chain"]["share_of_read"].get<double>(), step_bytes / chain * 1e6 / read,
                1e-6 * step_bytes / chain * 1e6 / read);
  }
}

TEST_F(BenchLinearProgram, TimesShapesOfNoModel) {
  const json bench = RunBench(
      Small({"--shape", "48x40,33x7", "--rows", "2", "--check", "--svg", File("bench.svg")}));
  EXPECT_THAT(SchemaErrors(Schema(), bench), IsEmpty());
  EXPECT_EQ(bench["model"], nullptr);
  EXPECT_EQ(bench["dtype"], "bf16");
  EXPECT_EQ(bench["shapes"][1]["name"], "33x7");
  EXPECT_EQ(bench["shapes"][1]["per_step"], nullptr);
  EXPECT_EQ(bench["step_chain"], nullptr);
  EXPECT_THAT(bench["steps"], IsEmpty());
  const std::string svg = ReadTextFile(File("bench.svg"));
  EXPECT_THAT(svg, HasSubstr("33x7 best"));
  EXPECT_THAT(svg, HasSubstr("% of read bandwidth"));
}

TEST_F(BenchLinearProgram, TimesWeightsAsTheModelHasThem) {
  std::string text;
  const std::vector<std::string> both = {"--check", "--candidate", "best,portable"};
  const json fp8 = RunBench(OfFixture("fp8-tensor-tiny", both), &text);
  EXPECT_THAT(SchemaErrors(Schema(), fp8), IsEmpty());
  ExpectThatAllIsChecked(fp8);
  EXPECT_EQ(fp8["dtype"], "bf16");
  const json& qkv = fp8["shapes"][0];
  EXPECT_EQ(qkv["weight_format"], "fp8_e4m3");
  EXPECT_EQ(qkv["group_size"], 128);
  EXPECT_EQ(qkv["weight_bytes"], 128 * 64 + 128 * 4);
  const json& head = fp8["shapes"].back();
  EXPECT_EQ(head["name"], "lm_head");
  EXPECT_EQ(head["weight_format"], "bf16");
  EXPECT_EQ(head["group_size"], nullptr);
  EXPECT_EQ(head["weight_bytes"], 59 * 64 * 2);
  EXPECT_THAT(text, HasSubstr("bf16, weights fp8_e4m3: qkv 128x64, "));
  EXPECT_THAT(text, HasSubstr("; weights bf16: lm_head 59x64"));
  const json int4 = RunBench(OfFixture("int4-awq-tiny", both), &text);
  EXPECT_THAT(SchemaErrors(Schema(), int4), IsEmpty());
  ExpectThatAllIsChecked(int4);
  EXPECT_EQ(int4["shapes"][0]["weight_format"], "int4");
  EXPECT_EQ(int4["shapes"][0]["group_size"], 32);
  EXPECT_EQ(int4["shapes"][0]["weight_bytes"], 128 * 64 / 2 + 128 * 2 * 4);
  EXPECT_THAT(text, HasSubstr("weights int4 in groups of 32: qkv 128x64"));
}

TEST_F(BenchLinearProgram, TimesWeightsAsTheyAreAskedFor) {
  const json dense = RunBench(OfFixture("fp8-tensor-tiny", {"--weights", "dense"}));
  EXPECT_THAT(SchemaErrors(Schema(), dense), IsEmpty());
  EXPECT_EQ(dense["shapes"][0]["weight_format"], "bf16");
  const json coarse = RunBench(OfFixture("int4-awq-tiny", {"--group-size", "64"}));
  EXPECT_EQ(coarse["shapes"][0]["group_size"], 64);
  const std::vector<std::string> all = {"--check", "--candidate", "best,packed,portable"};
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.end(), all.begin(), all.end());
    return RunBench(more);
  };
  const json fp8 = run(OfModel({"--weights", "fp8_e4m3"}));
  EXPECT_THAT(SchemaErrors(Schema(), fp8), IsEmpty());
  ExpectThatAllIsChecked(fp8);
  EXPECT_EQ(fp8["shapes"][0]["weight_format"], "fp8_e4m3");
  EXPECT_EQ(fp8["shapes"].back()["weight_format"], "bf16");
  const json int4 = run(Small({"--shape", "48x192,32x64", "--rows", "2", "--weights", "int4",
                               "--group-size", "64", "--dtype", "f16"}));
  EXPECT_THAT(SchemaErrors(Schema(), int4), IsEmpty());
  ExpectThatAllIsChecked(int4);
  for (const json& shape : int4["shapes"]) {
    EXPECT_EQ(shape["weight_format"], "int4");
    EXPECT_EQ(shape["group_size"], 64);
  }
}

TEST_F(BenchLinearProgram, ComparisonsSayWhereWeightsAreStoredInOtherWays) {
  RunBench(OfFixture("int4-awq-tiny", {"--group-size", "64"}));
  std::filesystem::rename(File("bench.json"), File("coarse.json"));
  RunBench(OfFixture("int4-awq-tiny", {}));
  Program compare({"compare", File("bench.json"), File("coarse.json")});
  // Rounds this short say nothing of speed: either answer is right.
  EXPECT_THAT(compare.Wait(), AnyOf(0, 3)) << compare.stderr_text();
  EXPECT_THAT(compare.stderr_text(), HasSubstr("weight_format differs: int4 in groups of 32, bf16 "
                                               "and int4 in groups of 64, bf16"));
}

TEST_F(BenchLinearProgram, ShowsThatItMeasures) {
  Program watched(OfModel({}), {.terminal_columns = 80});
  EXPECT_EQ(watched.Wait(std::chrono::seconds(120)), 0);
  EXPECT_THAT(watched.terminal().output(), HasSubstr("replays, round 1 of 3"));
  EXPECT_THAT(watched.terminal().screen().text(), Not(HasSubstr("replays, round")));
  EXPECT_EQ(watched.terminal().screen().num_overflows, 0u) << watched.terminal().screen().text();
}

TEST_F(BenchLinearProgram, SaysWhenAFileTakesNothing) {
  Program program(OfModel({"--json", "/dev/full"}));
  EXPECT_EQ(program.Wait(std::chrono::seconds(120)), 1);
  EXPECT_THAT(program.stderr_text(),
              HasSubstr("reprise bench linear: cannot write \"/dev/full\": No space left"));
}

TEST_F(BenchLinearProgram, RefusesWhatCannotBeMeasuredBeforeItMeasures) {
  struct Refusal {
    std::vector<std::string> arguments;
    int exit_code;
    std::string says;
  };
  const std::vector<Refusal> refusals = {
      {Small({}), 2, "shapes: got none, allowed: --model DIR, --preset NAME or --shape"},
      {OfModel({"--shape", "8x8"}), 2, "shapes: got both a model and --shape"},
      {OfModel({"--preset", "qwen3-8b"}), 2, "model: got both --model and --preset"},
      {Small({"--preset", "llama-8b"}), 2, "got \"llama-8b\", allowed: llama-3.1-8b, granite"},
      {Small({"--model", "/no/such/model"}), 1, "/no/such/model"},
      {Small({"--shape", "64"}), 2, "--shape: got \"64\", allowed: <out_features>x<in_features>"},
      {Small({"--shape", "8x8", "--rows", "0"}), 2, "--rows: got \"0\""},
      {Small({"--shape", "8x8", "--candidate", "portble"}), 2, "did you mean \"portable\"?"},
      {Small({"--shape", "8x8", "--dtype", "fp8_e4m3"}), 2, "allowed: auto, bf16, f16, f32"},
      {Small({"--shape", "8x8", "--weights", "fp8"}), 2,
       "--weights: got \"fp8\", allowed: auto, dense, fp8_e4m3, int4"},
      {Small({"--shape", "8x8", "--weights", "int4", "--group-size", "16"}), 2,
       "--group-size: got \"16\", allowed: 32, 64, 128"},
      {Small({"--shape", "8x8", "--group-size", "32"}), 2,
       "group size: got 32 with weights of the data type, allowed: with weights of int4"},
      {OfModel({"--weights", "fp8_e4m3", "--group-size", "64"}), 2,
       "group size: got 64 with weights of fp8_e4m3, allowed: with weights of int4"},
      {Small({"--shape", "8x8", "--svg", "-"}), 2, "--svg: got \"-\", allowed: a file"},
      {Small({"--shape", "8x8", "--json", "/no/such/dir/a.json"}), 1, "cannot write"},
      {Small({"--shape", "16777216x16777216", "--rows", "1"}), 1, "memory: 1 row over "},
      {Small({"--shapes", "8x8"}), 2, "did you mean \"--shape\"?"},
  };
  for (const Refusal& refusal : refusals) {
    Program program(refusal.arguments);
    EXPECT_EQ(program.Wait(), refusal.exit_code) << refusal.says;
    EXPECT_THAT(program.stderr_text(), HasSubstr(refusal.says));
    EXPECT_THAT(program.stderr_text(), StartsWith("reprise bench linear: "));
    EXPECT_THAT(program.stdout_text(), IsEmpty());
  }
}

}  // namespace
}  // namespace reprise::testing
