// SPDX-License-Identifier: Apache-2.0
// The step workspace: exact bytes, regions of the promised sizes that do not overlap, zeroed state.
#include "engine/workspace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/attention/attention_args.h"
#include "kernels/linear/linear.h"
#include "tests/testing/any_device.h"
#include "tests/testing/instrumented_device.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::runtime::DType;

models::ModelSpec Spec() {
  models::ModelSpec spec;
  spec.vocab_size = 4099;
  spec.hidden_size = 40;
  spec.intermediate_size = 56;
  spec.num_layers = 2;
  spec.num_heads = 6;
  spec.num_kv_heads = 2;
  spec.head_dim = 24;
  spec.max_position_embeddings = 512;
  return spec;
}

struct Region {
  const char* name;
  const void* begin;
  size_t bytes;
};

// Every region that a step works in, with the bytes that its contract speaks of.
std::vector<Region> Regions(const StepWorkspace& w, const models::ModelSpec& spec, DType dtype,
                            const kernels::StepLimits& limits) {
  const size_t rows = limits.max_rows, tokens = limits.max_step_tokens;
  const size_t element = runtime::SizeOf(dtype);
  const size_t splits = w.split.max_splits, heads = static_cast<size_t>(spec.num_heads);
  const auto hidden = static_cast<size_t>(spec.hidden_size);
  const auto inter = static_cast<size_t>(spec.intermediate_size);
  const auto vocab = static_cast<size_t>(spec.vocab_size);
  const auto head_dim = static_cast<size_t>(spec.head_dim);
  const size_t q_tokens = StepWorkspace::PrefillQueryTokens(spec);
  const size_t chunks = (vocab + kernels::kSampleChunk - 1) / kernels::kSampleChunk;
  return {
      {"counts", w.plan.counts, sizeof(kernels::PlanCounts)},
      {"entries", w.plan.entries, rows * sizeof(kernels::RowEntry)},
      {"given_tokens", w.plan.given_tokens, tokens * 4},
      {"query_start", w.plan.query_start, (rows + 1) * 4},
      {"context_before", w.plan.context_before, rows * 4},
      {"token_id", w.plan.token_id, tokens * 4},
      {"token_position", w.plan.token_position, tokens * 4},
      {"token_block", w.plan.token_block, tokens * 4},
      {"token_offset", w.plan.token_offset, tokens * 4},
      {"sampled_entry", w.plan.sampled_entry, rows * 4},
      {"sampled_token", w.plan.sampled_token, rows * 4},
      {"decode_items", w.plan.decode_items, rows * splits * sizeof(kernels::AttentionItem)},
      {"prefill_items", w.plan.prefill_items,
       (tokens / q_tokens + rows) * sizeof(kernels::AttentionItem)},
      {"context_length", w.rows.context_length, rows * 4},
      {"last_token", w.rows.last_token, rows * 4},
      {"temperature", w.rows.temperature, rows * 4},
      {"seed", w.rows.seed, rows * 8},
      {"block_table", w.rows.block_table, rows * limits.max_blocks_per_row * 4},
      {"step_count", w.step_count, 8},
      {"residual", w.residual, tokens * hidden * element},
      {"normed", w.normed, tokens * hidden * element},
      {"qkv", w.qkv, tokens * static_cast<size_t>(spec.qkv_size()) * element},
      {"q", w.q, tokens * heads * head_dim * element},
      {"attention", w.attention, tokens * heads * head_dim * element},
      {"branch", w.branch, tokens * hidden * element},
      {"gate_up", w.gate_up, tokens * 2 * inter * element},
      {"activated", w.activated, tokens * inter * element},
      {"rope", w.rope, tokens * head_dim * 4},
      {"logits", w.logits, rows * vocab * 4},
      {"sampled_hidden", w.sampled_hidden, rows * hidden * element},
      {"partial_out", w.partial_out, rows * splits * heads * head_dim * 4},
      {"partial_max", w.partial_max, rows * splits * heads * 4},
      {"partial_sum", w.partial_sum, rows * splits * heads * 4},
      {"arrivals", w.arrivals, rows * static_cast<size_t>(spec.num_kv_heads) * 4},
      {"sample_partials", w.sample_partials, rows * chunks * sizeof(kernels::SamplePartial)},
      {"sampled_token_id", w.sampled_token_id, rows * 4},
      {"sampled_logprob", w.sampled_logprob, rows * 4},
      {"result_staging", w.result_staging, rows * sizeof(kernels::RowResult)},
  };
}

class WorkspaceTest : public ::testing::TestWithParam<runtime::DeviceKind> {
 protected:
  struct Made {
    std::unique_ptr<testing::InstrumentedDevice> device;
    std::unique_ptr<runtime::Stream> stream;
    std::unique_ptr<kernels::KernelSet> kernels;
    StepWorkspace workspace;
  };
  void SetUp() override {
    if (const std::string why = testing::WhyNoDevice(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
  static void Make(DType dtype, const kernels::StepLimits& limits, Made* made) {
    ASSERT_OK_AND_ASSIGN(auto inner, testing::MakeDevice(GetParam()));
    made->device = std::make_unique<testing::InstrumentedDevice>(std::move(inner));
    ASSERT_OK_AND_ASSIGN(made->stream, made->device->CreateStream());
    ASSERT_OK_AND_ASSIGN(made->kernels, kernels::KernelSet::Load(*made->device, dtype));
    ASSERT_OK_AND_ASSIGN(made->workspace, StepWorkspace::Create(*made->device, *made->stream,
                                                                Spec(), *made->kernels, limits));
  }
};
REPRISE_ON_EVERY_DEVICE(WorkspaceTest);

constexpr kernels::StepLimits kLimits[] = {
    {.max_rows = 1, .max_blocks_per_row = 1, .max_step_tokens = 1},
    {.max_rows = 3, .max_blocks_per_row = 7, .max_step_tokens = 70},
    {.max_rows = 64, .max_blocks_per_row = 33, .max_step_tokens = 64},
    {.max_rows = 5, .max_blocks_per_row = 2, .max_step_tokens = 3}};

TEST_P(WorkspaceTest, BytesForIsExactlyWhatCreateAllocates) {
  for (const kernels::StepLimits& limits : kLimits) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      Made made;
      ASSERT_NO_FATAL_FAILURE(Make(dtype, limits, &made));
      ASSERT_OK_AND_ASSIGN(const size_t bytes,
                           StepWorkspace::BytesFor(Spec(), *made.kernels, limits));
      EXPECT_EQ(made.workspace.bytes(), bytes);
      EXPECT_EQ(made.device->device_bytes(), bytes);
    }
  }
}

TEST_P(WorkspaceTest, RegionsHoldWhatTheyPromiseAndDoNotOverlap) {
  for (const kernels::StepLimits& limits : kLimits) {
    for (const DType dtype : {DType::kF32, DType::kF16}) {
      Made made;
      ASSERT_NO_FATAL_FAILURE(Make(dtype, limits, &made));
      const StepWorkspace& w = made.workspace;
      EXPECT_EQ(w.rows.max_blocks_per_row, limits.max_blocks_per_row);
      std::vector<Region> regions = Regions(w, Spec(), dtype, limits);
      const size_t partials = kernels::LinearPartialFloats(*made.kernels, limits.max_step_tokens);
      if (partials > 0) {
        regions.push_back({"linear_partials", w.linear_partials, partials * 4});
        regions.push_back(
            {"linear_counters", w.linear_counters,
             kernels::LinearNumCounters(*made.kernels, static_cast<uint32_t>(Spec().vocab_size)) *
                 4});
      }
      std::sort(regions.begin(), regions.end(),
                [](const Region& a, const Region& b) { return a.begin < b.begin; });
      for (size_t i = 0; i < regions.size(); ++i) {
        const auto begin = reinterpret_cast<uintptr_t>(regions[i].begin);
        EXPECT_EQ(begin % 16, 0u) << regions[i].name;
        ASSERT_NE(begin, 0u) << regions[i].name;
        const uintptr_t end = begin + regions[i].bytes;
        if (i + 1 < regions.size()) {
          EXPECT_LE(end, reinterpret_cast<uintptr_t>(regions[i + 1].begin))
              << regions[i].name << " runs into " << regions[i + 1].name;
        } else {
          EXPECT_LE(end, reinterpret_cast<uintptr_t>(regions[0].begin) + w.bytes());
        }
      }
    }
  }
}

TEST_P(WorkspaceTest, StartsAtZero) {
  Made made;
  ASSERT_NO_FATAL_FAILURE(Make(DType::kBf16, {4, 32, 8}, &made));
  const StepWorkspace& w = made.workspace;
  uint64_t step_count = 1;
  std::vector<uint32_t> arrivals(4 * 2, 1), lengths(4, 1);
  ASSERT_OK(made.stream->CopyToHost(&step_count, w.step_count, sizeof(step_count)));
  ASSERT_OK(made.stream->CopyToHost(arrivals.data(), w.arrivals, arrivals.size() * 4));
  ASSERT_OK(made.stream->CopyToHost(lengths.data(), w.rows.context_length, lengths.size() * 4));
  ASSERT_OK(made.stream->Synchronize());
  EXPECT_EQ(step_count, 0u);
  EXPECT_EQ(arrivals, std::vector<uint32_t>(arrivals.size(), 0));
  EXPECT_EQ(lengths, std::vector<uint32_t>(lengths.size(), 0));
}

// Poison mode fills this range before every step: it must hold every activation, and nothing that
// lives longer than a step.
TEST_P(WorkspaceTest, ActivationRangeIsTheActivationsAlone) {
  const kernels::StepLimits limits{.max_rows = 6, .max_blocks_per_row = 9, .max_step_tokens = 50};
  Made made;
  ASSERT_NO_FATAL_FAILURE(Make(DType::kBf16, limits, &made));
  const StepWorkspace& w = made.workspace;
  const auto begin = reinterpret_cast<uintptr_t>(w.activations);
  const uintptr_t end = begin + static_cast<size_t>(w.activation_elements) * 2;
  int num_inside = 0;
  for (const Region& region : Regions(w, Spec(), DType::kBf16, limits)) {
    const auto at = reinterpret_cast<uintptr_t>(region.begin);
    const bool inside = at >= begin && at + region.bytes <= end;
    const bool outside = at + region.bytes <= begin || at >= end;
    EXPECT_TRUE(inside || outside) << region.name;
    const std::string name = region.name;
    const bool activation = name == "residual" || name == "normed" || name == "qkv" ||
                            name == "q" || name == "attention" || name == "branch" ||
                            name == "gate_up" || name == "activated" || name == "sampled_hidden";
    EXPECT_EQ(inside, activation) << name;
    num_inside += inside;
  }
  EXPECT_EQ(num_inside, 9);
}

TEST(Workspace, PrefillItemHoldsAsManyQueryTokensAsItsRowsAllow) {
  models::ModelSpec spec = Spec();
  EXPECT_EQ(StepWorkspace::PrefillQueryTokens(spec), kernels::kPrefillRows / 3);
  spec.num_kv_heads = 6;
  EXPECT_EQ(StepWorkspace::PrefillQueryTokens(spec), static_cast<uint32_t>(kernels::kPrefillRows));
  spec.num_heads = 2 * kernels::kPrefillRows;
  spec.num_kv_heads = 1;
  EXPECT_EQ(StepWorkspace::PrefillQueryTokens(spec), 1u);
}

}  // namespace
}  // namespace reprise::engine
