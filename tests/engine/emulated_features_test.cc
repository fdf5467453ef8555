// SPDX-License-Identifier: Apache-2.0
// Sampling features in a whole engine of emulated GPU kernels: a session with every kind of row, in
// which rows stop, change their mask, are dropped and taken over, gives what it gives on the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine/decode_engine.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::runtime::DeviceKind;
using ::reprise::runtime::DType;
using ::reprise::runtime::MatrixUnit;
using ::reprise::testing::EngineDriver;
using ::reprise::testing::KernelTestParam;
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::StepDraft;
using ::reprise::testing::TestEngine;
using ::reprise::testing::TestEngineOptions;

constexpr uint32_t kVocab = 97;

std::vector<std::byte> MaskOf(uint32_t first, uint32_t stride) {
  std::vector<std::byte> mask((kVocab + 7) / 8, std::byte{0});
  for (uint32_t t = first; t < kVocab; t += stride) mask[t / 8] |= std::byte{1} << t % 8;
  return mask;
}

// A session of few steps; what each of them answered.
class Session {
 public:
  explicit Session(DecodeEngine& engine) : driver_(engine) {
    for (uint32_t t = 0; t < kVocab; t += 3)
      bias_.push_back({.token = t, .bias = 0.125f * static_cast<float>(t) - 5.0f});
    for (uint32_t t = 1; t < 60; ++t) stop_.push_back(t);
  }

  std::vector<StepResult> Serve() {
    RunPrompts();
    for (int i = 0; i < 3; ++i) Step({.continue_all = true});
    ChangeMasks();
    TakeRowsOver();
    for (int i = 0; i < 2; ++i) Step({.continue_all = true});
    return std::move(seen_);
  }

 private:
  void Step(const StepDraft& draft) { seen_.push_back(driver_.Step(draft)); }
  StepDraft::Add Add(uint32_t row, const SamplingParams& sampling) {
    return {.row = row, .blocks = driver_.AllocateFor(40), .sampling = sampling};
  }

  // A prompt asked about in two pieces, a short one, and rows of all kinds beside them.
  void RunPrompts() {
    const std::vector<uint32_t> prompt = RandomPrompt(1, 19);
    const auto middle = prompt.begin() + 11;
    Step({.add = {Add(1, {.temperature = 1.0f, .seed = 1, .num_logprobs = 4}),
                  Add(2, {.repetition_penalty = 1.25f,
                          .presence_penalty = 0.5f,
                          .frequency_penalty = 0.25f,
                          .logit_bias = bias_,
                          .return_logits = true})},
          .chunks = {{.row = 1,
                      .tokens = {prompt.begin(), middle},
                      .sample = false,
                      .prompt_logprobs = true,
                      .next_token = *middle},
                     {.row = 2, .tokens = RandomPrompt(2, 6), .prompt_logprobs = true}}});
    StepDraft::Add resumed =
        Add(6, {.temperature = 0.8f, .seed = 6, .presence_penalty = 1.5f, .return_logits = true});
    resumed.prompt_length = 4;  // the rest of its chunk was sampled once
    Step({.add = {Add(3, {.temperature = 1.5f, .seed = 3, .stop_tokens = stop_, .min_tokens = 2}),
                  Add(4, {.temperature = 2.0f,
                          .seed = 4,
                          .top_k = 20,
                          .top_p = 0.9f,
                          .min_p = 0.01f,
                          .allowed_tokens = even_,
                          .max_new_tokens = 3,
                          .num_logprobs = 32}),
                  Add(5, {}), resumed},
          .chunks = {{.row = 1, .tokens = {middle, prompt.end()}, .prompt_logprobs = true},
                     {.row = 3, .tokens = RandomPrompt(3, 5)},
                     {.row = 4, .tokens = RandomPrompt(4, 3)},
                     {.row = 5, .tokens = RandomPrompt(5, 8)},
                     {.row = 6, .tokens = RandomPrompt(6, 9)}},
          .continue_rows = {2}});
  }

  // A plain row gets a mask and loses it; rows that have stopped are named all the same.
  void ChangeMasks() {
    const std::vector<std::byte> one = MaskOf(44, kVocab);
    Step({.continue_rows = {1, 2, 3, 4, 5, 6}, .masks = {{.row = 5, .allowed_tokens = one}}});
    Step({.chunks = {{.row = 4, .tokens = {1, 2, 3}, .prompt_logprobs = true}},
          .continue_rows = {5, 1},
          .masks = {{.row = 5}}});
  }

  // A new row in the slot of a stopped one; one that goes on from another's KV, whose tokens it
  // names.
  void TakeRowsOver() {
    const std::vector<uint32_t> known = RandomPrompt(8, 10);
    StepDraft::Add heir = Add(8, {.temperature = 1.0f,
                                  .seed = 8,
                                  .repetition_penalty = 1.5f,
                                  .frequency_penalty = 0.5f,
                                  .num_logprobs = 3});
    Step({.drop = {4, 6},
          .add = {{.row = 7, .blocks = heir.blocks}},
          .chunks = {{.row = 7, .tokens = known, .sample = false}}});
    heir.context_length = static_cast<uint32_t>(known.size());
    heir.history = known;
    heir.prompt_length = 6;
    Step({.drop = {7},
          .add = {heir, Add(9, {.max_new_tokens = 1})},
          .chunks = {{.row = 8, .tokens = {70}}, {.row = 9, .tokens = RandomPrompt(9, 2)}}});
  }

  EngineDriver driver_;
  std::vector<TokenBias> bias_;
  std::vector<uint32_t> stop_;
  const std::vector<std::byte> even_ = MaskOf(0, 2);
  std::vector<StepResult> seen_;
};

constexpr double kSlack = 1e-3;  // of f32 logits of two orders of sums

void ExpectSameTop(const StepResult& got, TopRange got_top, const StepResult& want,
                   TopRange want_top) {
  ASSERT_EQ(got_top.count, want_top.count);
  for (uint32_t j = 0; j < want_top.count; ++j) {
    const TokenLogprob& a = got.top_logprobs.at(got_top.begin + j);
    const TokenLogprob& b = want.top_logprobs.at(want_top.begin + j);
    EXPECT_EQ(a.token, b.token) << "place " << j;
    EXPECT_NEAR(a.logprob, b.logprob, kSlack) << "place " << j;
  }
}

void ExpectSameRow(const StepResult& got, const RowOutcome& a, const StepResult& want,
                   const RowOutcome& b) {
  SCOPED_TRACE("row " + std::to_string(b.row));
  EXPECT_EQ(a.row, b.row);
  EXPECT_EQ(a.status, b.status);
  EXPECT_EQ(a.sampled, b.sampled);
  EXPECT_EQ(a.token, b.token);
  EXPECT_NEAR(a.logprob, b.logprob, kSlack);
  EXPECT_EQ(a.context_length, b.context_length);
  EXPECT_EQ(a.finish, b.finish);
  EXPECT_EQ(a.rank, b.rank);
  EXPECT_EQ(a.has_logits, b.has_logits);
  ExpectSameTop(got, a.top, want, b.top);
}

void ExpectSame(const StepResult& got, const StepResult& want) {
  ASSERT_EQ(got.rows.size(), want.rows.size());
  for (size_t r = 0; r < want.rows.size(); ++r) ExpectSameRow(got, got.rows[r], want, want.rows[r]);
  ASSERT_EQ(got.prompt_logprobs.size(), want.prompt_logprobs.size());
  for (size_t i = 0; i < want.prompt_logprobs.size(); ++i) {
    SCOPED_TRACE("prompt token " + std::to_string(i));
    const PromptLogprob& a = got.prompt_logprobs[i];
    const PromptLogprob& b = want.prompt_logprobs[i];
    EXPECT_EQ(a.row, b.row);
    EXPECT_EQ(a.position, b.position);
    EXPECT_EQ(a.rank, b.rank);
    EXPECT_NEAR(a.logprob, b.logprob, kSlack);
    ExpectSameTop(got, a.top, want, b.top);
  }
  ASSERT_EQ(got.logits.size(), want.logits.size());
  for (size_t i = 0; i < want.logits.size(); ++i)
    EXPECT_NEAR(got.logits[i], want.logits[i], kSlack) << "logit " << i;
}

// That the session is worth comparing.
void ExpectEverythingHappened(const std::vector<StepResult>& steps) {
  std::vector<FinishReason> finished;
  size_t stopped = 0, prompt_tokens = 0, logits = 0, lists = 0;
  for (const StepResult& step : steps) {
    for (const RowOutcome& row : step.rows) {
      if (row.finish != FinishReason::kNone) finished.push_back(row.finish);
      stopped += row.status == RowStatus::kStopped ? 1 : 0;
    }
    prompt_tokens += step.prompt_logprobs.size();
    logits += step.logits.size();
    lists += step.top_logprobs.size();
  }
  EXPECT_THAT(finished, ::testing::Contains(FinishReason::kStopToken));
  EXPECT_THAT(finished, ::testing::Contains(FinishReason::kLength).Times(2));
  EXPECT_GE(stopped, 3u);
  EXPECT_EQ(prompt_tokens, 11u + 5u + 7u);
  EXPECT_GE(logits, 10 * kVocab);
  EXPECT_GE(lists, 23u * 4u);
}

class EmulatedFeaturesTest : public ::testing::TestWithParam<KernelTestParam> {
 protected:
  static std::vector<StepResult> ServeOn(const KernelTestParam& param) {
    TestEngineOptions options{.dtype = DType::kF32};
    options.engine.decode_buckets = {8};
    options.engine.mixed_buckets = {64};
    options.engine.max_logit_rows = 4;
    auto device = testing::MakeTestDevice(param);
    EXPECT_OK(device);
    const TestEngine tiny = MakeTestEngine(options, *std::move(device));
    return Session(*tiny.engine).Serve();
  }
};

// Warps of 64 and of 32 lanes, and the former through the hip device.
INSTANTIATE_TEST_SUITE_P(EveryUnit, EmulatedFeaturesTest,
                         ::testing::Values(KernelTestParam{.emulated = MatrixUnit::kMfma},
                                           KernelTestParam{.emulated = MatrixUnit::kWmma},
                                           KernelTestParam{.device = DeviceKind::kHip,
                                                           .emulated = MatrixUnit::kMfma}),
                         testing::NameOfParam);

TEST_P(EmulatedFeaturesTest, ASessionOfAllFeaturesIsTheHosts) {
  const std::vector<StepResult> want = ServeOn({}), got = ServeOn(GetParam());
  ExpectEverythingHappened(want);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    ExpectSame(got[i], want[i]);
  }
}

}  // namespace
}  // namespace reprise::engine
