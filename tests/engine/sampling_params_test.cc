// SPDX-License-Identifier: Apache-2.0
// Sampling parameters on their way to the device: ranges, features, what a ring entry carries of
// them, and what the host's mirror knows of rows that stop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "engine/step/sampling.h"
#include "engine/step/validate.h"
#include "engine/step/write.h"
#include "runtime/status_macros.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::StatusIs;
using ::reprise::testing::StepDraft;
using ::testing::ElementsAre;
using ::testing::SizeIs;

// A ledger whose blocks count as written in full: the tests of contexts are in remanence_test.cc.
constexpr uint32_t kAnyContext = 1u << 20;
constexpr uint32_t kVocab = 50;
using ::reprise::testing::kInvalid;
using ::reprise::testing::kRange;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

constexpr uint32_t kEos[] = {7, 8};

kernels::StepLimits Limits(uint32_t vocab_size = kVocab) {
  return {.block_size = 4,
          .vocab_size = vocab_size,
          .max_rows = 5,
          .max_context_length = 24,
          .max_step_tokens = 16,
          .adjust_logits = true,
          .max_logit_rows = 2,
          .max_prompt_logprobs = 8,
          .max_sampling_bytes = 1600,
          .max_stop_tokens = kernels::kMaxStopTokens,
          .max_logit_bias = kernels::kMaxLogitBias,
          .max_logprobs = kernels::kMaxTopLogprobs};
}

absl::Status Check(const SamplingParams& sampling) {
  std::vector<uint64_t> stamps(kVocab, 0);
  return CheckSamplingParams(3, sampling, Limits(), kEos, 1, stamps);
}

TEST(SamplingParams, NumbersOutOfRangeAreRefusedWithWhatIsAllowed) {
  EXPECT_OK(Check({}));
  EXPECT_OK(Check({.temperature = 3.0f, .top_k = 1u << 31, .top_p = 1e-6f, .min_p = 1.0f}));
  for (const float bad : {0.0f, -0.5f, 1.001f, kNan})
    EXPECT_THAT(Check({.top_p = bad}), StatusIs(kInvalid, "top_p is"));
  for (const float bad : {-0.5f, 1.001f, kNan})
    EXPECT_THAT(Check({.min_p = bad}), StatusIs(kInvalid, "row 3: min_p is"));
  for (const float bad : {0.0f, -1.0f, std::numeric_limits<float>::infinity(), kNan})
    EXPECT_THAT(Check({.repetition_penalty = bad}), StatusIs(kInvalid, "more than 0"));
  EXPECT_THAT(Check({.presence_penalty = kNan}), StatusIs(kInvalid, "presence_penalty"));
  EXPECT_THAT(Check({.frequency_penalty = kNan}), StatusIs(kInvalid, "frequency_penalty"));
  EXPECT_THAT(Check({.temperature = kNan}), StatusIs(kInvalid, "temperature is nan"));
  EXPECT_THAT(Check({.max_new_tokens = 2, .min_tokens = 3}),
              StatusIs(kInvalid, "min_tokens is 3; allowed: at most max_new_tokens, 2"));
  EXPECT_OK(Check({.max_new_tokens = 3, .min_tokens = 3}));
  EXPECT_OK(Check({.num_logprobs = 32}));
  EXPECT_THAT(Check({.num_logprobs = 33}), StatusIs(kRange, "got 33; allowed: at most 32"));
}

TEST(SamplingParams, ListsAreBoundedAndOfTheVocabulary) {
  std::vector<uint32_t> stop(64, 1);
  EXPECT_OK(Check({.stop_tokens = stop}));
  EXPECT_THAT(Check({.stop_tokens = stop, .stop_at_eos = true}), StatusIs(kRange, "got 66"));
  stop = {kVocab};
  EXPECT_THAT(Check({.stop_tokens = stop}), StatusIs(kInvalid, "stop_tokens: token id 50"));
  std::vector<TokenBias> bias = {{.token = 4, .bias = 1.0f}, {.token = 4, .bias = 2.0f}};
  EXPECT_THAT(Check({.logit_bias = bias}), StatusIs(kInvalid, "token id 4 is twice in it"));
  bias[1] = {.token = kVocab, .bias = 1.0f};
  EXPECT_THAT(Check({.logit_bias = bias}), StatusIs(kInvalid, "logit_bias: token id 50"));
  bias[1] = {.token = 5, .bias = kNan};
  EXPECT_THAT(Check({.logit_bias = bias}), StatusIs(kInvalid, "logit_bias is nan"));
  bias.assign(513, {});
  EXPECT_THAT(Check({.logit_bias = bias}), StatusIs(kRange, "got 513; allowed: at most 512"));
}

TEST(SamplingParams, AMaskHasABitForEachTokenAndAllowsOne) {
  std::vector<std::byte> mask(7, std::byte{0});
  EXPECT_THAT(Check({.allowed_tokens = mask}), StatusIs(kInvalid, "no bit set"));
  mask[6] = std::byte{0xfc};  // bits 50 to 55, beyond the vocabulary
  EXPECT_THAT(Check({.allowed_tokens = mask}), StatusIs(kInvalid, "no bit set"));
  mask[6] = std::byte{0x02};
  EXPECT_OK(Check({.allowed_tokens = mask}));
  mask.resize(8);
  EXPECT_THAT(Check({.allowed_tokens = mask}), StatusIs(kInvalid, "has 8 bytes; allowed: 7"));
}

TEST(SamplingParams, WhatIsLeftAtItsDefaultIsNoFeature) {
  using namespace kernels;
  const std::vector<uint32_t> stop = {1};
  EXPECT_EQ(FeaturesOf({}), 0u);
  EXPECT_EQ(FeaturesOf({.temperature = 1.0f, .seed = 9}), 0u);
  EXPECT_EQ(FeaturesOf({.temperature = 1.0f, .top_k = 1}), kFeatureTruncate);
  EXPECT_EQ(FeaturesOf({.temperature = 1.0f, .min_p = 0.1f}), kFeatureTruncate);
  EXPECT_EQ(FeaturesOf({.top_k = 5, .top_p = 0.5f}), 0u) << "greedy takes the first anyway";
  EXPECT_EQ(FeaturesOf({.frequency_penalty = -1.0f}), kFeaturePenalties);
  EXPECT_EQ(FeaturesOf({.stop_at_eos = true}), kFeatureStop);
  EXPECT_EQ(FeaturesOf({.max_new_tokens = 1}), kFeatureStop);
  EXPECT_EQ(FeaturesOf({.min_tokens = 4}), 0u) << "there is no stop token to keep out";
  EXPECT_EQ(FeaturesOf({.stop_tokens = stop, .min_tokens = 4}), kFeatureStop | kFeatureMinTokens);
}

TEST(SamplingParams, ARingEntryHasRoomForEveryRowsParameters) {
  for (const uint32_t vocab : {1u, 33u, 262144u}) {
    const std::vector<uint32_t> stop(64, 0), history(100, 0);
    const std::vector<TokenBias> bias(512);
    const std::vector<std::byte> mask((vocab + 7) / 8, std::byte{1});
    const RowAdd add{.sampling = {.presence_penalty = 1.0f,
                                  .logit_bias = bias,
                                  .allowed_tokens = mask,
                                  .stop_tokens = stop},
                     .blocks = {}};
    RowAdd with_history = add;
    with_history.history = history;
    kernels::StepLimits limits = Limits(vocab);
    limits.max_context_length = 100;
    EXPECT_LE(4 * SamplingWordsOf(add, vocab, kEos) + SamplingWordsOf(with_history, vocab, kEos),
              MaxSamplingWords(limits));
  }
}

class EntryBench {
 public:
  EntryBench()
      : layout(kernels::StepEntryLayout::For(4, 16, 6, Limits().max_sampling_bytes / 4)),
        rows(4, 6),
        ledger(100, kAnyContext),
        validator(Limits(), kEos, rows, ledger),
        writer(layout, 4, 0, kVocab, kEos, rows) {
    std::vector<uint32_t> all;
    EXPECT_OK(ledger.Allocate(1, 99, &all));
  }

  absl::Status Try(const StepDraft& draft) {
    const DraftView view(draft, SessionInfo{.id = 1}, 1);
    REPRISE_RETURN_IF_ERROR(validator.Validate(view.request(), list));
    bytes.assign(layout.bytes, std::byte{0xa5});
    writer.Begin(++sequence, bytes.data());
    writer.Add(view.request(), validator.staged(), list);
    writer.Finish();
    std::memcpy(&header, bytes.data(), sizeof(header));
    return absl::OkStatus();
  }
  kernels::RowEntry Entry(size_t i) const { return At<kernels::RowEntry>(layout.rows, i); }
  kernels::SamplingUpdate Update(size_t i) const {
    return At<kernels::SamplingUpdate>(layout.sampling_updates, i);
  }
  std::vector<uint32_t> Data(const kernels::SamplingUpdate& update) const {
    std::vector<uint32_t> words(update.count);
    std::memcpy(words.data(), bytes.data() + layout.sampling_data + update.offset * 4,
                words.size() * 4);
    return words;
  }
  template <typename T>
  T At(uint64_t offset, size_t i) const {
    T value;
    std::memcpy(&value, bytes.data() + offset + i * sizeof(T), sizeof(T));
    return value;
  }

  const kernels::StepEntryLayout layout;
  RowTable rows;
  engine::BlockLedger ledger;
  RowList list;
  StepValidator validator;
  StepWriter writer;
  std::vector<std::byte> bytes;
  kernels::StepHeader header;
  uint64_t sequence = 0;
};

TEST(SamplingEntry, CarriesWhatARowBringsAndNothingAfterwards) {
  EntryBench bench;
  const std::vector<uint32_t> stop = {1, 2, 3};
  const std::vector<TokenBias> bias = {{.token = 9, .bias = 2.5f}};
  std::vector<std::byte> mask(7, std::byte{0});
  mask[1] = std::byte{0x81};
  StepDraft draft{.add = {{.row = 1,
                           .blocks = {1, 2},
                           .context_length = 2,
                           .sampling = {.temperature = 1.0f,
                                        .top_k = 4,
                                        .min_p = 0.5f,
                                        .presence_penalty = 1.0f,
                                        .logit_bias = bias,
                                        .allowed_tokens = mask,
                                        .stop_tokens = stop,
                                        .stop_at_eos = true,
                                        .max_new_tokens = 2},
                           .history = {11, 12},
                           .prompt_length = 1}},
                  .chunks = {{.row = 1, .tokens = {4}}}};
  ASSERT_OK(bench.Try(draft));
  ASSERT_EQ(bench.header.num_sampling_updates, 5u);
  EXPECT_EQ(bench.Entry(0).flags >> kernels::kRowFeatureShift, FeaturesOf(draft.add[0].sampling));
  for (uint32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(bench.Update(i).kind, i);
    EXPECT_EQ(bench.Update(i).slot, bench.rows.Find(1, 1));
    EXPECT_EQ(bench.Update(i).offset % 4, 0u);
  }
  const auto sampling = bench.At<kernels::RowSampling>(bench.layout.sampling_data, 0);
  EXPECT_EQ(sampling.top_k, 4u);
  EXPECT_FLOAT_EQ(sampling.log_min_p, std::log(0.5f));
  EXPECT_EQ(sampling.presence, 1.0f);
  EXPECT_EQ(sampling.num_stop, 5u);
  EXPECT_EQ(sampling.num_bias, 1u);
  EXPECT_EQ(sampling.max_new_tokens, 2u);
  EXPECT_EQ(sampling.prompt_length, 1u);
  EXPECT_THAT(bench.Data(bench.Update(1)), ElementsAre(1, 2, 3, 7, 8));
  EXPECT_THAT(bench.Data(bench.Update(2)), ElementsAre(9, 0x40200000));
  EXPECT_THAT(bench.Data(bench.Update(3)), SizeIs(2));
  EXPECT_EQ(bench.Data(bench.Update(3))[0], 0x8100u);
  EXPECT_THAT(bench.Data(bench.Update(4)), ElementsAre(1, 11, 12));

  ASSERT_OK(bench.Try({.continue_rows = {1}}));
  EXPECT_EQ(bench.header.num_sampling_updates, 0u);
  EXPECT_EQ(bench.Entry(0).flags, kernels::kRowSample);
}

TEST(SamplingEntry, ANewMaskTravelsOnceAndItsFeatureWithTheNextRun) {
  EntryBench bench;
  ASSERT_OK(
      bench.Try({.add = {{.row = 1, .blocks = {1, 2, 3}}}, .chunks = {{.row = 1, .tokens = {4}}}}));
  EXPECT_EQ(bench.header.num_sampling_updates, 0u);
  const std::vector<std::byte> mask(7, std::byte{1});
  ASSERT_OK(bench.Try({.masks = {{.row = 1, .allowed_tokens = mask}}}));
  EXPECT_EQ(bench.header.num_sampling_updates, 1u);
  EXPECT_EQ(bench.header.num_rows, 0u);
  ASSERT_OK(bench.Try({.continue_rows = {1}}));
  constexpr uint32_t kMask = kernels::kFeatureMask << kernels::kRowFeatureShift;
  EXPECT_EQ(bench.Entry(0).flags, kernels::kRowSample | kernels::kRowFeatures | kMask);
  ASSERT_OK(bench.Try({.continue_rows = {1}, .masks = {{.row = 1, .allowed_tokens = mask}}}));
  EXPECT_EQ(bench.Entry(0).flags, kernels::kRowSample);
  ASSERT_OK(bench.Try({.continue_rows = {1}, .masks = {{.row = 1}}}));
  EXPECT_EQ(bench.header.num_sampling_updates, 0u);
  EXPECT_EQ(bench.Entry(0).flags, kernels::kRowSample | kernels::kRowFeatures);
  EXPECT_THAT(bench.Try({.masks = {{.row = 2}}}), StatusIs(absl::StatusCode::kNotFound, "row 2"));
  EXPECT_THAT(bench.Try({.masks = {{.row = 1}, {.row = 1}}}), StatusIs(kInvalid, "named twice"));
}

TEST(SamplingEntry, MoreParametersThanAnEntryHolds) {
  EntryBench bench;
  const std::vector<TokenBias> bias = [] {
    std::vector<TokenBias> all;
    for (uint32_t t = 0; t < kVocab; ++t) all.push_back({.token = t, .bias = 1.0f});
    return all;
  }();
  StepDraft draft;
  for (uint32_t row = 0; row < 4; ++row)
    draft.add.push_back({.row = row, .sampling = {.logit_bias = bias}});
  EXPECT_THAT(bench.Try(draft), StatusIs(kRange, "take 1856 bytes; allowed: at most 1600"));
  draft.add.pop_back();
  EXPECT_OK(bench.Try(draft));
}

TEST(SamplingEntry, ARowWhoseBudgetIsUsedUpTakesNoMoreRoom) {
  EntryBench bench;
  // Room for 8 tokens; the budget ends before.
  ASSERT_OK(bench.Try({.add = {{.row = 1, .blocks = {1, 2}, .sampling = {.max_new_tokens = 3}}},
                       .chunks = {{.row = 1, .tokens = {4, 5, 6}}}}));
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(bench.Try({.continue_all = true}));
    EXPECT_EQ(bench.header.num_rows, 1u);
  }
  const RowState& state = bench.rows.state(bench.rows.Find(1, 1));
  EXPECT_TRUE(state.stopped);
  EXPECT_EQ(state.context_length, 5u);
  // All-that-can is nobody then, which is no mistake of whoever could not know yet.
  ASSERT_OK(bench.Try({.continue_all = true}));
  EXPECT_EQ(bench.header.num_rows, 0u);
  for (int i = 0; i < 20; ++i) ASSERT_OK(bench.Try({.continue_rows = {1}}));
  EXPECT_EQ(bench.header.num_rows, 1u);
  EXPECT_EQ(state.context_length, 5u);
  ASSERT_OK(bench.Try({.drop = {1}}));
  EXPECT_THAT(bench.Try({.continue_all = true}), StatusIs(kInvalid, "names no row"));
}

TEST(SamplingEntry, PromptLogprobsKeepAStepOutOfDecodeGraphs) {
  EntryBench bench;
  ASSERT_OK(bench.Try({.add = {{.row = 1, .blocks = {1, 2}}}}));
  ASSERT_OK(bench.Try({.chunks = {{.row = 1, .tokens = {4}, .prompt_logprobs = true}}}));
  EXPECT_TRUE(bench.validator.staged().all_single) << "nothing follows its only token";
  EXPECT_EQ(bench.Entry(0).flags & kernels::kRowPromptLogprobs, 0u);
  ASSERT_OK(
      bench.Try({.chunks = {{.row = 1, .tokens = {5}, .prompt_logprobs = true, .next_token = 6}}}));
  EXPECT_FALSE(bench.validator.staged().all_single);
  EXPECT_EQ(bench.header.num_tokens, 1u);
  EXPECT_EQ(bench.header.num_given_tokens, 2u);
  EXPECT_EQ(bench.At<uint32_t>(bench.layout.tokens, 1), 6u);
  constexpr uint32_t kWant = kernels::kRowPromptLogprobs | kernels::kRowNextGiven;
  EXPECT_EQ(bench.Entry(0).flags & kWant, kWant);
  EXPECT_THAT(bench.Try({.chunks = {{.row = 1, .tokens = {5}, .next_token = 6}}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "chunk: row 1: next_token is set without prompt_logprobs"));
}

}  // namespace
}  // namespace reprise::engine
