// SPDX-License-Identifier: Apache-2.0
// The memory that steps work in: exact bytes, buffers of the promised sizes that do not overlap,
// zeros at the start, activations apart from what lives longer than a step.
#include "engine/step_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/any_device.h"
#include "tests/testing/instrumented_device.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::runtime::DType;

models::ModelSpec Spec() {
  models::ModelSpec spec;
  spec.architecture = "llama";
  spec.attention_multiplier = 1.0;
  spec.vocab_size = 4099;
  spec.hidden_size = 40;
  spec.intermediate_size = 56;
  spec.num_layers = 2;
  spec.num_heads = 6;
  spec.num_kv_heads = 2;
  spec.head_dim = 24;
  spec.max_position_embeddings = 512;
  spec.sliding_window = 20;
  spec.slides = {true, false};
  return spec;
}

struct Region {
  const char* name;
  const void* begin;
  size_t bytes;
};

// Every buffer of the state, with the bytes that its contract speaks of.
std::vector<Region> Regions(const StepState& s, const models::Decoder& decoder,
                            const kernels::StepLimits& limits) {
  const size_t rows = limits.max_rows, tokens = limits.max_step_tokens;
  const size_t prompts = limits.max_prompt_logprobs;
  const size_t sampled = rows + limits.max_draft_tokens;
  const auto vocab = static_cast<size_t>(decoder.spec().vocab_size);
  const auto& attention = decoder.attention_plan();
  const size_t chunks = (vocab + kernels::kSampleChunk - 1) / kernels::kSampleChunk;
  std::vector<Region> regions = {
      {"counts", s.plan.counts, sizeof(kernels::PlanCounts)},
      {"given_rows", s.plan.given_rows, rows * sizeof(kernels::RowEntry)},
      {"entries", s.plan.entries, rows * sizeof(kernels::RowEntry)},
      {"given_tokens", s.plan.given_tokens, (tokens + rows) * 4},
      {"query_start", s.plan.query_start, (rows + 1) * 4},
      {"context_before", s.plan.context_before, rows * 4},
      {"token_id", s.plan.token_id, tokens * 4},
      {"token_position", s.plan.token_position, tokens * 4},
      {"token_block", s.plan.token_block, tokens * 4},
      {"token_offset", s.plan.token_offset, tokens * 4},
      {"sampled_entry", s.plan.sampled_entry, sampled * 4},
      {"sampled_token", s.plan.sampled_token, (sampled + prompts) * 4},
      {"attention_leaf", s.plan.attention_leaf, rows * 4},
      {"attention_tree", s.attention_tree, sizeof(kernels::AttentionTree)},
      {"context_length", s.rows.context_length, rows * 4},
      {"last_token", s.rows.last_token, rows * 4},
      {"temperature", s.rows.temperature, rows * 4},
      {"seed", s.rows.seed, rows * 8},
      {"block_table", s.rows.block_table, rows * limits.max_blocks_per_row * 4},
      {"life", s.rows.life, rows * sizeof(kernels::RowLife)},
      {"sampling", s.rows.sampling, rows * sizeof(kernels::RowSampling)},
      {"stop_token", s.rows.stop_token, rows * kernels::kMaxStopTokens * 4},
      {"progress", s.progress, sizeof(kernels::StepProgress)},
      {"logits", decoder.logits(), (sampled + prompts) * vocab * 4},
      {"sample_partials", s.sample_partials,
       (sampled + prompts) * chunks * sizeof(kernels::SamplePartial)},
      {"sample_cut", s.sample_cut, sampled * sizeof(kernels::SampleCut)},
      {"sampled_token_id", s.sampled_token_id, sampled * 4},
      {"sampled_logprob", s.sampled_logprob, sampled * 4},
      {"result_staging", s.result_staging, rows * sizeof(kernels::RowResult)},
  };
  for (const kernels::AttentionLists& lists : s.plan.attention) {
    regions.push_back({"decode_items", lists.decode_items,
                       rows * attention.max_splits * sizeof(*lists.decode_items)});
    regions.push_back(
        {"prefill_items", lists.prefill_items,
         (tokens + rows * (attention.max_splits / 2)) * sizeof(*lists.prefill_items)});
  }
  if (prompts > 0) {
    regions.push_back({"prompt_entry", s.plan.prompt_entry, prompts * 4});
    regions.push_back({"prompt_target", s.plan.prompt_target, prompts * 4});
  }
  if (limits.max_logit_rows > 0)
    regions.push_back({"logits_place", s.plan.logits_place, sampled * 4});
  if (limits.adjust_logits) {
    regions.push_back(
        {"bias", s.rows.bias, rows * kernels::kMaxLogitBias * sizeof(kernels::LogitBias)});
    regions.push_back({"mask", s.rows.mask, rows * ((vocab + 31) / 32) * 4});
    regions.push_back({"history", s.rows.history, rows * vocab * 4});
    regions.push_back({"adjusted", s.adjusted_logits, sampled * vocab * 4});
    regions.push_back({"adjusted_partials", s.adjusted_partials,
                       sampled * chunks * sizeof(kernels::SamplePartial)});
  }
  return regions;
}

class StepStateTest : public ::testing::TestWithParam<runtime::DeviceKind> {
 protected:
  struct Made {
    std::unique_ptr<testing::InstrumentedDevice> device;
    std::unique_ptr<runtime::Stream> stream;
    std::unique_ptr<kernels::KernelSet> kernels;
    std::unique_ptr<models::Decoder> decoder;
    std::unique_ptr<StepState> state;
  };
  void SetUp() override {
    if (const std::string why = testing::WhyNoDevice(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
  static void Make(DType dtype, const kernels::StepLimits& limits, Made* made) {
    ASSERT_OK_AND_ASSIGN(auto inner, testing::MakeDevice(GetParam()));
    made->device = std::make_unique<testing::InstrumentedDevice>(std::move(inner));
    ASSERT_OK_AND_ASSIGN(made->stream, made->device->CreateStream());
    ASSERT_OK_AND_ASSIGN(made->kernels, kernels::KernelSet::Load(*made->device, dtype));
    ASSERT_OK_AND_ASSIGN(made->decoder, models::Decoder::Create(Spec()));
    ASSERT_OK_AND_ASSIGN(
        made->state, StepState::Create(*made->device, *made->stream, *made->decoder, *made->kernels,
                                       dtype, limits));
  }
};
REPRISE_ON_EVERY_DEVICE(StepStateTest);

constexpr kernels::StepLimits kLimits[] = {
    {.max_rows = 1, .max_blocks_per_row = 1, .max_step_tokens = 1},
    {.max_rows = 3, .max_blocks_per_row = 7, .max_step_tokens = 70},
    {.max_rows = 64, .max_blocks_per_row = 33, .max_step_tokens = 64},
    {.max_rows = 5,
     .max_blocks_per_row = 2,
     .max_step_tokens = 3,
     .adjust_logits = true,
     .max_logit_rows = 2,
     .max_prompt_logprobs = 3,
     .max_draft_tokens = 2,
     .max_logprobs = 1}};

TEST_P(StepStateTest, BytesAreExactlyWhatWasAllocated) {
  for (const kernels::StepLimits& limits : kLimits) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      Made made;
      ASSERT_NO_FATAL_FAILURE(Make(dtype, limits, &made));
      EXPECT_EQ(made.device->device_bytes(), made.state->bytes());
    }
  }
}

TEST_P(StepStateTest, BuffersHoldWhatTheyPromiseAndDoNotOverlap) {
  for (const kernels::StepLimits& limits : kLimits) {
    Made made;
    ASSERT_NO_FATAL_FAILURE(Make(DType::kF16, limits, &made));
    const StepState& s = *made.state;
    EXPECT_EQ(s.rows.max_blocks_per_row, limits.max_blocks_per_row);
    std::vector<Region> regions = Regions(s, *made.decoder, limits);
    std::sort(regions.begin(), regions.end(),
              [](const Region& a, const Region& b) { return a.begin < b.begin; });
    auto end = reinterpret_cast<uintptr_t>(s.state().data());
    for (const Region& region : regions) {
      const auto begin = reinterpret_cast<uintptr_t>(region.begin);
      EXPECT_EQ(begin % 16, 0u) << region.name;
      EXPECT_GE(begin, end) << region.name << " begins within another";
      end = begin + region.bytes;
    }
    EXPECT_LE(end, reinterpret_cast<uintptr_t>(s.state().data()) + s.state().bytes());
  }
}

// Overwrites the default tree, which must be there, with zeros.
void ClearTree(const StepState& state, const runtime::Arena& arena,
               std::vector<unsigned char>& bytes) {
  const kernels::AttentionTree tree;
  const auto at = static_cast<size_t>(reinterpret_cast<const std::byte*>(state.attention_tree) -
                                      static_cast<const std::byte*>(arena.data()));
  if (at >= bytes.size()) return;  // in the other one
  EXPECT_EQ(std::memcmp(bytes.data() + at, &tree, sizeof(tree)), 0);
  std::memset(bytes.data() + at, 0, sizeof(tree));
}

TEST_P(StepStateTest, StartsAtZeroButForTheDefaultTree) {
  Made made;
  ASSERT_NO_FATAL_FAILURE(Make(DType::kBf16, kLimits[1], &made));
  for (const runtime::Arena* arena : {&made.state->state(), &made.state->activations()}) {
    std::vector<unsigned char> bytes(arena->bytes(), 1);
    ASSERT_OK(made.stream->CopyToHost(bytes.data(), arena->data(), bytes.size()));
    ASSERT_OK(made.stream->Synchronize());
    ClearTree(*made.state, *arena, bytes);
    EXPECT_EQ(bytes, std::vector<unsigned char>(bytes.size(), 0));
  }
}

// Poison mode fills the activations before every step: nothing of the state may lie there.
TEST_P(StepStateTest, NothingThatLivesLongerThanAStepIsAmongTheActivations) {
  Made made;
  ASSERT_NO_FATAL_FAILURE(Make(DType::kBf16, kLimits[3], &made));
  const auto begin = reinterpret_cast<uintptr_t>(made.state->activations().data());
  const uintptr_t end = begin + made.state->activations().bytes();
  for (const Region& region : Regions(*made.state, *made.decoder, kLimits[3])) {
    const auto at = reinterpret_cast<uintptr_t>(region.begin);
    EXPECT_TRUE(at + region.bytes <= begin || at >= end) << region.name;
  }
}

}  // namespace
}  // namespace reprise::engine
