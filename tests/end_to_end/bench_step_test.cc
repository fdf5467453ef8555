// SPDX-License-Identifier: Apache-2.0
// `reprise bench step` as users run it: real output against the schema, numbers that must agree
// with each other, the chart, and what is refused before anything is measured.
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
using ::testing::Not;
using ::testing::StartsWith;

json Schema() { return SchemaNamed("bench_step"); }

class BenchStepProgram : public BenchProgramTest {
 protected:
  void SetUp() override { UseModel({}); }
  void UseModel(const TinyModelOptions& options) {
    const auto model = WriteTinyModel(options, directory_.path() + "/tiny-" + options.architecture);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
  }
  std::vector<std::string> Small(const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"bench",     "step", "--model",           model_,
                                    "--device",  "host", "--block-size",      "4",
                                    "--warmup",  "2",    "--bandwidth-bytes", "1MiB",
                                    "--replays", "20",   "--mixed-buckets",   "16"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  json Bench(const std::vector<std::string>& more, std::string* text = nullptr) {
    return RunBench(Small(more), text);
  }
  std::string model_;
};

TEST_F(BenchStepProgram, WritesWhatTheSchemaDescribes) {
  std::string text;
  const json bench = Bench({"--cells", "1@16,3@40", "--seconds", "0.05", "--sampling", "penalised",
                            "--svg", File("bench.svg")},
                           &text);
  EXPECT_THAT(SchemaErrors(Schema(), bench), IsEmpty());
  EXPECT_EQ(bench["settings"]["sampling"]["name"], "penalised");
  EXPECT_EQ(bench["telemetry"]["source"], nullptr);  // the host reports nothing
  ASSERT_EQ(bench["cells"].size(), 2u);
  const json& cell = bench["cells"][1];
  EXPECT_EQ(cell["name"], "3@40");
  // As in an engine of any number of rows.
  EXPECT_EQ(cell["graph"], "decode/4");
  EXPECT_EQ(cell["padding_rows"], 1);
  EXPECT_GE(cell["sustained"]["seconds"], 0.05);
  EXPECT_EQ(cell["sustained"]["energy_per_token_j"], nullptr);
  for (const char* word : {"sampling", "penalised: ", "not available: device 'host'", "of floor",
                           "tokens/s", "back to back ms", "mJ/token"})
    EXPECT_THAT(text, HasSubstr(word));
  const std::string svg = ReadTextFile(File("bench.svg"));
  for (const char* word : {">3@40</text>", ">floor</text>", ">device</text>", ">wall</text>"})
    EXPECT_THAT(svg, HasSubstr(word));
}

TEST_F(BenchStepProgram, FiguresAgreeWithEachOther) {
  const json bench = Bench({"--cells", "1@16,2@40", "--seconds", "0.02"});
  EXPECT_THAT(SchemaErrors(Schema(), bench), IsEmpty());
  const double read = bench["bandwidth"]["read_bytes_per_s"]["best"];
  EXPECT_EQ(bench["bandwidth"]["passes"], 24);  // 8 in each of 3 rounds
  for (const json& cell : bench["cells"]) {
    const double rows = cell["rows"], context = cell["mean_context"];
    EXPECT_EQ(cell["device"]["us"]["count"], 60);  // 20 steps in 3 rounds
    EXPECT_EQ(cell["wall"]["round_us"].size(), 3u);
    // 2 (K, V) * 2 heads * 8 elements * 4 bytes * 2 layers a token.
    EXPECT_NEAR(cell["bytes"]["kv_read"].get<double>(), rows * context * 256, 1.0);
    const double bytes =
        cell["bytes"]["weights"].get<double>() + cell["bytes"]["kv_read"].get<double>();
    const double floor = bytes / read * 1e6;
    EXPECT_NEAR(cell["floor_us"].get<double>(), floor, 1e-6 * floor);
    const double device = cell["device"]["us"]["p50"], wall = cell["wall"]["us"]["p50"];
    EXPECT_NEAR(cell["share_of_floor"].get<double>(), floor / device, 1e-6 * floor / device);
    EXPECT_NEAR(cell["wall_share_of_floor"].get<double>(), floor / wall, 1e-6 * floor / wall);
    EXPECT_NEAR(cell["tokens_per_s"].get<double>(), rows / wall * 1e6, 1e-6 * rows / wall * 1e6);
    const json& sustained = cell["sustained"];
    const double step = sustained["step_us"];
    EXPECT_NEAR(step, sustained["seconds"].get<double>() * 1e6 / sustained["steps"].get<double>(),
                1e-6 * step);
    EXPECT_NEAR(sustained["share_of_floor"].get<double>(),
                sustained["floor_us"].get<double>() / step, 1e-6);
    EXPECT_NEAR(sustained["tokens_per_s"].get<double>(), rows * 1e6 / step,
                1e-6 * rows * 1e6 / step);
  }
  // 15 steps from 2 to 16 tokens and 5 from 12 to 16.
  EXPECT_DOUBLE_EQ(bench["cells"][0]["mean_context"], (15 * 9.0 + 5 * 14.0) / 20);
}

TEST_F(BenchStepProgram, AWindowShortensWhatIsReadAndNotTheContext) {
  UseModel({.architecture = "mistral", .sliding_window = 10});
  const json bench = Bench({"--cells", "1@64"});
  EXPECT_THAT(SchemaErrors(Schema(), bench), IsEmpty());
  EXPECT_GT(bench["cells"][0]["mean_context"], 55);
  EXPECT_EQ(bench["cells"][0]["mean_attended"], 10);
  EXPECT_EQ(bench["cells"][0]["bytes"]["kv_read"], 10 * 256);
}

TEST_F(BenchStepProgram, ShowsThatItMeasures) {
  Program watched(Small({"--cells", "1@16,3@40"}), {.terminal_columns = 80});
  EXPECT_EQ(watched.Wait(std::chrono::seconds(120)), 0);
  EXPECT_THAT(watched.terminal().output(), HasSubstr("steps, round 1 of 3"));
  EXPECT_THAT(watched.terminal().screen().text(), Not(HasSubstr("steps, round")));
  EXPECT_EQ(watched.terminal().screen().num_overflows, 0u) << watched.terminal().screen().text();
}

TEST_F(BenchStepProgram, SaysWhenAFileTakesNothing) {
  Program program(Small({"--cells", "1@16", "--json", "/dev/full"}));
  EXPECT_EQ(program.Wait(std::chrono::seconds(120)), 1);
  EXPECT_THAT(program.stderr_text(),
              HasSubstr("reprise bench step: cannot write \"/dev/full\": No space left"));
}

TEST_F(BenchStepProgram, RefusesWhatCannotBeMeasuredBeforeItMeasures) {
  struct Refusal {
    std::vector<std::string> arguments;
    int exit_code;
    std::string says;
  };
  const std::vector<Refusal> refusals = {
      {{"bench", "step"}, 2, "model: got none, allowed: --model DIR or --preset NAME"},
      {{"bench", "step", "--preset", "llama-8b"}, 2, "got \"llama-8b\", allowed: llama-3.1-8b"},
      {Small({"--preset", "qwen3-8b"}), 2, "model: got both --model and --preset"},
      {Small({"--cells", "0@16"}), 2, "--cells: got \"0@16\", allowed: <rows>@<context>"},
      {Small({"--cells", "16"}), 2, "--cells: got \"16\", allowed: <rows>@<context>"},
      {Small({"--cells", "1@16,1@16"}), 2, "got \"1@16\" twice"},
      {Small({"--cells", "1@257"}), 1, "context: got 257 tokens, allowed: 2 to 256"},
      {Small({}), 1, "context: got 512 tokens, allowed: 2 to 256"},
      {Small({"--cells", "3@16", "--max-rows", "2"}), 1, "rows: got 3, allowed: 1 to 2"},
      {Small({"--cells", "4@256", "--kv-cache", "64KiB"}), 1,
       "4 rows of 256 tokens need 256 blocks of 4 tokens; the pool has 63 (--kv-cache)"},
      {Small({"--cells", "1@16", "--sampling", "top_p"}), 2, "did you mean \"top-p\"?"},
      {Small({"--cells", "1@16", "--poison"}), 2, "--poison: steps need contexts of numbers"},
      {Small({"--cells", "1@16", "--svg", "-"}), 2, "--svg: got \"-\", allowed: a file"},
      {Small({"--cells", "1@16", "--json", "/no/such/dir/a.json"}), 1, "cannot write"},
      {Small({"--cells", "1@16", "--no-adjust-logits", "--sampling", "penalised"}), 1, "penalt"},
      {Small({"--cell", "1@16"}), 2, "did you mean \"--cells\"?"},
  };
  for (const Refusal& refusal : refusals) {
    Program program(refusal.arguments);
    EXPECT_EQ(program.Wait(), refusal.exit_code) << refusal.says;
    EXPECT_THAT(program.stderr_text(), HasSubstr(refusal.says));
    EXPECT_THAT(program.stderr_text(), HasSubstr("reprise bench step: "));
    EXPECT_THAT(program.stdout_text(), Not(HasSubstr("of floor")));
  }
}

TEST_F(BenchStepProgram, SaysWhenACellDoesNotFitIntoMemory) {
  UseModel({.max_position_embeddings = 1 << 20});
  // 1 TiB of KV.
  Program program({"bench", "step", "--model", model_, "--device", "host", "--block-size", "1024",
                   "--mixed-buckets", "16", "--cells", "4096@1m"});
  EXPECT_EQ(program.Wait(), 1);
  EXPECT_THAT(program.stderr_text(),
              HasSubstr("reprise bench step: memory: the model's weights and 1.00 TiB of KV, of "
                        "4096@1048576 the most: host: "));
  EXPECT_THAT(program.stdout_text(), IsEmpty());
}

}  // namespace
}  // namespace reprise::testing
