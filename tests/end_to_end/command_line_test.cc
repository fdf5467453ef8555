// SPDX-License-Identifier: Apache-2.0
// The command line as users meet it: help, version, and what wrong usage and failures say. A
// refusal is one line on stderr that names the command, and an exit code: 2 for wrong usage, 1 for
// a failure.
#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/program.h"

namespace reprise::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
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
}

TEST(CommandLine, HelpOfEveryCommandShowsExamples) {
  for (const std::string command : {"", "serve", "sched", "run", "health", "profile"}) {
    std::vector<std::string> arguments = {"--help"};
    if (!command.empty()) arguments.insert(arguments.begin(), command);
    Program program(arguments);
    EXPECT_EQ(program.Wait(), 0);
    EXPECT_THAT(program.stdout_text(), HasSubstr("Examples:\n  reprise " + command)) << command;
  }
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
      {{"bogus"}, {"unknown command \"bogus\"", "serve, sched, run, health, profile"}},
      {{"serve", "--bogus", "3"}, {"reprise serve: unknown argument \"--bogus\""}},
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
      {{"serve", "--model", "a", "--linear", "fast"}, {"got \"fast\"", "tuned, portable"}},
      {{"serve", "--model", "a", "--listen", "here"}, {"got \"here\"", "unix:/path"}},
      {{"serve", "--model", "a", "--drain-timeout", "10"}, {"got \"10\"", "30s"}},
      {{"serve", "--model", "a", "--max-message", "1B"}, {"got \"1B\"", "1KiB to 1GiB"}},
      {{"run", "--model", "a"}, {"prompts: got none"}},
      {{"run", "--model", "a", "--prompt", "x", "--random-prompt", "4"}, {"several kinds"}},
      {{"run", "--model", "a", "--prompt", "x", "--temperature", "nan"}, {"got \"nan\""}},
      {{"run", "--model", "a", "--prompt-lengths", "9..3"}, {"--prompt-lengths", "got \"3\""}},
      {{"run", "--model", "a", "--prompt", "x", "--top-p", "1.5"}, {"--top-p", "got \"1.5\""}},
      {{"run", "--model", "a", "--prompt", "x", "--logit-bias", "5"}, {"ID:NUMBER"}},
      {{"run", "--model", "a", "--prompt", "x", "--logit-bias", "5:x"}, {"got \"x\""}},
      {{"run", "--model", "a", "--prompt", "x", "--logprobs", "33"}, {"from 0 to 32"}},
      {{"run", "--model", "a", "--prompt", "x", "--stop-token", "-1"},
       {"--stop-token: number: got \"-1\", allowed: a whole number from 0"}},
      {{"run", "--model", "a", "--prompt", "x", "--bandwidth", "4.7TB"}, {"got \"4.7TB\"", "TB/s"}},
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
  };
  for (const Refusal& refusal : refusals) ExpectUsageError(refusal);
}

TEST(CommandLine, FailuresNameTheirCauseAndExitWith1) {
  const std::vector<Refusal> refusals = {
      {{"serve", "--model", "/no/such/model", "--listen", "127.0.0.1:0"}, {"/no/such/model"}},
      {{"run", "--model", "/no/such/model", "--prompt", "x"}, {"/no/such/model"}},
      {{"serve", "--model", ShippedModel(), "--listen", "unix:/no/such/dir/a.sock"},
       {"unix:/no/such/dir/a.sock"}},
      {{"sched", "--prompts-file", "/no/such/file"}, {"cannot read \"/no/such/file\""}},
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
       {"reprise run: "}},
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
