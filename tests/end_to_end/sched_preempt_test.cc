// SPDX-License-Identifier: Apache-2.0
// `reprise sched` against a server with too few blocks: rows that are preempted, by swap space or
// by computing them again, get the tokens that they get with room for all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/end_to_end/program.h"

namespace reprise::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class PreemptingSched : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model = WriteTinyModel({}, directory_.path() + "/tiny");
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
  }
  // Of 24 requests with bounds that all meet; figures in `json`.
  json Run(const ServedProgram& served, const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"sched",
                                      "--address",
                                      served.address(),
                                      "--prompt-lengths",
                                      "3..40",
                                      "--requests",
                                      "24",
                                      "--max-new-tokens",
                                      "30",
                                      "--ignore-eos",
                                      "--seed",
                                      "7",
                                      "--temperature",
                                      "0.8",
                                      "--priorities",
                                      "0,0,3",
                                      "--slo-ttft",
                                      "10m",
                                      "--slo-tpot",
                                      "10m",
                                      "--quiet",
                                      "--json",
                                      Path("json"),
                                      "--svg",
                                      Path("svg"),
                                      "--presence-penalty",
                                      "0.5"};
    words.insert(words.end(), more.begin(), more.end());
    Program program(words);
    EXPECT_EQ(program.Wait(), 0) << program.stderr_text();
    EXPECT_THAT(program.stdout_text(), HasSubstr("goodput"));
    const json outcome = json::parse(ReadTextFile(Path("json")), nullptr, false);
    EXPECT_TRUE(outcome.is_object());
    return outcome;
  }
  std::string Path(const std::string& ending) const {
    return directory_.path() + "/figures." + ending;
  }
  // Blocks of 4 tokens: 2 (K, V) * 2 layers * 2 heads * 8 * 4 bytes per token.
  static std::vector<std::string> Blocks(int count) {
    return {"--block-size",    "4",
            "--max-rows",      "4",
            "--mixed-buckets", "16,32",
            "--swap-space",    "1MiB",
            "--kv-cache",      std::to_string(count * 4 * 2 * 2 * 2 * 8 * 4)};
  }
  static json TokensOf(const json& outcome) {
    json tokens;
    for (const json& request : outcome["requests"]) tokens.push_back(request["tokens"]);
    return tokens;
  }
  static void Stop(ServedProgram* served) {
    served->program().Signal(SIGTERM);
    EXPECT_EQ(served->program().Wait(), 0);
  }
  TemporaryDirectory directory_;
  std::string model_;
};

TEST_F(PreemptingSched, GivesTheTokensOfAServerWithRoomForAll) {
  ServedProgram roomy(model_, Blocks(200));
  ASSERT_TRUE(roomy.ready());
  const json expected = Run(roomy, {});
  EXPECT_EQ(expected["figures"]["num_preemptions"], 0);
  EXPECT_EQ(expected["figures"]["goodput"]["num_met"], 24);
  EXPECT_EQ(expected["figures"]["priorities"].size(), 2u);
  EXPECT_THAT(ReadTextFile(Path("svg")), HasSubstr("priority 3"));
  Stop(&roomy);

  ServedProgram tight(model_, Blocks(30));
  ASSERT_TRUE(tight.ready());
  const json recomputed = Run(tight, {});
  EXPECT_GT(recomputed["figures"]["num_preemptions"], 0);
  EXPECT_EQ(recomputed["figures"]["num_swaps"], 0);
  EXPECT_EQ(TokensOf(recomputed), TokensOf(expected));
  const json swapped = Run(tight, {"--preempt", "swap"});
  EXPECT_GT(swapped["figures"]["num_swaps"], 0);
  EXPECT_EQ(TokensOf(swapped), TokensOf(expected));
  Stop(&tight);
}

// Whose rows take their state along.
TEST_F(PreemptingSched, GivesTheSameTokensOfAModelWithState) {
  const auto model = WriteTinyModel({.architecture = "granitemoehybrid", .num_experts = 0},
                                    directory_.path() + "/hybrid");
  ASSERT_TRUE(model.ok()) << model.status();
  ServedProgram roomy(*model, Blocks(200));
  ASSERT_TRUE(roomy.ready());
  const json expected = Run(roomy, {});
  Stop(&roomy);
  ServedProgram tight(*model, Blocks(15));  // a layer of KV, where the other model has two
  ASSERT_TRUE(tight.ready());
  const json swapped = Run(tight, {"--preempt", "swap"});
  EXPECT_GT(swapped["figures"]["num_swaps"], 0);
  EXPECT_EQ(TokensOf(swapped), TokensOf(expected));
  Stop(&tight);
}

TEST_F(PreemptingSched, RefusesWhatItCannotDo) {
  ServedProgram served(model_);
  ASSERT_TRUE(served.ready());
  const std::string trace = directory_.path() + "/trace.csv";
  std::ofstream(trace) << "time_s,prompt_tokens,new_tokens\n0,5,3\n0,4,x\n";
  const std::pair<std::vector<std::string>, std::string> wrong[] = {
      {{"--prompt", "a", "--preempt", "swap"}, "preempt: got swap, and the server has no swap"},
      {{"--prompt", "a", "--preempt", "drop"}, "got \"drop\", allowed: recompute, swap"},
      {{"--prompt", "a", "--arrivals", "poison"}, "allowed: together, fixed, poisson, or a file"},
      {{"--arrivals", trace}, "trace.csv:3: new_tokens: got \"x\""},
      {{"--prompt", "a", "--svg", "-"}, "--svg: got \"-\", allowed: a file"},
      {{"--prompt", "a", "--priorities", "1,x"}, "--priorities"},
  };
  for (const auto& [flags, message] : wrong) {
    std::vector<std::string> words = {"sched", "--address", served.address()};
    words.insert(words.end(), flags.begin(), flags.end());
    Program program(words);
    EXPECT_NE(program.Wait(), 0);
    EXPECT_THAT(program.stderr_text(), HasSubstr(message));
  }
  std::ofstream(trace, std::ios::trunc) << "time_s,prompt_tokens,new_tokens\n0,5,3\n0.01,4,2\n";
  Program program({"sched", "--address", served.address(), "--arrivals", trace, "--ignore-eos",
                   "--json", Path("json")});
  EXPECT_EQ(program.Wait(), 0) << program.stderr_text();
  const json outcome = json::parse(ReadTextFile(Path("json")), nullptr, false);
  EXPECT_EQ(outcome["requests"][0]["tokens"].size(), 3u);
  EXPECT_EQ(outcome["requests"][1]["tokens"].size(), 2u);
  Stop(&served);
}

}  // namespace
}  // namespace reprise::testing
