// SPDX-License-Identifier: Apache-2.0
// The command line as users meet it: help, version, and what wrong usage and failures say. A
// refusal is one line on stderr that names the command, and an exit code: 2 for wrong usage, 1 for
// a failure.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/end_to_end/program.h"

namespace reprise::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

struct Refusal {
  std::vector<std::string> arguments;
  std::vector<std::string> says;
};

void ExpectRefusal(const Refusal& refusal, int exit_code) {
  std::string line = "reprise";
  for (const std::string& argument : refusal.arguments) line += " " + argument;
  SCOPED_TRACE(line);
  Program program(refusal.arguments);
  EXPECT_EQ(program.Wait(), exit_code);
  EXPECT_THAT(program.stdout_text(), IsEmpty());
  const std::string error = program.stderr_text();
  for (const std::string& text : refusal.says) EXPECT_THAT(error, HasSubstr(text));
}

void ExpectUsageError(const Refusal& refusal) {
  ExpectRefusal(refusal, 2);
  Program program(refusal.arguments);
  program.Wait();
  const std::string error = program.stderr_text();
  EXPECT_THAT(error, StartsWith("reprise"));
  EXPECT_THAT(error, HasSubstr("--help)"));
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 1) << error;
  // The option says what it is about.
  EXPECT_THAT(error, Not(ContainsRegex("--[a-z-]+: [a-z ]+: got")));
}

TEST(CommandLine, HelpOfEveryCommandShowsExamples) {
  for (const std::string command : {"",        "serve",          "sched",       "run",
                                    "health",  "sessions",       "reload",      "tree",
                                    "profile", "report",         "compare",     "graph",
                                    "advise",  "check",          "bench",       "bench attention",
                                    "tune",    "tune attention", "tune linear", "completion",
                                    "man"}) {
    std::vector<std::string> arguments = absl::StrSplit(command, ' ', absl::SkipEmpty());
    arguments.emplace_back("--help");
    Program program(arguments);
    EXPECT_EQ(program.Wait(), 0);
    EXPECT_THAT(program.stdout_text(), HasSubstr("Examples:\n  reprise " + command)) << command;
  }
}

TEST(CommandLine, HelpIsACommandToo) {
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{}, {"run"}, {"profile"}, {"bench", "attention"}}) {
    std::vector<std::string> by_command = command;
    by_command.insert(by_command.begin(), "help");
    std::vector<std::string> by_option = command;
    by_option.emplace_back("--help");
    Program program(by_command);
    Program option(by_option);
    EXPECT_EQ(program.Wait(), 0);
    EXPECT_EQ(option.Wait(), 0);
    EXPECT_THAT(program.stdout_text(), HasSubstr("Examples:"));
    EXPECT_EQ(program.stdout_text(), option.stdout_text());
  }
}

// Nothing that was asked for was delivered.
TEST(CommandLine, AStdoutThatTakesNothingIsAFailure) {
  const std::vector<std::vector<std::string>> commands = {
      {"--help"},
      {"run", "--help"},
      {"--version"},
      {"run", "--model", ShippedModel(), "--device", "host", "--prompt", "x", "--max-new-tokens",
       "2"},
      {"run", "--model", ShippedModel(), "--device", "host", "--prompt", "x", "--max-new-tokens",
       "2", "--quiet", "--json", "-"},
      {"profile", "--model", ShippedModel(), "--device", "host", "--rows", "1", "--contexts", "16",
       "--iterations", "2", "--warmup", "0", "--bandwidth-bytes", "1MiB"},
  };
  for (const std::vector<std::string>& command : commands) {
    Program program(command, {.stdout_path = "/dev/full"});
    EXPECT_EQ(program.Wait(), 1) << command[0];
    EXPECT_THAT(program.stderr_text(),
                HasSubstr("cannot write to stdout: No space left on device"));
  }
}

TEST(CommandLine, JsonGoesToStdoutAloneAndLeavesTheTextToStderr) {
  Program program({"run", "--model", ShippedModel(), "--device", "host", "--prompt", "You may",
                   "--max-new-tokens", "8", "--json", "-"});
  EXPECT_EQ(program.Wait(), 0);
  const auto json = nlohmann::json::parse(program.stdout_text(), nullptr, false);
  EXPECT_EQ(json["requests"][0]["tokens"].size(), 8u) << program.stdout_text();
  EXPECT_THAT(program.stderr_text(), HasSubstr("TTFT"));
  EXPECT_THAT(program.stderr_text(), HasSubstr("You may"));
  EXPECT_FALSE(std::filesystem::exists("-"));
}

// Enough to run it again, and to know what ran.
TEST(CommandLine, JsonSaysWhichRunItIsOf) {
  Program program({"run", "--model", ShippedModel(), "--device", "host", "--prompt", "You may",
                   "--max-new-tokens", "1", "--quiet", "--json", "-"});
  EXPECT_EQ(program.Wait(), 0);
  const auto json = nlohmann::json::parse(program.stdout_text(), nullptr, false);
  ASSERT_TRUE(json.is_object()) << program.stdout_text();
  EXPECT_EQ(json["command"], "run");
  EXPECT_EQ(json["argv"].size(), 13u);
  EXPECT_EQ(json["argv"][1], "run");
  EXPECT_THAT(json["date"].get<std::string>(),
              ContainsRegex("^20[0-9][0-9]-[0-9]+-[0-9]+T[0-9]+:[0-9]+:[0-9]+Z$"));
  EXPECT_THAT(json["host"].get<std::string>(), Not(IsEmpty()));
  EXPECT_TRUE(json["commit"].is_null() || json["commit"].get<std::string>().size() >= 40);
  EXPECT_EQ(json["error"], nullptr);
}

// One token has no time between two.
TEST(CommandLine, WhatWasNeverMeasuredIsADash) {
  Program program({"run", "--model", ShippedModel(), "--device", "host", "--prompt", "You may",
                   "--max-new-tokens", "1", "--json", "-"});
  EXPECT_EQ(program.Wait(), 0);
  EXPECT_THAT(program.stderr_text(), ContainsRegex("\nTPOT +- +- +- +-\n"));
  const auto json = nlohmann::json::parse(program.stdout_text(), nullptr, false);
  EXPECT_EQ(json["figures"]["itl_ms"]["count"], 0);
  EXPECT_EQ(json["figures"]["itl_ms"]["p50"], nullptr);
}

TEST(CommandLine, TokensWithoutATokenizerAreShownAsIdsAndThatIsSaid) {
  TemporaryDirectory directory;
  const auto model = WriteTinyModel({}, directory.path() + "/tiny");
  ASSERT_TRUE(model.ok()) << model.status();
  Program program({"run", "--model", *model, "--device", "host", "--prompt-tokens", "5,6,7",
                   "--max-new-tokens", "3", "--ignore-eos"});
  EXPECT_EQ(program.Wait(), 0);
  EXPECT_THAT(program.stdout_text(), ContainsRegex("^[0-9]+ [0-9]+ [0-9]+ \n"));
  EXPECT_THAT(program.stderr_text(), HasSubstr("tokens are shown as ids"));
}

TEST(CommandLine, VersionNamesTheDevicesOfThisBuild) {
  Program program({"--version"});
  EXPECT_EQ(program.Wait(), 0);
  EXPECT_THAT(program.stdout_text(), StartsWith("reprise " REPRISE_VERSION " ("));
  EXPECT_THAT(program.stdout_text(), HasSubstr("host"));
}

TEST(CommandLine, WrongUsageIsOneLineAndExitCode2) {
  const std::vector<Refusal> refusals = {
      {{}, {"reprise: "}},
      {{"bogus"},
       {"unknown command \"bogus\"",
        "serve, sched, run, health, top, sessions, reload, tree, replay, profile, report, "
        "compare, graph, advise, bench, tune, check, completion, man, help"}},
      {{"serve", "--bogus", "3"}, {"reprise serve: unknown argument \"--bogus\" (see"}},
      {{"srve"}, {"unknown command \"srve\"; did you mean \"serve\"?"}},
      {{"help", "srve"}, {"unknown command \"srve\"; did you mean \"serve\"?"}},
      {{"serve", "--modle", "a"}, {"\"--modle\"; did you mean \"--model\"?"}},
      {{"run", "--random-prompt=4"}, {"did you mean \"--random-prompts\"?"}},
      {{"run", "--max-new", "4"}, {"did you mean \"--max-new-tokens\"?"}},
      {{"run", "--requests", "4"}, {"unknown argument \"--requests\"; reprise sched has it"}},
      {{"serve"}, {"--model DIR or --preset NAME"}},
      {{"serve", "--model", "a", "--preset", "llama-3.1-8b"}, {"both --model and --preset"}},
      {{"serve", "--preset", "gpt"}, {"got \"gpt\", allowed: llama-3.1-8b"}},
      {{"serve", "--model"}, {"--model"}},
      {{"serve", "--model", "a", "--kv-cache", "4G"}, {"--kv-cache", "got \"4G\"", "GiB"}},
      {{"serve", "--model", "a", "--max-rows", "0"}, {"got \"0\"", "from 1 to"}},
      {{"serve", "--model", "a", "--decode-buckets", "1,x"}, {"--decode-buckets", "got \"x\""}},
      {{"serve", "--model", "a", "--device", "tpu"}, {"got \"tpu\"", "cuda:N, hip, hip:N"}},
      {{"run", "--model", "a", "--prompt", "x", "--device", "hip0"}, {"got \"hip0\""}},
      {{"run", "--model", "a", "--prompt", "x", "--device", "hip:x"}, {"got \"hip:x\""}},
      {{"serve", "--model", "a", "--dtype", "int8"}, {"got \"int8\"", "bf16"}},
      {{"serve", "--model", "a", "--kv-dtype", "fp8"},
       {"--kv-dtype: got \"fp8\", allowed: auto, bf16, f16, f32, fp8_e4m3, fp8_e5m2"}},
      {{"serve", "--model", "a", "--linear", "fast"},
       {"got \"fast\"", "tuned, row-major, packed, portable"}},
      {{"serve", "--model", "a", "--listen", "here"}, {"got \"here\"", "unix:/path"}},
      {{"serve", "--model", "a", "--drain-timeout", "10"}, {"got \"10\"", "30s"}},
      {{"serve", "--model", "a", "--max-message", "1B"}, {"got \"1B\"", "1KiB to 1GiB"}},
      {{"serve", "--model", "a", "--max-steps-per-request", "33"}, {"got \"33\"", "from 1 to 32"}},
      {{"run", "--model", "a", "--steps-per-request", "0"}, {"got \"0\"", "from 1 to 32"}},
      {{"serve", "--model", "a", "--max-draft-tokens", "65536"},
       {"got \"65536\"", "from 0 to 65535"}},
      {{"sched", "--prompt", "x", "--draft", "model"}, {"got \"model\"", "ngram:N,K"}},
      {{"run", "--model", "a"}, {"prompts: got none"}},
      {{"run", "--model", "a", "--prompt", "x", "--random-prompts", "4"}, {"several kinds"}},
      {{"run", "--model", "a", "--random-prompts", "4..x"}, {"--random-prompts: got \"x\""}},
      {{"sched", "--prompt", "x", "--random-prompts", "4"}, {"several kinds"}},
      {{"run", "--model", "a", "--prompt", "x", "--temperature", "nan"}, {"got \"nan\""}},
      {{"run", "--model", "a", "--prompt-lengths", "9..3"}, {"got \"3\""}},
      {{"run", "--model", "a", "--prompt", "x", "--stop", ""},
       {"--stop: got \"\", allowed: a text of at least one byte"}},
      {{"run", "--model", "a", "--prompt", "x", "--top-p", "1.5"}, {"--top-p", "got \"1.5\""}},
      {{"run", "--model", "a", "--prompt", "x", "--logit-bias", "5"}, {"ID:NUMBER"}},
      {{"run", "--model", "a", "--prompt", "x", "--logit-bias", "5:x"}, {"got \"x\""}},
      {{"run", "--model", "a", "--prompt", "x", "--logprobs", "33"}, {"from 0 to 32"}},
      {{"run", "--model", "a", "--prompt", "x", "--stop-token", "-1"},
       {"--stop-token: got \"-1\", allowed: a whole number from 0"}},
      {{"run", "--model", "a", "--prompt", "x", "--bandwidth", "4.7TB"}, {"got \"4.7TB\"", "TB/s"}},
      {{"run", "--model", "a", "--prompts-file", "a", "--prompt-tokens-file", "b"},
       {"several kinds", "--prompt-tokens-file"}},
      {{"run", "--model", "a", "--prompts-file", ""}, {"--prompts-file: got \"\", allowed: its"}},
      {{"run", "--model", "a", "--prompt", "x", "--json", "-", "--json-lines", "-"},
       {"--json-lines: got \"-\", and so does --json, allowed: one of them"}},
      {{"run", "--model", "a", "--prompt", "x", "--json", "o", "--json-lines", "./o"},
       {"--json-lines: got \"./o\", and so does --json, allowed: another file"}},
      {{"run", "--model", "a", "--prompts-file", "p", "--json", "p"},
       {"--json: got \"p\", which is read (--prompts-file), allowed: another file"}},
      {{"sched", "--arrivals", "t", "--svg", "t"},
       {"--svg: got \"t\", which is read (--arrivals)"}},
      {{"serve", "--config", "c", "--access-log", "c"}, {"\"c\", which is read (--config)"}},
      {{"replay", "a", "b", "--json", "b"}, {"--json: got \"b\", which is read (FILE)"}},
      {{"advise", "a", "--profile", "p", "--json", "p"}, {"which is read (--profile)"}},
      {{"check", "a", "--reference", "r", "--json", "r"}, {"which is read (--reference)"}},
      {{"health", "--token-file", "t", "--json", "t"}, {"which is read (--token-file)"}},
      {{"bench", "linear", "--json", "z", "--svg", "z"}, {"--svg: got \"z\", and so does --json"}},
      {{"bench", "attention", "--tree", "t", "--json", "t"}, {"which is read (--tree)"}},
      {{"tune", "attention", "--out", "z", "--journal", "z"},
       {"--journal: got \"z\", and so does --out"}},
      {{"completion"}, {"SHELL is required"}},
      {{"sched"}, {"prompts: got none", "--demo"}},
      {{"sched", "--demo", "--address", "host"}, {"got \"host\"", "HOST:PORT"}},
      {{"sched", "--prompt", "x", "--arrivals", "fixed"}, {"--rate"}},
      {{"sched", "--demo", "--requests", "-3"}, {"got \"-3\""}},
      {{"health", "--wait", "soon"}, {"got \"soon\"", "500ms or 30s"}},
      {{"profile"}, {"--model DIR or --preset NAME"}},
      {{"profile", "--preset", "gpt"}, {"got \"gpt\", allowed: llama-3.1-8b"}},
      {{"profile", "--model", "a", "--contexts", "1k,8q"}, {"--contexts", "got \"8q\""}},
      {{"profile", "--model", "a", "--rows", "0"}, {"--rows", "got \"0\""}},
      {{"profile", "--model", "a", "--iterations", "0"}, {"--iterations", "got \"0\""}},
      {{"profile", "--model", "a", "--bandwidth-bytes", "1KiB"}, {"got \"1KiB\"", "1MiB to"}},
      {{"profile", "--model", "a", "--poison"}, {"--poison"}},
      {{"profile", "--model", "a", "--json", "z", "--html", "z"},
       {"--html: got \"z\", and so does --json, allowed: another file"}},
      {{"profile", "--model", "a", "--recorded", "r,s", "--json", "s"},
       {"--json: got \"s\", which is read (--recorded), allowed: another file"}},
  };
  for (const Refusal& refusal : refusals) ExpectUsageError(refusal);
}

TEST(CommandLine, FailuresNameTheirCauseAndExitWith1) {
  const std::vector<Refusal> refusals = {
      {{"serve", "--model", "/no/such/model", "--listen", "127.0.0.1:0"}, {"/no/such/model"}},
      {{"run", "--model", "/no/such/model", "--prompt", "x"}, {"/no/such/model"}},
      {{"serve", "--model", ShippedModel(), "--listen", "unix:/no/such/dir/a.sock"},
       {"unix:/no/such/dir/a.sock"}},
      {{"serve", "--model", ShippedModel(), "--listen", "unix:/sys/a.sock"},
       {"cannot listen on unix:/sys/a.sock: "}},
      {{"serve", "--model", ShippedModel(), "--listen", "192.0.2.1:50061"},
       {"cannot listen on 192.0.2.1:50061: Cannot assign requested address"}},
      {{"sched", "--prompts-file", "/no/such/file"}, {"cannot read \"/no/such/file\""}},
      {{"sched", "--prompts-file", "/"},
       {"prompts file: cannot read \"/\": got a directory, allowed: a file"}},
      {{"serve", "--config", "/"}, {"config: cannot read \"/\": got a directory"}},
      {{"run", "--model", "a", "--prompt-tokens-file", "/no/such/file"},
       {"cannot read \"/no/such/file\""}},
      {{"run", "--model", "a", "--prompt", "x", "--json-lines", "/no/such/dir/a"},
       {"cannot write \"/no/such/dir/a\": No such file or directory"}},
      {{"sched", "--demo", "--json", "/no/such/dir/a.json"},
       {"cannot write \"/no/such/dir/a.json\": No such file or directory"}},
      {{"sched", "--demo", "--address", "unix:/no/such.sock", "--wait", "0"},
       {"cannot connect to unix:/no/such.sock", "No such file"}},
      {{"health", "--address", "unix:/no/such.sock"}, {"cannot connect to unix:/no/such.sock"}},
      {{"profile", "--model", "/no/such/model"}, {"/no/such/model"}},
      {{"health", "--address", "unix:/no/such.sock", "--wait", "100ms"}, {"within 100 ms"}},
      {{"run", "--model", ShippedModel(), "--device", "host", "--prompt-tokens", "9999"},
       {"got 9999, allowed: below 272"}},
      {{"run", "--model", ShippedModel(), "--device", "host", "--prompt", "x", "--max-new-tokens",
        "9999"},
       {"context", "allowed: 2048 together"}},
      {{"run", "--model", ShippedModel(), "--device", "hip", "--hip-library",
        "/no/such/libamdhip64.so", "--prompt", "x"},
       {"reprise run: device 'hip': no HIP library: /no/such/libamdhip64.so: cannot open"}},
      {{"run", "--model", ShippedModel(), "--device", "host", "--prompt", "x", "--kv-cache",
        "1KiB"},
       {"reprise run: the KV pool gets 1024 bytes", "at least 81920 bytes"}},
      {{"run", "--model", ShippedModel(), "--device", "host", "--prompt", "x", "--kv-cache",
        "100TiB"},
       {"GiB) asked, ", "GiB) free"}},
  };
  for (const Refusal& refusal : refusals) ExpectRefusal(refusal, 1);
}

TEST(CommandLine, TextOfAnOpaqueModelIsRefused) {
  TemporaryDirectory directory;
  const auto model = WriteTinyModel({}, directory.path() + "/tiny");
  ASSERT_TRUE(model.ok()) << model.status();
  ExpectRefusal({{"run", "--model", *model, "--device", "host", "--prompt", "x"},
                 {"tokens need its own tokenizer"}},
                1);
}

}  // namespace
}  // namespace reprise::testing
