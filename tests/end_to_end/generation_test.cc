// SPDX-License-Identifier: Apache-2.0
// The main job end to end: a model from disk, captured graphs, a server, an external scheduler in a
// process of its own, text out. What `reprise sched` gets over gRPC must be what `reprise run` gets
// from the embedded library, token by token.
#include <signal.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/end_to_end/program.h"
#include "tests/service/served_model.h"

namespace reprise::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using Tokens = std::vector<uint32_t>;

constexpr char kPermission[] = "Everyone is permitted to copy and distribute verbatim copies";

// `arguments` with --json to a file of its own; what that file says. A failure is recorded.
nlohmann::json RunForJson(std::vector<std::string> arguments) {
  TemporaryDirectory directory;
  const std::string file = directory.path() + "/figures.json";
  arguments.insert(arguments.end(), {"--quiet", "--json", file});
  Program program(arguments);
  EXPECT_EQ(program.Wait(std::chrono::seconds(120)), 0) << program.stderr_text();
  return nlohmann::json::parse(ReadTextFile(file), nullptr, /*allow_exceptions=*/false);
}

std::vector<Tokens> TokensOf(const nlohmann::json& json) {
  std::vector<Tokens> all;
  for (const auto& request : json["requests"]) all.push_back(request["tokens"].get<Tokens>());
  return all;
}

std::vector<std::string> With(std::vector<std::string> arguments,
                              const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<std::string> RunOn(const std::string& model, const std::vector<std::string>& more) {
  return With({"run", "--model", model, "--device", "host"}, more);
}

std::vector<std::string> SchedOn(const ServedProgram& served,
                                 const std::vector<std::string>& more) {
  return With({"sched", "--address", served.address()}, more);
}

TEST(Generation, ShippedModelGoesOnAsItsSourceDoes) {
  Program program(RunOn(ShippedModel(), {"--prompt", kPermission, "--max-new-tokens", "60"}));
  EXPECT_EQ(program.Wait(), 0) << program.stderr_text();
  EXPECT_THAT(program.stdout_text(),
              StartsWith(std::string(kPermission) +
                         "\n of this license document, but changing it is not allowed.\n"));
  EXPECT_THAT(program.stdout_text(), HasSubstr("TTFT"));
  EXPECT_THAT(program.stdout_text(), HasSubstr("decode/1"));
}

TEST(Generation, SchedulerAndEmbeddedLibraryGiveTheSameTokens) {
  const std::vector<std::string> prompts = {
      "--prompt",         kPermission,
      "--prompt",         "This program is free software; you can redistribute it",
      "--prompt",         "You may copy and distribute",
      "--max-new-tokens", "48",
      "--ignore-eos"};
  const std::vector<Tokens> together = TokensOf(RunForJson(RunOn(ShippedModel(), prompts)));
  ASSERT_EQ(together.size(), 3u);
  ServedProgram served(ShippedModel());
  ASSERT_TRUE(served.ready());
  // In one batch, one after another, in small chunks, kernel by kernel, several steps at a time,
  // with drafts: always the same.
  for (const std::vector<std::string>& how :
       std::vector<std::vector<std::string>>{{},
                                             {"--max-rows", "1"},
                                             {"--step-tokens", "7", "--pipeline-depth", "1"},
                                             {"--eager"},
                                             {"--steps-per-request", "8"},
                                             {"--draft", "ngram:4,6"}}) {
    EXPECT_EQ(TokensOf(RunForJson(SchedOn(served, With(prompts, how)))), together)
        << (how.empty() ? "" : how[0]);
  }
}

// A tiny random model with room for a few rows, so that quick tests can starve it.
class TinyGeneration : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model = WriteTinyModel({}, directory_.path() + "/tiny");
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
  }
  // Blocks of 4 tokens: 2 (K, V) * 2 layers * 2 heads * 8 * 4 bytes per token.
  std::vector<std::string> Flags(int num_blocks) const {
    return {"--block-size",    "4",
            "--max-rows",      "4",
            "--mixed-buckets", "16,32",
            "--kv-cache",      std::to_string(num_blocks * 4 * 2 * 2 * 2 * 8 * 4)};
  }
  const std::vector<std::string> work_ = {"--prompt-lengths", "3..40", "--max-new-tokens", "30",
                                          "--ignore-eos"};
  TemporaryDirectory directory_;
  std::string model_;
};

TEST_F(TinyGeneration, EverySamplingOptionGivesTheSameByRunAndByScheduler) {
  const std::vector<std::string> sampling = {"--temperature",
                                             "1.1",
                                             "--top-k",
                                             "40",
                                             "--top-p",
                                             "0.95",
                                             "--min-p",
                                             "0.01",
                                             "--repetition-penalty",
                                             "1.2",
                                             "--presence-penalty",
                                             "-0.25",
                                             "--frequency-penalty",
                                             "0.5",
                                             "--logit-bias",
                                             "7:-100",
                                             "--logit-bias",
                                             "8:2.5",
                                             "--stop-token",
                                             "11",
                                             "--logprobs",
                                             "3",
                                             "--rows",
                                             "5"};
  const std::vector<std::string> work = With(work_, sampling);
  const nlohmann::json by_run = RunForJson(RunOn(model_, With(work, Flags(200))));
  ServedProgram served(model_, Flags(200));
  ASSERT_TRUE(served.ready());
  std::vector<std::string> requests = work;
  requests[requests.size() - 2] = "--requests";
  const nlohmann::json by_sched = RunForJson(SchedOn(served, requests));
  EXPECT_EQ(TokensOf(by_sched), TokensOf(by_run));
  const std::vector<std::string> at_once = {"--steps-per-request", "6"};
  const nlohmann::json by_others[] = {
      RunForJson(RunOn(model_, With(With(work, Flags(200)), at_once))),
      RunForJson(SchedOn(served, With(requests, at_once))),
      RunForJson(SchedOn(served, With(requests, {"--draft", "ngram:1,4"})))};
  for (const nlohmann::json& json : by_others) {
    EXPECT_EQ(TokensOf(json), TokensOf(by_run));
    for (size_t i = 0; i < 5; ++i)
      EXPECT_EQ(json["requests"][i]["logprobs"], by_run["requests"][i]["logprobs"]);
  }
  for (size_t i = 0; i < 5; ++i) {
    const nlohmann::json& request = by_run["requests"][i];
    EXPECT_EQ(by_sched["requests"][i]["logprobs"], request["logprobs"]);
    const Tokens tokens = request["tokens"].get<Tokens>();
    ASSERT_EQ(request["logprobs"].size(), tokens.size());
    for (size_t t = 0; t < tokens.size(); ++t) {
      EXPECT_NE(tokens[t], 7u);
      EXPECT_EQ(tokens[t] == 11, t + 1 == tokens.size() && request["finish"] == "stop");
      EXPECT_EQ(request["logprobs"][t]["top"].size(), 3u);
    }
  }
}

// Starved of blocks the scheduler drops rows and computes them again: their penalties go on where
// they were.
TEST_F(TinyGeneration, APreemptedRowKeepsItsPenalties) {
  const std::vector<std::string> work =
      With(work_, {"--presence-penalty", "1.5", "--frequency-penalty", "0.75", "--rows", "4"});
  const nlohmann::json roomy = RunForJson(RunOn(model_, With(work, Flags(200))));
  const nlohmann::json starved = RunForJson(RunOn(model_, With(work, Flags(30))));
  EXPECT_EQ(TokensOf(starved), TokensOf(roomy));
  uint64_t preemptions = 0;
  for (const auto& request : starved["requests"])
    preemptions += request["preemptions"].get<uint64_t>();
  EXPECT_GT(preemptions, 0u);
}

TEST_F(TinyGeneration, SampledTokensDependOnTheSeedAlone) {
  const std::vector<std::string> prompt = {"--prompt-tokens",  "5,6,7", "--temperature", "1",
                                           "--max-new-tokens", "24",    "--ignore-eos"};
  const auto first = TokensOf(RunForJson(RunOn(model_, With(prompt, {"--rows", "4"}))));
  EXPECT_EQ(TokensOf(RunForJson(RunOn(model_, With(prompt, {"--rows", "4"})))), first);
  EXPECT_EQ(std::set<Tokens>(first.begin(), first.end()).size(), 4u);
  // Row i samples with seed + i, whoever its neighbours are.
  EXPECT_EQ(TokensOf(RunForJson(RunOn(model_, With(prompt, {"--seed", "3"}))))[0], first[2]);
}

TEST_F(TinyGeneration, PreemptedRowsGetTheSameTokens) {
  const auto expected =
      TokensOf(RunForJson(RunOn(model_, With(With(work_, {"--rows", "12"}), Flags(200)))));
  ServedProgram served(model_, Flags(30));
  ASSERT_TRUE(served.ready());
  const nlohmann::json json = RunForJson(SchedOn(served, With(work_, {"--requests", "12"})));
  EXPECT_EQ(TokensOf(json), expected);
  EXPECT_GT(json["figures"]["num_preemptions"].get<int>(), 0);
  EXPECT_EQ(json["figures"]["num_finished"], 12);
  const nlohmann::json several =
      RunForJson(SchedOn(served, With(work_, {"--requests", "12", "--steps-per-request", "8"})));
  EXPECT_EQ(TokensOf(several), expected);
  EXPECT_GT(several["figures"]["num_preemptions"].get<int>(), 0);
  EXPECT_EQ(several["figures"]["num_finished"], 12);
}

TEST_F(TinyGeneration, MoreStepsPerRequestThanTheServerTakesAreAnError) {
  ServedProgram served(model_, With(Flags(200), {"--max-steps-per-request", "2"}));
  ASSERT_TRUE(served.ready());
  Program sched(SchedOn(served, With(work_, {"--steps-per-request", "32"})));
  EXPECT_EQ(sched.Wait(), 1);
  EXPECT_THAT(sched.stderr_text(), HasSubstr("steps-per-request: got 32, allowed: 1 to 2"));
}

TEST_F(TinyGeneration, DraftsThatTheServerDoesNotTakeAreAnError) {
  ServedProgram served(model_, With(Flags(200), {"--max-draft-tokens", "0"}));
  ASSERT_TRUE(served.ready());
  Program sched(SchedOn(served, With(work_, {"--draft", "ngram"})));
  EXPECT_EQ(sched.Wait(), 1);
  EXPECT_THAT(sched.stderr_text(),
              HasSubstr("draft: got ngram:3,4, and the server takes no drafts"));
}

TEST_F(TinyGeneration, SaysHowManyDraftsWereAccepted) {
  ServedProgram served(ShippedModel());
  ASSERT_TRUE(served.ready());
  Program sched(SchedOn(
      served, {"--prompt", kPermission, "--max-new-tokens", "150", "--draft", "ngram:5,4"}));
  EXPECT_EQ(sched.Wait(), 0) << sched.stderr_text();
  EXPECT_THAT(sched.stdout_text(), HasSubstr("steps with drafts"));
  const nlohmann::json drafts =
      RunForJson(SchedOn(served, {"--prompt", kPermission, "--max-new-tokens", "150", "--draft",
                                  "ngram:5,4"}))["figures"]["drafts"];
  EXPECT_GT(drafts["accepted"].get<int>(), 0);
  EXPECT_LE(drafts["accepted"].get<int>(), drafts["proposed"].get<int>());
  EXPECT_GT(drafts["tokens_per_row_and_step"].get<double>(), 1.0);
}

TEST_F(TinyGeneration, TwoSchedulersShareAServer) {
  const auto expected =
      TokensOf(RunForJson(RunOn(model_, With(With(work_, {"--rows", "16"}), Flags(200)))));
  ServedProgram served(model_, Flags(60));
  ASSERT_TRUE(served.ready());
  nlohmann::json first;
  std::thread other([&] {
    first = RunForJson(SchedOn(served, With(work_, {"--requests", "16"})));
  });
  const nlohmann::json second = RunForJson(SchedOn(served, With(work_, {"--requests", "16"})));
  other.join();
  EXPECT_EQ(TokensOf(first), expected);
  EXPECT_EQ(TokensOf(second), expected);
}

TEST_F(TinyGeneration, SaysWhereTimeWentAndWhatWasReplayed) {
  ServedProgram served(model_, Flags(200));
  ASSERT_TRUE(served.ready());
  Program sched(SchedOn(served, With(work_, {"--requests", "8", "--rate", "200"})));
  EXPECT_EQ(sched.Wait(), 0) << sched.stderr_text();
  // How many rows share a step depends on the machine's speed, so no graph's size is asked for.
  for (const char* word : {"requests", "TTFT", "TPOT", "decode/", "mixed/", "padding in all",
                           "wire", "validate", "ring", "device", "reply", "network"}) {
    EXPECT_THAT(sched.stdout_text(), HasSubstr(word));
  }
}

TEST_F(TinyGeneration, SaysThatNoPrefixIsReadOnceWhereThereIsNoKernelForIt) {
  ServedProgram served(model_, {"--min-shared-tokens", "64"});
  ASSERT_TRUE(served.ready());
  EXPECT_TRUE(served.program().AwaitOutput("each row reads them for itself"));
  EXPECT_THAT(served.program().stderr_text(), HasSubstr("min-shared-tokens: without effect"));
  ServedProgram silent(model_);
  ASSERT_TRUE(silent.ready());
  EXPECT_TRUE(silent.program().AwaitOutput("each row reads them for itself"));
  EXPECT_THAT(silent.program().stderr_text(), Not(HasSubstr("min-shared-tokens")));
}

TEST_F(TinyGeneration, StopsOnTermLeavingNoSocketBehind) {
  ServedProgram served(model_);
  ASSERT_TRUE(served.ready());
  EXPECT_TRUE(std::filesystem::exists(served.socket_path()));
  EXPECT_TRUE(served.program().AwaitOutput("serving on " + served.address()));
  served.program().Signal(SIGTERM);
  EXPECT_EQ(served.program().Wait(), 0) << served.program().stderr_text();
  EXPECT_FALSE(std::filesystem::exists(served.socket_path()));
}

TEST_F(TinyGeneration, BusySocketIsRefusedAndLeftAlone) {
  ServedProgram served(model_);
  ASSERT_TRUE(served.ready());
  Program second({"serve", "--model", model_, "--device", "host", "--listen", served.address()});
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_THAT(second.stderr_text(), HasSubstr(served.address()));
  EXPECT_THAT(second.stderr_text(), HasSubstr("in use"));
  EXPECT_EQ(RunProgram({"health", "--address", served.address()}), 0);
}

// Fills a part of a tensor of the model in `directory` with bits that are NaN in every float type.
void FillWithNan(const std::string& directory, const std::string& tensor, size_t first_byte,
                 size_t num_bytes) {
  const std::string path = directory + "/model.safetensors";
  std::string file = ReadTextFile(path);
  uint64_t header_bytes = 0;
  ASSERT_GT(file.size(), sizeof(header_bytes));
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  const auto header = nlohmann::json::parse(file.substr(sizeof(header_bytes), header_bytes));
  const auto offsets = header.at(tensor).at("data_offsets").get<std::vector<size_t>>();
  ASSERT_LE(offsets[0] + first_byte + num_bytes, offsets[1]);
  file.replace(sizeof(header_bytes) + header_bytes + offsets[0] + first_byte, num_bytes, num_bytes,
               '\xff');
  std::ofstream(path, std::ios::binary) << file;
}

TEST_F(TinyGeneration, AModelThatAnswersNanIsAnErrorAndNoHang) {
  FillWithNan(model_, "lm_head.weight", 0, 97 * 32 * 4);
  const std::vector<std::string> one = {"--prompt-tokens", "5,6,7", "--max-new-tokens", "5"};
  const std::vector<std::string> two = With(one, {"--prompt-tokens", "8,9"});
  for (const auto& prompts : {one, two}) {
    Program run(RunOn(model_, With(prompts, Flags(200))));
    EXPECT_EQ(run.Wait(), 1);
    EXPECT_THAT(run.stderr_text(), HasSubstr("reprise run: "));
    EXPECT_THAT(run.stderr_text(), HasSubstr("request 1: no token can be sampled after 3 prompt"));
    EXPECT_THAT(run.stdout_text(), HasSubstr("failed"));
  }
  for (const std::string server_depth : {"1", "4"}) {
    ServedProgram served(model_, With(Flags(200), {"--pipeline-depth", server_depth}));
    ASSERT_TRUE(served.ready());
    Program sched(SchedOn(served, With(two, {"--pipeline-depth", server_depth})));
    EXPECT_EQ(sched.Wait(), 1);
    EXPECT_THAT(sched.stderr_text(), HasSubstr("reprise sched: 2 of 2 requests failed"));
    EXPECT_THAT(sched.stderr_text(), HasSubstr("request 2: no token can be sampled after 2"));
  }
}

// The embedding of token 50 is NaN: a prompt with it has no candidate, the others never meet it.
TEST_F(TinyGeneration, ARequestWithoutACandidateLeavesTheOthersAsTheyWere) {
  const std::vector<std::string> sampling = {"--max-new-tokens", "12", "--ignore-eos",
                                             "--logit-bias", "50:-1000"};
  const std::vector<std::string> good =
      With(sampling, {"--prompt-tokens", "5,6,7", "--prompt-tokens", "9,8"});
  const auto expected = TokensOf(RunForJson(RunOn(model_, With(good, Flags(200)))));
  FillWithNan(model_, "model.embed_tokens.weight", 50 * 32 * 4, 32 * 4);
  const std::vector<std::string> all = With(good, {"--prompt-tokens", "5,50,7"});
  ServedProgram served(model_, Flags(200));
  ASSERT_TRUE(served.ready());
  for (const auto& arguments : {RunOn(model_, With(all, Flags(200))), SchedOn(served, all)}) {
    const std::string file = directory_.path() + "/figures.json";
    Program program(With(arguments, {"--quiet", "--json", file}));
    EXPECT_EQ(program.Wait(), 1);
    EXPECT_THAT(program.stderr_text(), HasSubstr("1 of 3 requests failed; request 3: "));
    const auto json = nlohmann::json::parse(ReadTextFile(file), nullptr, false);
    const std::vector<Tokens> tokens = TokensOf(json);
    ASSERT_EQ(tokens.size(), 3u);
    EXPECT_EQ(tokens[0], expected[0]);
    EXPECT_EQ(tokens[1], expected[1]);
    EXPECT_EQ(tokens[2], Tokens());
    EXPECT_EQ(json["requests"][2]["finish"], "error");
    EXPECT_EQ(json["figures"]["num_finished"], 2);
    EXPECT_EQ(json["figures"]["num_failed"], 1);
  }
}

// A run that goes on until someone ends it, or its server does.
const std::vector<std::string> kEndless = {
    "--prompt-lengths", "16", "--requests",     "10000", "--max-new-tokens", "100", "--ignore-eos",
    "--reopen",         "0",  "--resume-grace", "0"};

class EndlessSched {
 public:
  explicit EndlessSched(const ServedProgram& served)
      : lines_(directory_.path() + "/lines"),
        program_(SchedOn(served, With(kEndless, {"--json-lines", lines_}))) {}
  // Waits until a request has finished, so that steps have run, however slow the machine is.
  bool AwaitFinishedRequest() {
    return service::Eventually(
               [&] { return !program_.running() || !ReadTextFile(lines_).empty(); }) &&
           program_.running();
  }
  Program& program() { return program_; }

 private:
  TemporaryDirectory directory_;
  const std::string lines_;
  Program program_;
};

TEST_F(TinyGeneration, KilledServerEndsTheSchedulerAndItsSocketIsTakenOver) {
  ServedProgram served(model_, {"--max-rows", "4"});
  ASSERT_TRUE(served.ready());
  EndlessSched endless(served);
  ASSERT_TRUE(endless.AwaitFinishedRequest());
  Program& sched = endless.program();
  served.program().Signal(SIGKILL);
  EXPECT_EQ(sched.Wait(), 1);
  EXPECT_THAT(sched.stderr_text(),
              HasSubstr("the server at " + served.address() + " ended the session"));

  Program next({"serve", "--model", model_, "--device", "host", "--listen", served.address()});
  EXPECT_EQ(RunProgram({"health", "--address", served.address(), "--wait", "60s"}), 0);
  next.Signal(SIGTERM);
  EXPECT_EQ(next.Wait(), 0);
}

TEST_F(TinyGeneration, KilledSchedulerLeavesItsRowsAndBlocksToTheNext) {
  ServedProgram served(model_, Flags(40));
  ASSERT_TRUE(served.ready());
  EndlessSched endless(served);
  ASSERT_TRUE(endless.AwaitFinishedRequest());
  Program& sched = endless.program();
  sched.Signal(SIGKILL);
  EXPECT_EQ(sched.Wait(), 128 + SIGKILL);
  const nlohmann::json json = RunForJson(SchedOn(served, With(work_, {"--requests", "6"})));
  EXPECT_EQ(json["figures"]["num_finished"], 6);
}

TEST_F(TinyGeneration, DrainingServerEndsTheSchedulerWithTheReason) {
  ServedProgram served(model_, {"--max-rows", "4"});
  ASSERT_TRUE(served.ready());
  EndlessSched endless(served);
  ASSERT_TRUE(endless.AwaitFinishedRequest());
  Program& sched = endless.program();
  served.program().Signal(SIGTERM);
  EXPECT_EQ(served.program().Wait(), 0) << served.program().stderr_text();
  EXPECT_EQ(sched.Wait(), 1);
  EXPECT_THAT(sched.stderr_text(), HasSubstr("ended the session"));
  EXPECT_THAT(sched.stdout_text(), HasSubstr("where a step's time went"));
}

TEST_F(TinyGeneration, InterruptedSchedulerSaysSo) {
  ServedProgram served(model_, {"--max-rows", "4"});
  ASSERT_TRUE(served.ready());
  EndlessSched endless(served);
  ASSERT_TRUE(endless.AwaitFinishedRequest());
  Program& sched = endless.program();
  sched.Signal(SIGINT);
  EXPECT_EQ(sched.Wait(), 128 + SIGINT);
  EXPECT_THAT(sched.stderr_text(), HasSubstr("stopped by SIGINT"));
}

TEST_F(TinyGeneration, SchedulerGivesUpAfterItsTimeout) {
  ServedProgram served(model_, {"--max-rows", "4"});
  ASSERT_TRUE(served.ready());
  Program sched(SchedOn(served, With(kEndless, {"--timeout", "1s"})));
  EXPECT_EQ(sched.Wait(), 1);
  EXPECT_THAT(sched.stderr_text(), HasSubstr("reprise sched: the "));
  EXPECT_THAT(sched.stderr_text(), Not(HasSubstr("interrupted")));
}

}  // namespace
}  // namespace reprise::testing
