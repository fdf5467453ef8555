// SPDX-License-Identifier: Apache-2.0
#include "tools/sched/workload.h"

#include <cmath>
#include <fstream>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/tiny_model.h"

namespace reprise::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ServerInfo Limits() {
  return {.limits = {.vocab_size = 300}, .eos_token_ids = {256}, .byte_tokens = true};
}

WorkloadOptions RandomWorkload() {
  WorkloadOptions options;
  options.random_prompts = true;
  options.prompt_lengths = *ParsePromptLengths("64..8192");
  options.num_requests = 400;
  options.arrivals = Arrivals::kPoisson;
  options.rate = 10;
  return options;
}

TEST(Workload, SameSeedGivesTheSameRequests) {
  const auto a = *MakeWorkload(RandomWorkload(), Limits());
  const auto b = *MakeWorkload(RandomWorkload(), Limits());
  ASSERT_EQ(a.size(), 400u);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].prompt, b[i].prompt);
    EXPECT_EQ(a[i].arrival_ns, b[i].arrival_ns);
  }
  WorkloadOptions other = RandomWorkload();
  other.seed = 2;
  EXPECT_NE((*MakeWorkload(other, Limits()))[0].prompt, a[0].prompt);
}

// The generator is our own, so these values hold on every machine.
TEST(Workload, RandomNumbersAreThePublishedSequence) {
  Random random(1234567);
  EXPECT_EQ(random.Next(), 6457827717110365317u);
  EXPECT_EQ(random.Next(), 3203168211198807973u);
}

TEST(Workload, LogUniformLengthsFillTheRangeByItsLogarithm) {
  const auto requests = *MakeWorkload(RandomWorkload(), Limits());
  int below_middle = 0;
  for (const Request& request : requests) {
    EXPECT_GE(request.prompt.size(), 64u);
    EXPECT_LE(request.prompt.size(), 8192u);
    below_middle += request.prompt.size() < 724;  // sqrt(64 * 8192)
    for (uint32_t token : request.prompt) ASSERT_LT(token, 300u);
  }
  EXPECT_NEAR(below_middle, 200, 40);
}

TEST(Workload, PoissonArrivalsKeepTheRateAndTheOrder) {
  const auto requests = *MakeWorkload(RandomWorkload(), Limits());
  EXPECT_EQ(requests[0].arrival_ns, 0u);
  for (size_t i = 1; i < requests.size(); ++i) {
    EXPECT_GE(requests[i].arrival_ns, requests[i - 1].arrival_ns);
  }
  EXPECT_NEAR(static_cast<double>(requests.back().arrival_ns) * 1e-9, 40.0, 8.0);
}

TEST(Workload, FixedArrivalsAreEvenlySpaced) {
  WorkloadOptions options;
  options.texts = {"a"};
  options.num_requests = 3;
  options.arrivals = Arrivals::kFixed;
  options.rate = 4;
  const auto requests = *MakeWorkload(options, Limits());
  EXPECT_EQ(requests[1].arrival_ns, 250'000'000u);
  EXPECT_EQ(requests[2].arrival_ns, 500'000'000u);
}

TEST(Workload, RepeatsPromptsWithSeedsOfTheirOwn) {
  WorkloadOptions options;
  options.texts = {"ab", "c"};
  options.num_requests = 3;
  options.seed = 10;
  const auto requests = *MakeWorkload(options, Limits());
  EXPECT_THAT(requests[0].prompt, ElementsAre('a', 'b'));
  EXPECT_THAT(requests[1].prompt, ElementsAre('c'));
  EXPECT_THAT(requests[2].prompt, ElementsAre('a', 'b'));
  EXPECT_EQ(requests[2].sampling.numbers.seed, 12u);
  EXPECT_EQ(requests[2].id, 3u);
}

TEST(Workload, StopsAtEndOfTextUnlessToldNotTo) {
  WorkloadOptions options;
  options.texts = {"a"};
  options.stop_texts = {"\n\n"};
  EXPECT_THAT((*MakeWorkload(options, Limits()))[0].stop_sequences,
              ElementsAre(ElementsAre('\n', '\n'), ElementsAre(256)));
  options.ignore_eos = true;
  EXPECT_THAT((*MakeWorkload(options, Limits()))[0].stop_sequences,
              ElementsAre(ElementsAre('\n', '\n')));
}

TEST(Workload, RefusesTextForModelsThatNeedATokenizer) {
  ServerInfo limits = Limits();
  limits.byte_tokens = false;
  WorkloadOptions options;
  options.texts = {"a"};
  EXPECT_EQ(MakeWorkload(options, limits).status().code(), absl::StatusCode::kInvalidArgument);
  options.texts.clear();
  options.token_prompts = {{1, 2}};
  EXPECT_TRUE(MakeWorkload(options, limits).ok());
}

TEST(Workload, ReadsPromptLengths) {
  EXPECT_THAT(ParsePromptLengths("128,512")->fixed, ElementsAre(128, 512));
  EXPECT_EQ(ParsePromptLengths("64..8192")->max, 8192u);
  for (const char* text : {"", "0", "64..", "..64", "64..32", "a..b", "1,x"}) {
    EXPECT_FALSE(ParsePromptLengths(text).ok()) << text;
  }
}

TEST(Workload, OfAFileRepeatsItsPromptsAndKnowsWhichTheyAre) {
  WorkloadOptions options;
  options.file_prompts = {{.prompt = "ab", .max_new_tokens = 3},
                          {.prompt = std::vector<uint32_t>{7, 8, 9}}};
  options.num_requests = 3;
  options.max_new_tokens = 5;
  const auto requests = MakeWorkload(options, Limits());
  ASSERT_TRUE(requests.ok()) << requests.status();
  EXPECT_THAT((*requests)[0].prompt, ElementsAre('a', 'b'));
  EXPECT_THAT((*requests)[1].prompt, ElementsAre(7, 8, 9));
  EXPECT_EQ((*requests)[2].prompt, (*requests)[0].prompt);
  std::vector<uint32_t> indices, lengths;
  for (const Request& request : *requests) {
    indices.push_back(request.prompt_index);
    lengths.push_back(request.max_new_tokens);
  }
  EXPECT_THAT(indices, ElementsAre(0, 1, 0));
  EXPECT_THAT(lengths, ElementsAre(3, 5, 3));
}

TEST(Workload, RefusesTextOfAFileForModelsThatNeedATokenizer) {
  ServerInfo limits = Limits();
  limits.byte_tokens = false;
  WorkloadOptions options;
  options.file_prompts = {{.prompt = std::vector<uint32_t>{1}}};
  EXPECT_TRUE(MakeWorkload(options, limits).ok());
  options.file_prompts.push_back({.prompt = "a"});
  EXPECT_EQ(MakeWorkload(options, limits).status().code(), absl::StatusCode::kInvalidArgument);
}

// ---- arrival traces ----

class ArrivalTrace : public ::testing::Test {
 protected:
  absl::StatusOr<std::vector<TracedRequest>> Read(const std::string& text) {
    std::ofstream(path_, std::ios::trunc) << text;
    return ReadArrivalTrace(path_);
  }
  testing::TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/trace";
};

TEST_F(ArrivalTrace, IsCsvOrLinesOfJson) {
  const auto csv = Read("prompt_tokens, time_s,new_tokens,priority\r\n\n7,1.5,3,-2\r\n5,0,1,4\n");
  const auto json = Read(
      "{\"time_s\": 1.5, \"prompt_tokens\": 7, \"new_tokens\": 3, \"priority\": -2}\n\n"
      "{\"time_s\": 0, \"prompt_tokens\": 5, \"new_tokens\": 1, \"priority\": 4}\n");
  for (const auto& trace : {csv, json}) {
    ASSERT_TRUE(trace.ok()) << trace.status();
    ASSERT_EQ(trace->size(), 2u);
    EXPECT_EQ((*trace)[0].arrival_ns, 0u);
    EXPECT_EQ((*trace)[0].prompt_tokens, 5u);
    EXPECT_EQ((*trace)[0].priority, 4);
    EXPECT_EQ((*trace)[1].arrival_ns, 1'500'000'000u);
    EXPECT_EQ((*trace)[1].new_tokens, 3u);
    EXPECT_EQ((*trace)[1].priority, -2);
  }
  EXPECT_EQ((*Read("time_s,prompt_tokens,new_tokens\n0,1,1"))[0].priority, 0);
}

TEST_F(ArrivalTrace, IsRefusedByLineAndField) {
  const std::string header = "time_s,prompt_tokens,new_tokens\n";
  const std::pair<std::string, const char*> wrong[] = {
      {"", "got no request"},
      {header, "got no request"},
      {"time,prompt_tokens\n", ":1: got the field \"time\", allowed: time_s, prompt_tokens"},
      {"time_s,time_s\n", ":1: got time_s twice"},
      {"time_s,prompt_tokens\n0,1\n", ":2: got no new_tokens"},
      {header + "0,1\n", ":2: got 2 columns, allowed: the 3 of the header"},
      {header + "0,1,1\nx,1,1\n", ":3: time_s: got \"x\", allowed: a number from 0"},
      {header + "-1,1,1\n", ":2: time_s: got \"-1\""},
      {header + "nan,1,1\n", ":2: time_s: got \"nan\""},
      {header + "0,0,1\n", ":2: prompt_tokens: got \"0\", allowed: a whole number from 1"},
      {header + "0,1,1.5\n",
       ":2: new_tokens: got \"1.5\", allowed: a whole number from 1 to 16777216"},
      {"{\"time_s\": 0}\n", ":1: got no prompt_tokens"},
      {"{\"time_s\": \"0\"}\n", ":1: time_s: got \"0\""},
      {"{\"when\": 0}\n", ":1: got the field \"when\""},
      {"{\"time_s\": 0\n", ":1: got no JSON object"},
  };
  for (const auto& [text, message] : wrong) {
    const auto trace = Read(text);
    EXPECT_EQ(trace.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(trace.status().message()), HasSubstr(message));
    EXPECT_THAT(std::string(trace.status().message()), HasSubstr(path_));
  }
  EXPECT_EQ(ReadArrivalTrace(path_ + ".not").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(ReadArrivalTrace(directory_.path()).status().message()),
              HasSubstr("got a directory"));
}

TEST(Workload, OfATraceHasItsArrivalsLengthsAndPriorities) {
  WorkloadOptions options;
  options.trace = {{.arrival_ns = 5, .prompt_tokens = 9, .new_tokens = 2, .priority = 3},
                   {.arrival_ns = 8, .prompt_tokens = 4, .new_tokens = 6}};
  const auto requests = *MakeWorkload(options, Limits());
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].prompt.size(), 9u);
  EXPECT_EQ(requests[0].max_new_tokens, 2u);
  EXPECT_EQ(requests[0].priority, 3);
  EXPECT_EQ(requests[1].arrival_ns, 8u);
  EXPECT_EQ(requests[1].id, 2u);
  options.num_requests = 1;
  EXPECT_EQ(MakeWorkload(options, Limits())->size(), 1u);
  options.num_requests = 3;
  EXPECT_THAT(std::string(MakeWorkload(options, Limits()).status().message()),
              HasSubstr("got 3, allowed: at most the 2"));
}

TEST(Workload, PrioritiesAreGivenInTurn) {
  WorkloadOptions options;
  options.texts = {"a"};
  options.num_requests = 3;
  options.priorities = {0, 7};
  const auto requests = *MakeWorkload(options, Limits());
  EXPECT_EQ(requests[0].priority, 0);
  EXPECT_EQ(requests[1].priority, 7);
  EXPECT_EQ(requests[2].priority, 0);
}

}  // namespace
}  // namespace reprise::tools
