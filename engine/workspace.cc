// SPDX-License-Identifier: Apache-2.0
#include "engine/workspace.h"

#include <algorithm>
#include <cstddef>

#include "kernels/attention/attention_args.h"
#include "kernels/linear/linear.h"
#include "runtime/status_macros.h"

namespace reprise::engine {
namespace {

using runtime::ArenaHandle;
using runtime::ArenaLayout;

// Every region by handle; the one place where sizes are written down.
struct Handles {
  ArenaLayout layout;
  ArenaHandle<kernels::PlanCounts> counts;
  ArenaHandle<kernels::RowEntry> entries;
  ArenaHandle<uint32_t> given_tokens, query_start, context_before, token_id, token_position;
  ArenaHandle<uint32_t> token_block, token_offset, sampled_entry, sampled_token;
  ArenaHandle<kernels::AttentionItem> decode_items, prefill_items;
  ArenaHandle<uint32_t> context_length, last_token, block_table;
  ArenaHandle<float> temperature;
  ArenaHandle<uint64_t> seed, step_count;
  ArenaHandle<kernels::RowLife> life;
  ArenaHandle<kernels::RowSampling> sampling;
  ArenaHandle<uint32_t> stop_token, mask, history, logits_place, prompt_entry, prompt_target;
  ArenaHandle<kernels::LogitBias> bias;
  ArenaHandle<float> adjusted;
  ArenaHandle<kernels::SamplePartial> adjusted_partials;
  ArenaHandle<kernels::SampleCut> cut;
  ArenaHandle<std::byte> residual, normed, qkv, q, attention, branch, gate_up, activated;
  ArenaHandle<std::byte> sampled_hidden;
  ArenaHandle<float> rope, logits, partial_out, partial_max, partial_sum, linear_partials;
  ArenaHandle<uint32_t> arrivals, linear_counters, sampled_token_id;
  ArenaHandle<float> sampled_logprob;
  ArenaHandle<kernels::SamplePartial> sample_partials;
  ArenaHandle<kernels::RowResult> result_staging;
  size_t activations_end = 0;
};

void AddPlan(const models::ModelSpec& spec, const kernels::StepLimits& limits, uint32_t max_splits,
             Handles& h) {
  const size_t rows = limits.max_rows, tokens = limits.max_step_tokens;
  h.counts = h.layout.Add<kernels::PlanCounts>(1, "plan.counts");
  h.entries = h.layout.Add<kernels::RowEntry>(rows, "plan.entries");
  h.given_tokens = h.layout.Add<uint32_t>(tokens + rows, "plan.given_tokens");
  h.query_start = h.layout.Add<uint32_t>(rows + 1, "plan.query_start");
  h.context_before = h.layout.Add<uint32_t>(rows, "plan.context_before");
  h.token_id = h.layout.Add<uint32_t>(tokens, "plan.token_id");
  h.token_position = h.layout.Add<uint32_t>(tokens, "plan.token_position");
  h.token_block = h.layout.Add<uint32_t>(tokens, "plan.token_block");
  h.token_offset = h.layout.Add<uint32_t>(tokens, "plan.token_offset");
  h.sampled_entry = h.layout.Add<uint32_t>(rows, "plan.sampled_entry");
  h.sampled_token = h.layout.Add<uint32_t>(rows + limits.max_prompt_logprobs, "plan.sampled_token");
  h.logits_place =
      h.layout.Add<uint32_t>(limits.max_logit_rows == 0 ? 0 : rows, "plan.logits_place");
  h.prompt_entry = h.layout.Add<uint32_t>(limits.max_prompt_logprobs, "plan.prompt_entry");
  h.prompt_target = h.layout.Add<uint32_t>(limits.max_prompt_logprobs, "plan.prompt_target");
  h.decode_items = h.layout.Add<kernels::AttentionItem>(rows * max_splits, "plan.decode_items");
  // Every row rounds its number of items up once.
  h.prefill_items = h.layout.Add<kernels::AttentionItem>(
      tokens / StepWorkspace::PrefillQueryTokens(spec) + rows, "plan.prefill_items");
}

uint32_t MaskWords(const models::ModelSpec& spec) {
  return static_cast<uint32_t>((spec.vocab_size + 31) / 32);
}

void AddRows(const models::ModelSpec& spec, const kernels::StepLimits& limits, Handles& h) {
  const size_t rows = limits.max_rows;
  h.context_length = h.layout.Add<uint32_t>(rows, "rows.context_length");
  h.last_token = h.layout.Add<uint32_t>(rows, "rows.last_token");
  h.temperature = h.layout.Add<float>(rows, "rows.temperature");
  h.seed = h.layout.Add<uint64_t>(rows, "rows.seed");
  h.block_table = h.layout.Add<uint32_t>(rows * limits.max_blocks_per_row, "rows.block_table");
  h.step_count = h.layout.Add<uint64_t>(1, "step_count");
  h.life = h.layout.Add<kernels::RowLife>(rows, "rows.life");
  h.sampling = h.layout.Add<kernels::RowSampling>(rows, "rows.sampling");
  h.stop_token = h.layout.Add<uint32_t>(rows * kernels::kMaxStopTokens, "rows.stop_token");
  const size_t adjusting = limits.adjust_logits ? rows : 0;
  h.bias = h.layout.Add<kernels::LogitBias>(adjusting * kernels::kMaxLogitBias, "rows.bias");
  h.mask = h.layout.Add<uint32_t>(adjusting * MaskWords(spec), "rows.mask");
  h.history =
      h.layout.Add<uint32_t>(adjusting * static_cast<size_t>(spec.vocab_size), "rows.history");
}

void AddActivations(const models::ModelSpec& spec, const kernels::KernelSet& kernels,
                    const kernels::StepLimits& limits, Handles& h) {
  const size_t element = runtime::SizeOf(kernels.dtype);
  auto per_token = [&](int64_t width, std::string_view name) {
    return h.layout.Add<std::byte>(limits.max_step_tokens * static_cast<size_t>(width) * element,
                                   name);
  };
  h.residual = per_token(spec.hidden_size, "residual");
  h.normed = per_token(spec.hidden_size, "normed");
  h.qkv = per_token(spec.qkv_size(), "qkv");
  h.q = per_token(spec.q_size(), "q");
  h.attention = per_token(spec.q_size(), "attention");
  h.branch = per_token(spec.hidden_size, "branch");
  h.gate_up = per_token(2 * spec.intermediate_size, "gate_up");
  h.activated = per_token(spec.intermediate_size, "activated");
  h.sampled_hidden = h.layout.Add<std::byte>((limits.max_rows + limits.max_prompt_logprobs) *
                                                 static_cast<size_t>(spec.hidden_size) * element,
                                             "sampled_hidden");
  h.activations_end = h.layout.bytes();
  h.rope = h.layout.Add<float>(limits.max_step_tokens * static_cast<size_t>(spec.head_dim), "rope");
}

void AddScratch(const models::ModelSpec& spec, const kernels::KernelSet& kernels,
                const kernels::StepLimits& limits, uint32_t max_splits, Handles& h) {
  const size_t rows = limits.max_rows;
  const size_t heads = rows * max_splits * static_cast<size_t>(spec.num_heads);
  h.partial_out =
      h.layout.Add<float>(heads * static_cast<size_t>(spec.head_dim), "attention.partial_out");
  h.partial_max = h.layout.Add<float>(heads, "attention.partial_max");
  h.partial_sum = h.layout.Add<float>(heads, "attention.partial_sum");
  h.arrivals =
      h.layout.Add<uint32_t>(rows * static_cast<size_t>(spec.num_kv_heads), "attention.arrivals");
  const int64_t widest =
      std::max({spec.vocab_size, spec.qkv_size(), 2 * spec.intermediate_size, spec.hidden_size});
  h.linear_partials = h.layout.Add<float>(
      kernels::LinearPartialFloats(
          kernels, std::max(limits.max_step_tokens, limits.max_rows + limits.max_prompt_logprobs)),
      "linear.partials");
  h.linear_counters = h.layout.Add<uint32_t>(
      kernels::LinearNumCounters(kernels, static_cast<uint32_t>(widest)), "linear.counters");
  const size_t logit_rows = rows + limits.max_prompt_logprobs;
  h.logits = h.layout.Add<float>(logit_rows * static_cast<size_t>(spec.vocab_size), "logits");
  const size_t chunks =
      (static_cast<size_t>(spec.vocab_size) + kernels::kSampleChunk - 1) / kernels::kSampleChunk;
  h.sample_partials = h.layout.Add<kernels::SamplePartial>(logit_rows * chunks, "sample.partials");
  const size_t adjusting = limits.adjust_logits ? rows : 0;
  h.adjusted =
      h.layout.Add<float>(adjusting * static_cast<size_t>(spec.vocab_size), "sample.adjusted");
  h.adjusted_partials =
      h.layout.Add<kernels::SamplePartial>(adjusting * chunks, "sample.adjusted_partials");
  h.cut = h.layout.Add<kernels::SampleCut>(rows, "sample.cut");
  h.sampled_token_id = h.layout.Add<uint32_t>(rows, "sample.token_id");
  h.sampled_logprob = h.layout.Add<float>(rows, "sample.logprob");
  h.result_staging = h.layout.Add<kernels::RowResult>(rows, "result_staging");
}

Handles LayOut(const models::ModelSpec& spec, const kernels::KernelSet& kernels,
               const kernels::StepLimits& limits) {
  Handles h;
  const uint32_t max_splits = kernels::SplitRule{}.max_splits;
  AddPlan(spec, limits, max_splits, h);
  AddRows(spec, limits, h);
  AddActivations(spec, kernels, limits, h);
  AddScratch(spec, kernels, limits, max_splits, h);
  return h;
}

void ResolveSampling(const runtime::Arena& arena, const Handles& h, const models::ModelSpec& spec,
                     const kernels::StepLimits& limits, StepWorkspace& w) {
  w.plan.logits_place = arena.Get(h.logits_place);
  w.plan.prompt_entry = arena.Get(h.prompt_entry);
  w.plan.prompt_target = arena.Get(h.prompt_target);
  w.rows.life = arena.Get(h.life);
  w.rows.sampling = arena.Get(h.sampling);
  w.rows.stop_token = arena.Get(h.stop_token);
  w.rows.bias = arena.Get(h.bias);
  w.rows.mask = arena.Get(h.mask);
  w.rows.history = arena.Get(h.history);
  w.rows.mask_words = MaskWords(spec);
  w.rows.vocab = static_cast<uint32_t>(spec.vocab_size);
  w.sample_partials = arena.Get(h.sample_partials);
  w.sampled_token_id = arena.Get(h.sampled_token_id);
  w.sampled_logprob = arena.Get(h.sampled_logprob);
  w.adjusted_logits = arena.Get(h.adjusted);
  w.adjusted_partials = arena.Get(h.adjusted_partials);
  w.sample_cut = arena.Get(h.cut);
  w.max_prompt_logprobs = limits.max_prompt_logprobs;
  w.result_layout = kernels::ResultSlotLayout::For(
      limits.max_rows, limits.max_logprobs != 0 ? limits.max_rows + limits.max_prompt_logprobs : 0,
      limits.max_logit_rows, static_cast<uint64_t>(spec.vocab_size));
}

void Resolve(const runtime::Arena& arena, const Handles& h, const kernels::StepLimits& limits,
             StepWorkspace& w) {
  w.plan = {.counts = arena.Get(h.counts),
            .entries = arena.Get(h.entries),
            .given_tokens = arena.Get(h.given_tokens),
            .query_start = arena.Get(h.query_start),
            .context_before = arena.Get(h.context_before),
            .token_id = arena.Get(h.token_id),
            .token_position = arena.Get(h.token_position),
            .token_block = arena.Get(h.token_block),
            .token_offset = arena.Get(h.token_offset),
            .sampled_entry = arena.Get(h.sampled_entry),
            .sampled_token = arena.Get(h.sampled_token),
            .decode_items = arena.Get(h.decode_items),
            .prefill_items = arena.Get(h.prefill_items)};
  w.rows = {.context_length = arena.Get(h.context_length),
            .last_token = arena.Get(h.last_token),
            .temperature = arena.Get(h.temperature),
            .seed = arena.Get(h.seed),
            .block_table = arena.Get(h.block_table),
            .max_blocks_per_row = limits.max_blocks_per_row};
  w.step_count = arena.Get(h.step_count);
  w.residual = arena.Get(h.residual);
  w.normed = arena.Get(h.normed);
  w.qkv = arena.Get(h.qkv);
  w.q = arena.Get(h.q);
  w.attention = arena.Get(h.attention);
  w.branch = arena.Get(h.branch);
  w.gate_up = arena.Get(h.gate_up);
  w.activated = arena.Get(h.activated);
  w.sampled_hidden = arena.Get(h.sampled_hidden);
  w.rope = arena.Get(h.rope);
  w.logits = arena.Get(h.logits);
  w.partial_out = arena.Get(h.partial_out);
  w.partial_max = arena.Get(h.partial_max);
  w.partial_sum = arena.Get(h.partial_sum);
  w.arrivals = arena.Get(h.arrivals);
  w.linear_partials = arena.Get(h.linear_partials);
  w.linear_counters = arena.Get(h.linear_counters);
  w.result_staging = arena.Get(h.result_staging);
}

}  // namespace

uint32_t StepWorkspace::PrefillQueryTokens(const models::ModelSpec& spec) {
  const int64_t group = spec.num_heads / spec.num_kv_heads;
  return static_cast<uint32_t>(std::max<int64_t>(1, kernels::kPrefillRows / group));
}

absl::StatusOr<size_t> StepWorkspace::BytesFor(const models::ModelSpec& spec,
                                               const kernels::KernelSet& kernels,
                                               const kernels::StepLimits& limits) {
  const Handles handles = LayOut(spec, kernels, limits);
  REPRISE_RETURN_IF_ERROR(handles.layout.status());
  return handles.layout.bytes();
}

absl::StatusOr<StepWorkspace> StepWorkspace::Create(runtime::Device& device,
                                                    runtime::Stream& stream,
                                                    const models::ModelSpec& spec,
                                                    const kernels::KernelSet& kernels,
                                                    const kernels::StepLimits& limits) {
  const Handles handles = LayOut(spec, kernels, limits);
  StepWorkspace workspace;
  REPRISE_ASSIGN_OR_RETURN(workspace.arena_, runtime::Arena::Create(device, handles.layout));
  Resolve(workspace.arena_, handles, limits, workspace);
  ResolveSampling(workspace.arena_, handles, spec, limits, workspace);
  const size_t begin = handles.residual.offset;
  workspace.activations = workspace.residual;
  workspace.activation_elements =
      static_cast<int64_t>((handles.activations_end - begin) / runtime::SizeOf(kernels.dtype));
  REPRISE_RETURN_IF_ERROR(stream.Fill(workspace.arena_.data(), 0, workspace.arena_.bytes()));
  REPRISE_RETURN_IF_ERROR(stream.Synchronize());
  return workspace;
}

}  // namespace reprise::engine
