// SPDX-License-Identifier: Apache-2.0
#include "engine/step_state.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "kernels/attention/attention.h"
#include "kernels/plan/plan.h"
#include "models/kv_pool.h"
#include "runtime/status_macros.h"

namespace reprise::engine {
namespace {

uint32_t MaskWords(const models::ModelSpec& spec) {
  return static_cast<uint32_t>((spec.vocab_size + 31) / 32);
}

}  // namespace

void StepState::ChoosePlan(const models::Decoder& decoder, const kernels::KernelSet& kernels,
                           runtime::DType kv_dtype, const kernels::StepLimits& limits) {
  const models::ModelSpec& spec = decoder.spec();
  const auto geometry = models::KvGeometry::For(spec, limits.block_size, kv_dtype);
  max_rows = limits.max_rows;
  attention = decoder.attention_plan();
  attention.num_kv_heads = static_cast<uint32_t>(spec.num_kv_heads);
  const auto num_heads = static_cast<int32_t>(spec.num_heads);
  kernels::KvLayout layout = geometry.layout();
  attention.num_shares = kernels::NumDecodeShares(kernels, num_heads, layout);
  layout.swizzled = attention.num_shares != 0;
  attention.prefill_q_tokens = kernels::PrefillQueryTokens(
      spec.num_heads / spec.num_kv_heads, kernels::NumPrefillRows(kernels, num_heads, layout));
  attention.min_tile_tokens = limits.min_shared_tokens;
  if (limits.min_shared_tokens != 0)
    attention.tile_members = kernels::TileMembers(kernels, num_heads, layout);
}

void StepState::DeclarePlan(const kernels::StepLimits& limits, runtime::BufferPlan& buffers) {
  const size_t rows = limits.max_rows, tokens = limits.max_step_tokens;
  const size_t prompts = limits.max_prompt_logprobs;
  const size_t sampled = rows + limits.max_draft_tokens;
  buffers.Add(&plan.counts, 1, "plan.counts");
  buffers.Add(&plan.given_rows, rows, "plan.given_rows");
  buffers.Add(&plan.entries, rows, "plan.entries");
  buffers.Add(&plan.given_tokens, tokens + rows, "plan.given_tokens");
  buffers.Add(&plan.prefix, rows, "plan.prefix");
  buffers.Add(&plan.query_start, rows + 1, "plan.query_start");
  buffers.Add(&plan.context_before, rows, "plan.context_before");
  buffers.Add(&plan.token_id, tokens, "plan.token_id");
  buffers.Add(&plan.token_position, tokens, "plan.token_position");
  buffers.Add(&plan.token_block, tokens, "plan.token_block");
  buffers.Add(&plan.token_offset, tokens, "plan.token_offset");
  buffers.Add(&plan.sampled_entry, sampled, "plan.sampled_entry");
  buffers.Add(&plan.sampled_token, sampled + prompts, "plan.sampled_token");
  buffers.Add(&plan.logits_place, limits.max_logit_rows == 0 ? 0 : sampled, "plan.logits_place");
  buffers.Add(&plan.prompt_entry, prompts, "plan.prompt_entry");
  buffers.Add(&plan.prompt_target, prompts, "plan.prompt_target");
  for (uint32_t w = 0; w < attention.num_windows; ++w) DeclareLists(limits, w, buffers);
  buffers.Add(&plan.attention_leaf, rows, "plan.attention_leaf");
  buffers.Add(&attention_tree, 1, "attention_tree");
}

void StepState::DeclareLists(const kernels::StepLimits& limits, uint32_t window,
                             runtime::BufferPlan& buffers) {
  const size_t rows = limits.max_rows;
  const bool dealt = attention.num_shares != 0;
  kernels::AttentionLists& lists = plan.attention[window];
  const auto add = [&](auto** list, size_t count, const char* name) {
    buffers.Add(list, count, absl::StrCat("plan.attention[", window, "].", name));
  };
  add(&lists.decode_items, dealt ? 0 : kernels::MaxDecodeItems(rows, attention.max_splits),
      "decode_items");
  add(&lists.decode_rows, dealt ? 2 * rows : 0, "decode_rows");
  add(&lists.prefix_members, attention.tile_members != 0 ? rows : 0, "prefix_members");
  add(&lists.decode_shares, attention.num_shares, "decode_shares");
  add(&lists.prefill_items,
      kernels::MaxPrefillItems(rows, limits.max_step_tokens, attention.max_splits),
      "prefill_items");
}

void StepState::DeclareRows(const models::ModelSpec& spec, const kernels::StepLimits& limits,
                            runtime::BufferPlan& buffers) {
  const size_t max_rows = limits.max_rows;
  const size_t adjusting = limits.adjust_logits ? max_rows : 0;
  buffers.Add(&rows.context_length, max_rows, "rows.context_length");
  buffers.Add(&rows.last_token, max_rows, "rows.last_token");
  buffers.Add(&rows.temperature, max_rows, "rows.temperature");
  buffers.Add(&rows.seed, max_rows, "rows.seed");
  buffers.Add(&rows.block_table, max_rows * limits.max_blocks_per_row, "rows.block_table");
  buffers.Add(&progress, 1, "progress");
  buffers.Add(&rows.life, max_rows, "rows.life");
  buffers.Add(&rows.sampling, max_rows, "rows.sampling");
  buffers.Add(&rows.stop_token, max_rows * kernels::kMaxStopTokens, "rows.stop_token");
  buffers.Add(&rows.bias, adjusting * kernels::kMaxLogitBias, "rows.bias");
  buffers.Add(&rows.mask, adjusting * MaskWords(spec), "rows.mask");
  buffers.Add(&rows.history, adjusting * static_cast<size_t>(spec.vocab_size), "rows.history");
  rows.max_blocks_per_row = limits.max_blocks_per_row;
  rows.mask_words = MaskWords(spec);
  rows.vocab = static_cast<uint32_t>(spec.vocab_size);
}

void StepState::DeclareSampling(const models::ModelSpec& spec, const kernels::StepLimits& limits,
                                runtime::BufferPlan& buffers) {
  const size_t sampled = size_t{limits.max_rows} + limits.max_draft_tokens;
  const auto vocab = static_cast<size_t>(spec.vocab_size);
  const size_t adjusting = limits.adjust_logits ? sampled : 0;
  const size_t chunks = (vocab + kernels::kSampleChunk - 1) / kernels::kSampleChunk;
  buffers.Add(&sample_partials, models::MaxLogits(limits) * chunks, "sample.partials");
  buffers.Add(&adjusted_logits, adjusting * vocab, "sample.adjusted");
  buffers.Add(&adjusted_partials, adjusting * chunks, "sample.adjusted_partials");
  buffers.Add(&sample_cut, sampled, "sample.cut");
  buffers.Add(&sampled_token_id, sampled, "sample.token_id");
  buffers.Add(&sampled_logprob, sampled, "sample.logprob");
  buffers.Add(&result_staging, limits.max_rows, "result_staging");
  max_draft_tokens = limits.max_draft_tokens;
  max_prompt_logprobs = limits.max_prompt_logprobs;
  result_layout = kernels::ResultEntryLayout::For(
      limits.max_rows, limits.max_logprobs != 0 ? models::MaxLogits(limits) : 0,
      limits.max_logit_rows, vocab, limits.max_draft_tokens != 0 ? sampled : 0);
}

absl::StatusOr<std::unique_ptr<StepState>> StepState::Create(
    runtime::Device& device, runtime::Stream& stream, models::Decoder& decoder,
    const kernels::KernelSet& kernels, runtime::DType kv_dtype, const kernels::StepLimits& limits) {
  std::unique_ptr<StepState> state(new StepState());
  // What is enqueued writes there, also where the next call fails.
  absl::Cleanup wait = [&stream] { stream.Synchronize().IgnoreError(); };
  runtime::BufferPlan buffers, activations;
  state->ChoosePlan(decoder, kernels, kv_dtype, limits);
  state->DeclarePlan(limits, buffers);
  state->DeclareRows(decoder.spec(), limits, buffers);
  decoder.DeclareBuffers(
      {.kernels = kernels, .limits = limits, .activations = activations, .scratch = buffers});
  state->DeclareSampling(decoder.spec(), limits, buffers);
  REPRISE_ASSIGN_OR_RETURN(state->state_, buffers.Allocate(device));
  REPRISE_ASSIGN_OR_RETURN(state->activations_, activations.Allocate(device));
  for (const runtime::Arena* arena : {&state->state_, &state->activations_})
    REPRISE_RETURN_IF_ERROR(stream.Fill(arena->data(), 0, arena->bytes()));
  state->attention.tree = state->attention_tree;
  REPRISE_RETURN_IF_ERROR(
      kernels::SetAttentionTree(stream, kernels, kernels::AttentionTree(), state->attention_tree));
  REPRISE_RETURN_IF_ERROR(stream.Synchronize());
  std::move(wait).Cancel();
  return state;
}

}  // namespace reprise::engine
