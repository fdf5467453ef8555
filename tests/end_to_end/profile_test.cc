// SPDX-License-Identifier: Apache-2.0
// `reprise profile` as users run it: real output against the schema, numbers that must agree with
// each other, and what is refused before anything is measured.
#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/end_to_end/program.h"
#include "tests/testing/json_schema.h"
#include "tests/testing/source_dir.h"

namespace reprise::testing {
namespace {

using ::nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

json Schema() {
  return json::parse(ReadTextFile(testing::SourceDir() + "/docs/profile.schema.json"));
}

class ProfileProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model = WriteTinyModel({}, directory_.path() + "/tiny");
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
  }
  std::vector<std::string> Arguments(const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"profile", "--model",           model_, "--device",
                                    "host",    "--block-size",      "4",    "--max-rows",
                                    "8",       "--warmup",          "2",    "--mixed-buckets",
                                    "16",      "--bandwidth-bytes", "1MiB"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string JsonFile() const { return directory_.path() + "/profile.json"; }
  // Runs, and parses what was written.
  json Profile(const std::vector<std::string>& more, std::string* text = nullptr) {
    std::vector<std::string> arguments = Arguments(more);
    arguments.insert(arguments.end(), {"--json", JsonFile()});
    Program program(arguments);
    EXPECT_EQ(program.Wait(std::chrono::seconds(120)), 0) << program.stderr_text();
    if (text != nullptr) *text = program.stdout_text();
    return json::parse(ReadTextFile(JsonFile()), nullptr, /*allow_exceptions=*/false);
  }
  TemporaryDirectory directory_;
  std::string model_;
};

TEST_F(ProfileProgram, WritesWhatTheSchemaDescribes) {
  const json profile = Profile(
      {"--rows", "1,3", "--contexts", "2,40", "--iterations", "20", "--linear", "portable"});
  EXPECT_THAT(SchemaErrors(Schema(), profile), IsEmpty());
  EXPECT_EQ(profile["settings"]["rows"], json({1, 3}));
  EXPECT_EQ(profile["engine"]["linear"], "portable");
  EXPECT_EQ(profile["telemetry"]["source"], nullptr);  // the host reports nothing
  EXPECT_THAT(profile["telemetry"]["why_none"].get<std::string>(), HasSubstr("'host'"));
  ASSERT_EQ(profile["points"].size(), 4u);
  EXPECT_EQ(profile["points"][0]["graph"], "decode/1");
  EXPECT_EQ(profile["points"][2]["graph"], "decode/4");
  EXPECT_EQ(profile["points"][2]["padding_rows"], 1);
  EXPECT_EQ(profile["points"][2]["clock"]["power_w"], nullptr);
}

TEST_F(ProfileProgram, MeasuresStepsWithPrompts) {
  std::string text;
  const json profile = Profile({"--points", "3@40,3@40+2x5,1x7", "--iterations", "10", "--assert",
                                "p99(3@40+2x5)<100s", "--html", directory_.path() + "/p.html"},
                               &text);
  EXPECT_THAT(SchemaErrors(Schema(), profile), IsEmpty());
  EXPECT_EQ(profile["settings"]["points"], json({"3@40", "3@40+2x5", "1x7"}));
  ASSERT_EQ(profile["points"].size(), 3u);
  const json& mixed = profile["points"][1];
  EXPECT_EQ(mixed["name"], "3@40+2x5");
  EXPECT_EQ(mixed["graph"], "mixed/16");
  EXPECT_EQ(mixed["padding_tokens"], 3);
  EXPECT_EQ(mixed["twin"]["kernels"], 2 * mixed["kernels"].get<int>());
  // Three rows that end at 40 (windows of 6 and of 5 rounds' 2 steps), and two of 5 tokens.
  EXPECT_DOUBLE_EQ(mixed["mean_context"], (3 * 39.5 + 2 * 5) / 5);
  // 2 (K, V) * 2 layers * 16 elements * 4 bytes a token.
  EXPECT_EQ(mixed["bytes"]["kv_written"], 13 * 256);
  EXPECT_EQ(profile["points"][2]["rows"], 0);
  EXPECT_EQ(profile["points"][2]["mean_context"], 7);
  EXPECT_EQ(profile["assertions"].size(), 1u);
  EXPECT_THAT(text, HasSubstr("3 rows of 40 tokens and prompts of 2x5 tokens: mixed/16"));
  Program compare({"compare", JsonFile(), JsonFile()});
  EXPECT_EQ(compare.Wait(), 0) << compare.stderr_text();
  EXPECT_THAT(compare.stdout_text(), HasSubstr("3@40+2x5"));
  Program wrong(Arguments({"--points", "3@40+2x8"}));
  EXPECT_EQ(wrong.Wait(), 1);
  EXPECT_THAT(wrong.stderr_text(), HasSubstr("tokens: got 19 in 3@40+2x8, allowed: 1 to 16"));
  for (const char* option : {"--points", "--recorded-points"}) {
    Program nonsense(Arguments({option, "3"}));
    EXPECT_EQ(nonsense.Wait(), 2) << option;
  }
}

TEST_F(ProfileProgram, MeasuresSizesOfRecordedSteps) {
  const std::string steps = directory_.path() + "/steps.csv";
  std::ofstream(steps) << "rows,tokens,context,steps\n3,3,20,90\n2,9,,30\n";
  std::string text;
  const json profile = Profile(
      {"--recorded", steps, "--recorded-points", "4", "--max-context", "100", "--iterations", "2"},
      &text);
  EXPECT_THAT(SchemaErrors(Schema(), profile), IsEmpty());
  ASSERT_EQ(profile["points"].size(), 2u);
  EXPECT_EQ(profile["points"][0]["name"], "1@100+1x8");  // no row may have 128
  EXPECT_EQ(profile["points"][1]["name"], "3@20");
  EXPECT_EQ(profile["settings"]["recorded"][0]["share"], 0.25);
  EXPECT_EQ(profile["settings"]["recorded"][1], json({{"name", "3@20"}, {"share", 0.75}}));
  EXPECT_THAT(text, HasSubstr("recorded steps: "));
  Program missing(Arguments({"--recorded", steps + ".not"}));
  EXPECT_EQ(missing.Wait(), 1);
  EXPECT_THAT(missing.stderr_text(), HasSubstr("cannot read"));
}

TEST_F(ProfileProgram, TakesSeveralFilesOfRecordedSteps) {
  const std::string one = directory_.path() + "/one.csv", other = directory_.path() + "/other.csv";
  std::ofstream(one) << "rows,context\n3,20\n";
  std::ofstream(other) << "rows,context\n4,24\n";
  const std::vector<std::vector<std::string>> ways = {{"--recorded", one, other},
                                                      {"--recorded=" + one, "--recorded=" + other},
                                                      {"--recorded", one + "," + other}};
  for (std::vector<std::string> arguments : ways) {
    arguments.insert(arguments.end(),
                     {"--rows", "1", "--contexts", "16", "--iterations", "2", "--rounds", "1"});
    const json profile = Profile(arguments);
    ASSERT_EQ(profile["points"].size(), 3u);
    EXPECT_EQ(profile["points"][0]["name"], "1@16");
    EXPECT_EQ(profile["points"][1]["name"], "3@20");
    EXPECT_EQ(profile["points"][2]["name"], "4@24");
  }
}

TEST_F(ProfileProgram, MeasuresRowsOfDifferentContexts) {
  const json profile = Profile({"--points", "3@20..40", "--iterations", "4", "--rounds", "1"});
  EXPECT_THAT(SchemaErrors(Schema(), profile), IsEmpty());
  const json& point = profile["points"][0];
  EXPECT_EQ(point["name"], "3@20..40");
  EXPECT_EQ(point["shortest_context"], 20);
  EXPECT_DOUBLE_EQ(point["mean_context"], 30 - 1.5);  // the last of four steps ends there
  EXPECT_NEAR(point["bytes"]["kv_read"].get<double>(), 3 * 256 * 28.5, 0.5);
}

TEST_F(ProfileProgram, FiguresAgreeWithEachOther) {
  const json profile =
      Profile({"--rows", "2", "--contexts", "40", "--iterations", "20", "--rounds", "1"});
  const json& point = profile["points"][0];
  // Windows of 16 and 4 steps that end at 40: 25..40 and 37..40.
  EXPECT_DOUBLE_EQ(point["mean_context"], (16 * 32.5 + 4 * 38.5) / 20);
  EXPECT_EQ(point["mean_attended"], point["mean_context"]);
  EXPECT_EQ(point["twin"]["kernels"], 2 * point["kernels"].get<int>());
  EXPECT_EQ(point["plain"]["replay_us"]["count"], 20);
  EXPECT_EQ(point["twin"]["replay_us"]["count"], 20);
  // Kernels that nothing but metadata and partial results goes through.
  const std::vector<std::string> without_bytes = {"fetch", "plan", "sample_final", "publish"};
  int calls = 0;
  double stamped = 0, net = 0, share = 0;
  for (const json& op : point["ops"]) {
    const std::string name = op["op"];
    const bool has_none = std::count(without_bytes.begin(), without_bytes.end(), name) != 0;
    EXPECT_EQ(op["read_bytes"].is_null(), has_none) << name;
    EXPECT_EQ(op["written_bytes"].is_null(), has_none) << name;
    calls += op["calls"].get<int>();
    stamped += op["stamped_us"]["mean"].get<double>();
    net += op["net_us"].get<double>();
    share += op["share"].get<double>();
    if (op["op"] == "rms_norm") {
      EXPECT_EQ(op["calls"], 5);  // two a layer, and the last
      EXPECT_EQ(op["net_per_layer_us"], nullptr);
    } else if (op["op"] == "silu_mul") {
      EXPECT_EQ(op["net_per_layer_us"], op["net_per_call_us"]);
    }
  }
  EXPECT_EQ(calls, point["kernels"]);
  EXPECT_NEAR(stamped, point["stamped_span_us"]["mean"].get<double>(), 1e-6 * stamped);
  EXPECT_NEAR(net, point["net_sum_us"].get<double>(), 1e-6 * net);
  EXPECT_NEAR(share, 1.0, 1e-9);
  // The device's part is in the host's.
  EXPECT_LE(point["plain"]["device_us"]["mean"], point["plain"]["replay_us"]["mean"]);
  // 2 (K, V) * 2 layers * 16 elements * 4 bytes a token.
  EXPECT_EQ(point["bytes"]["kv_written"], 2 * 256);
  EXPECT_NEAR(point["bytes"]["kv_read"].get<double>(),
              2 * 256 * point["mean_context"].get<double>(), 0.5);
  const double device_s = point["plain"]["device_us"]["p50"].get<double>() * 1e-6;
  EXPECT_NEAR(point["bytes_per_s"].get<double>(), point["bytes"]["total"].get<double>() / device_s,
              1e-6 * point["bytes_per_s"].get<double>());
}

TEST_F(ProfileProgram, MeasuresWhatPaddingCostsWhereThereIsAny) {
  std::string text;
  const json profile =
      Profile({"--points", "3@40,4@40,3@40+2x5", "--iterations", "20", "--padding"}, &text);
  EXPECT_THAT(SchemaErrors(Schema(), profile), IsEmpty());
  EXPECT_EQ(profile["settings"]["padding"], true);
  EXPECT_EQ(profile["points"][1]["unpadded"], nullptr);  // decode/4 is of that size
  for (const int padded : {0, 2}) {
    const json& point = profile["points"][padded];
    const json& unpadded = point["unpadded"];
    EXPECT_EQ(unpadded["replay_us"]["count"], 20);
    for (const std::string of : {"replay", "device"}) {
      const double plain = point["plain"][of + "_us"]["p50"];
      EXPECT_NEAR(unpadded[of + "_cost_us"].get<double>(),
                  plain - unpadded[of + "_us"]["p50"].get<double>(), 1e-9);
      EXPECT_NEAR(unpadded[of + "_share"].get<double>() * plain,
                  unpadded[of + "_cost_us"].get<double>(), 1e-9);
    }
  }
  EXPECT_EQ(profile["points"][0]["graph"], "decode/4");  // plain steps are as they were
  EXPECT_THAT(text, HasSubstr("without"));
  Profile({"--points", "4@40", "--iterations", "2", "--padding"}, &text);
  EXPECT_THAT(text, HasSubstr("padding: no point has any"));
  Program kernels(Arguments({"--points", "3@40", "--padding", "--decode", "step-kernel"}));
  EXPECT_EQ(kernels.Wait(), 2);
  EXPECT_THAT(kernels.stderr_text(), HasSubstr("--padding: got it with --decode step-kernel"));
}

TEST_F(ProfileProgram, AWindowShortensWhatIsReadAndNotTheContext) {
  const auto model = WriteTinyModel({.architecture = "mistral", .sliding_window = 30},
                                    directory_.path() + "/windowed");
  ASSERT_TRUE(model.ok()) << model.status();
  model_ = *model;
  const json profile =
      Profile({"--rows", "2", "--contexts", "40", "--iterations", "16", "--rounds", "1"});
  EXPECT_THAT(SchemaErrors(Schema(), profile), IsEmpty());
  const json& point = profile["points"][0];
  EXPECT_EQ(point["context"], 40);
  EXPECT_DOUBLE_EQ(point["mean_context"], 32.5);  // 25..40
  EXPECT_DOUBLE_EQ(point["mean_attended"], (25 + 26 + 27 + 28 + 29 + 11 * 30) / 16.0);
  EXPECT_NEAR(point["bytes"]["kv_read"].get<double>(),
              2 * 256 * point["mean_attended"].get<double>(), 0.5);
}

TEST_F(ProfileProgram, SaysWhichRunItIsOf) {
  const json profile = Profile({"--rows", "1", "--contexts", "40", "--iterations", "3"});
  EXPECT_EQ(profile["argv"][1], "profile");
  EXPECT_THAT(profile["date"].get<std::string>(), StartsWith("20"));
  EXPECT_THAT(profile["host"].get<std::string>(), Not(IsEmpty()));
  EXPECT_TRUE(profile.contains("commit"));
  EXPECT_EQ(profile["error"], nullptr);
}

// Every point is measured in every round, and the rounds' steps add up.
TEST_F(ProfileProgram, RoundsShareTheStepsAndTellTheirSpread) {
  const json profile = Profile({"--rows", "1,2", "--contexts", "40", "--iterations", "24"});
  EXPECT_THAT(SchemaErrors(Schema(), profile), IsEmpty());
  EXPECT_EQ(profile["settings"]["rounds"], 5);
  for (const json& point : profile["points"]) {
    EXPECT_EQ(point["plain"]["replay_us"]["count"], 24);
    EXPECT_EQ(point["twin"]["replay_us"]["count"], 24);
    auto rounds = point["round_replay_us"].get<std::vector<double>>();
    ASSERT_EQ(rounds.size(), 5u);
    std::sort(rounds.begin(), rounds.end());
    EXPECT_NEAR(point["spread"].get<double>(), (rounds[4] - rounds[0]) / rounds[2], 1e-9);
    // One round of 4 steps and four of 5, that end at 40.
    EXPECT_NEAR(point["mean_context"].get<double>(), (4 * 38.5 + 20 * 38.0) / 24, 1e-9);
  }
  EXPECT_EQ(Profile({"--rows", "1", "--contexts", "40", "--iterations", "2"})["settings"]["rounds"],
            2);
  EXPECT_EQ(Profile({"--rows", "1", "--contexts", "40", "--rounds", "1"})["points"][0]["spread"],
            nullptr);
}

TEST_F(ProfileProgram, ShowsThatItMeasures) {
  const std::vector<std::string> work = {"--rows", "1,2",          "--contexts",
                                         "100",    "--iterations", "40"};
  Program log(Arguments(work));
  EXPECT_EQ(log.Wait(std::chrono::seconds(120)), 0);
  EXPECT_THAT(log.stderr_text(), HasSubstr("measured: round 1 of 5 in "));
  Program watched(Arguments(work), {.terminal_columns = 80});
  EXPECT_EQ(watched.Wait(std::chrono::seconds(120)), 0);
  EXPECT_THAT(watched.terminal().output(), HasSubstr("measuring bandwidth over 1.00 MiB"));
  EXPECT_THAT(watched.terminal().output(), HasSubstr("steps, round 1 of 5"));
  EXPECT_THAT(watched.terminal().screen().text(), Not(HasSubstr("steps, round")));
}

TEST_F(ProfileProgram, PrintsTablesForPeople) {
  std::string text;
  Profile({"--rows", "2", "--contexts", "100", "--iterations", "5"}, &text);
  EXPECT_THAT(text, StartsWith("model"));
  EXPECT_THAT(text, HasSubstr("\n2 rows of 100 tokens: decode/2, "));
  EXPECT_THAT(text, HasSubstr("linear_native 64x32"));
  EXPECT_THAT(text, HasSubstr("skew of the profiled graph"));
  EXPECT_THAT(text, HasSubstr("replay p50"));
  EXPECT_THAT(text, HasSubstr("p99.9"));
  EXPECT_THAT(text, HasSubstr("replay from"));
  EXPECT_THAT(text, HasSubstr("################################\n"));
  EXPECT_THAT(text, HasSubstr("not available: device 'host'"));
}

TEST_F(ProfileProgram, AssertsBoundsAndTellsByItsExitCode) {
  const std::vector<std::string> work = {"--rows",       "1,2", "--contexts", "40",
                                         "--iterations", "5",   "--json",     JsonFile()};
  const auto with = [&](const std::vector<std::string>& bounds) {
    std::vector<std::string> arguments = work;
    for (const std::string& bound : bounds) arguments.insert(arguments.end(), {"--assert", bound});
    return Arguments(arguments);
  };
  Program holds(with({"p99.9(2@40)<1h", "gap<=1s", "publish<1s"}));
  EXPECT_EQ(holds.Wait(), 0) << holds.stderr_text();
  EXPECT_THAT(holds.stdout_text(), HasSubstr("holds"));
  const json held = json::parse(ReadTextFile(JsonFile()));
  EXPECT_THAT(SchemaErrors(Schema(), held), IsEmpty());
  ASSERT_EQ(held["assertions"].size(), 4u);  // publish is in both points
  EXPECT_EQ(held["assertions"][0]["value_us"], held["points"][1]["plain"]["replay_us"]["p99_9"]);
  Program broken(with({"replay<1ns", "gap<1s", "mean(launch,1@40)<=0"}));
  EXPECT_EQ(broken.Wait(), 3);
  for (const char* line :
       {"reprise profile: replay<1ns does not hold: ", " at 2@40\n",
        "reprise profile: mean(launch,1@40)<=0 does not hold: ", "3 of 4 assertions do not hold"})
    EXPECT_THAT(broken.stderr_text(), HasSubstr(line));
  const json written = json::parse(ReadTextFile(JsonFile()));
  EXPECT_EQ(written["assertions"][0]["holds"], false);
  EXPECT_EQ(written["error"], nullptr);
}

TEST_F(ProfileProgram, FailsWithoutTheTracesThatAreAskedFor) {
  const auto fails = [this](std::vector<std::string> more, const char* says) {
    std::vector<std::string> arguments = {"--rows", "1", "--contexts", "40"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Program program(Arguments(arguments));
    EXPECT_EQ(program.Wait(), 1) << says;
    EXPECT_THAT(program.stderr_text(), HasSubstr(says));
    EXPECT_THAT(program.stdout_text(), IsEmpty());
  };
  fails({"--cupti", "/no/such/cupti.so"},
        "no kernels can be traced: device 'host' has nothing that traces kernels");
  fails({"--cupti", "off", "--assert", "idle<1s"}, "no kernels can be traced: --cupti off");
}

TEST_F(ProfileProgram, RefusesAssertionsBeforeItMeasures) {
  struct Refusal {
    std::string bound, says;
  };
  const std::vector<Refusal> refusals = {
      {"p99(1@40)>5ms", "--assert: got \"p99(1@40)>5ms\", allowed: FIGURE<DURATION"},
      {"p99(1@41)<5ms", "point: got \"1@41\", allowed: 1@40, which are measured"},
      {"p95(1@40)<5ms",
       "figure: got \"p95\", allowed: replay, device, launch, outside, gap, idle; a "
       "kernel: fetch, plan, "},
  };
  for (const Refusal& refusal : refusals) {
    Program program(Arguments({"--rows", "1", "--contexts", "40", "--assert", refusal.bound}));
    EXPECT_EQ(program.Wait(), 2) << refusal.says;
    EXPECT_THAT(program.stderr_text(), HasSubstr(refusal.says));
    EXPECT_THAT(program.stdout_text(), IsEmpty());
  }
}

TEST_F(ProfileProgram, ShippedModelRunsWithItsLongestContext) {
  Program program({"profile", "--model", ShippedModel(), "--device", "host", "--rows", "1",
                   "--contexts", "2k", "--iterations", "3", "--warmup", "0", "--bandwidth-bytes",
                   "8MiB"});
  EXPECT_EQ(program.Wait(std::chrono::seconds(120)), 0) << program.stderr_text();
  EXPECT_THAT(program.stdout_text(), HasSubstr("1 row of 2,048 tokens: decode/1, "));
}

TEST_F(ProfileProgram, RefusesPointsThatDoNotFitBeforeItMeasures) {
  struct Refusal {
    std::vector<std::string> arguments;
    std::string says;
  };
  const std::vector<Refusal> refusals = {
      {{"--rows", "1", "--contexts", "257"}, "context: got 257 tokens, allowed: 2 to 256"},
      {{"--rows", "1", "--contexts", "40,1"}, "context: got 1 tokens, allowed: 2 to 256"},
      {{"--rows", "1,9", "--contexts", "40"}, "rows: got 9, allowed: 1 to 8"},
      {{"--rows", "3", "--contexts", "40", "--decode-buckets", "2"},
       "rows: got 3, allowed: 1 to 2, the largest decode bucket"},
      {{"--rows", "1,2", "--contexts", "40", "--kv-cache", "16KiB"},
       "2 rows of 40 tokens need 20 blocks of 4 tokens; the pool has 15"},
      {{"--contexts", "40", "--kv-cache", "1KiB", "--rows", "1"}, "KV pool"},
      {{"--rows", "1", "--contexts", "40", "--json", "/no/such/dir/a.json"}, "cannot write"},
  };
  for (const Refusal& refusal : refusals) {
    Program program(Arguments(refusal.arguments));
    EXPECT_EQ(program.Wait(), 1) << refusal.says;
    EXPECT_THAT(program.stderr_text(), HasSubstr(refusal.says));
    EXPECT_THAT(program.stdout_text(), IsEmpty());
  }
}

TEST(JsonSchema, RefusesDocumentsThatAreWrong) {
  const json schema = Schema();
  EXPECT_THAT(SchemaErrors(schema, json::object()), Not(IsEmpty()));
  const auto errors = [](const char* rules, const char* value) {
    return SchemaErrors(json::parse(rules), json::parse(value)).size();
  };
  EXPECT_EQ(errors(R"({"type": "integer", "minimum": 1})", "1"), 0u);
  EXPECT_EQ(errors(R"({"type": "integer", "minimum": 1})", "0"), 1u);
  EXPECT_EQ(errors(R"({"type": "integer", "maximum": 1})", "2"), 1u);
  EXPECT_EQ(errors(R"({"type": "integer"})", "1.5"), 1u);
  EXPECT_EQ(errors(R"({"type": ["number", "null"]})", "null"), 0u);
  EXPECT_EQ(errors(R"({"type": ["number", "null"]})", "\"1\""), 1u);
  EXPECT_EQ(errors(R"({"const": "a"})", "\"b\""), 1u);
  EXPECT_EQ(errors(R"({"enum": ["a", "b"]})", "\"b\""), 0u);
  EXPECT_EQ(errors(R"({"enum": ["a", "b"]})", "\"c\""), 1u);
  EXPECT_EQ(errors(R"({"items": {"type": "string"}, "minItems": 1})", "[]"), 1u);
  EXPECT_EQ(errors(R"({"items": {"type": "string"}})", R"(["a", 1, 2])"), 2u);
  EXPECT_EQ(errors(R"({"required": ["a"], "properties": {"a": {"type": "null"}}})", "{}"), 1u);
  EXPECT_EQ(errors(R"({"properties": {"a": {}}, "additionalProperties": false})", R"({"b": 1})"),
            1u);
  EXPECT_EQ(errors(R"({"$ref": "#/$defs/x", "$defs": {"x": {"type": "string"}}})", "1"), 1u);
  EXPECT_EQ(errors(R"({"$ref": "#/$defs/y", "$defs": {}})", "1"), 1u);
  EXPECT_EQ(errors(R"({"pattern": "a"})", "\"a\""), 1u);  // unknown rules do not pass
}

}  // namespace
}  // namespace reprise::testing
