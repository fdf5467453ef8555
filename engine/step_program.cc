// SPDX-License-Identifier: Apache-2.0
#include "engine/step_program.h"

#include <algorithm>

#include "kernels/attention/attention.h"
#include "kernels/embedding/embedding.h"
#include "kernels/linear/linear.h"
#include "kernels/plan/plan.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope_append/rope_append.h"
#include "kernels/sample/sample.h"
#include "kernels/silu_mul/silu_mul.h"
#include "kernels/step/fetch.h"
#include "kernels/step/publish.h"
#include "runtime/status_macros.h"

namespace reprise::engine {

absl::Status StepProgram::Enqueue(runtime::Stream& stream, const StepShape& shape) const {
  REPRISE_RETURN_IF_ERROR(EnqueueFetchAndPlan(stream));
  REPRISE_RETURN_IF_ERROR(EnqueueEmbedding(stream, shape));
  for (size_t layer = 0; layer < weights_.layers().size(); ++layer)
    REPRISE_RETURN_IF_ERROR(EnqueueLayer(stream, shape, layer));
  REPRISE_RETURN_IF_ERROR(EnqueueLogitsAndSample(stream, shape));
  return EnqueuePublish(stream);
}

absl::Status StepProgram::EnqueueFetchAndPlan(runtime::Stream& stream) const {
  const StepWorkspace& w = workspace_;
  REPRISE_RETURN_IF_ERROR(kernels::Fetch(stream, kernels_,
                                         {.ring = metadata_.device_base(),
                                          .layout = metadata_layout_,
                                          .depth = metadata_.depth(),
                                          .step_count = w.step_count,
                                          .plan = w.plan,
                                          .rows = w.rows}));
  return kernels::Plan(stream, kernels_,
                       {.plan = w.plan,
                        .rows = w.rows,
                        .attention = {.split = w.split,
                                      .prefill_q_tokens = StepWorkspace::PrefillQueryTokens(spec_),
                                      .window = static_cast<uint32_t>(spec_.sliding_window)},
                        .block_size = static_cast<uint32_t>(pool_.geometry().block_size)});
}

absl::Status StepProgram::EnqueueEmbedding(runtime::Stream& stream, const StepShape& shape) const {
  const StepWorkspace& w = workspace_;
  return kernels::Embedding(stream, kernels_,
                            {.table = weights_.embedding(),
                             .out = w.residual,
                             .token_id = w.plan.token_id,
                             .token_position = w.plan.token_position,
                             .num_tokens = &w.plan.counts->num_tokens,
                             .inverse_frequency = weights_.rope_inverse_frequencies(),
                             .rope = w.rope,
                             .hidden = static_cast<int32_t>(spec_.hidden_size),
                             .half_dim = static_cast<int32_t>(spec_.head_dim / 2),
                             .multiplier = static_cast<float>(spec_.embedding_multiplier),
                             .rope_multiplier = static_cast<float>(spec_.rope.attention_factor)},
                            shape.max_tokens);
}

absl::Status StepProgram::EnqueueNorm(runtime::Stream& stream, const StepShape& shape,
                                      const void* branch, const void* weight) const {
  const StepWorkspace& w = workspace_;
  return kernels::RmsNorm(stream, kernels_,
                          {.residual = w.residual,
                           .branch = branch,
                           .residual_out = w.residual,
                           .weight = weight,
                           .out = w.normed,
                           .num_rows = &w.plan.counts->num_tokens,
                           .hidden = static_cast<int32_t>(spec_.hidden_size),
                           .eps = static_cast<float>(spec_.rms_norm_eps),
                           .branch_scale = static_cast<float>(spec_.residual_multiplier)},
                          shape.max_tokens);
}

absl::Status StepProgram::EnqueueLinear(runtime::Stream& stream, const StepShape& shape,
                                        const models::LinearWeights& weights, const void* x,
                                        void* out) const {
  const StepWorkspace& w = workspace_;
  return kernels::Linear(stream, kernels_, weights,
                         {.x = x,
                          .out = out,
                          .num_rows = &w.plan.counts->num_tokens,
                          .partials = w.linear_partials,
                          .counters = w.linear_counters},
                         shape.max_tokens, linear_);
}

absl::Status StepProgram::EnqueueLayer(runtime::Stream& stream, const StepShape& shape,
                                       size_t layer) const {
  const StepWorkspace& w = workspace_;
  const models::LayerWeights& weights = weights_.layers()[layer];
  // The MLP branch of the layer before is added here; the first layer has none.
  REPRISE_RETURN_IF_ERROR(
      EnqueueNorm(stream, shape, layer == 0 ? nullptr : w.branch, weights.input_norm));
  REPRISE_RETURN_IF_ERROR(EnqueueLinear(stream, shape, weights.qkv, w.normed, w.qkv));
  REPRISE_RETURN_IF_ERROR(EnqueueAttention(stream, shape, layer));
  REPRISE_RETURN_IF_ERROR(EnqueueLinear(stream, shape, weights.o, w.attention, w.branch));
  REPRISE_RETURN_IF_ERROR(EnqueueNorm(stream, shape, w.branch, weights.post_attention_norm));
  return EnqueueMlp(stream, shape, layer);
}

absl::Status StepProgram::EnqueueAttention(runtime::Stream& stream, const StepShape& shape,
                                           size_t layer) const {
  const StepWorkspace& w = workspace_;
  const models::LayerWeights& weights = weights_.layers()[layer];
  void* cache = pool_.Layer(static_cast<int64_t>(layer));
  REPRISE_RETURN_IF_ERROR(kernels::RopeAppend(stream, kernels_,
                                              {.qkv = w.qkv,
                                               .q_out = w.q,
                                               .kv_cache = cache,
                                               .rope = w.rope,
                                               .token_block = w.plan.token_block,
                                               .token_offset = w.plan.token_offset,
                                               .num_tokens = &w.plan.counts->num_tokens,
                                               .num_heads = static_cast<int32_t>(spec_.num_heads),
                                               .kv = pool_.geometry().layout(),
                                               .q_norm = weights.q_norm,
                                               .k_norm = weights.k_norm,
                                               .norm_eps = static_cast<float>(spec_.rms_norm_eps)},
                                              shape.max_tokens));
  kernels::AttentionArgs args{.q = w.q,
                              .kv_cache = cache,
                              .out = w.attention,
                              .items = w.plan.decode_items,
                              .num_items = &w.plan.counts->num_decode_items,
                              .query_start = w.plan.query_start,
                              .context_before = w.plan.context_before,
                              .block_table = w.rows.block_table,
                              .max_blocks_per_row = w.rows.max_blocks_per_row,
                              .partial_out = w.partial_out,
                              .partial_max = w.partial_max,
                              .partial_sum = w.partial_sum,
                              .arrivals = w.arrivals,
                              .max_splits = w.split.max_splits,
                              .num_heads = static_cast<int32_t>(spec_.num_heads),
                              .kv = pool_.geometry().layout(),
                              .scale = static_cast<float>(spec_.attention_multiplier),
                              .window = static_cast<uint32_t>(spec_.sliding_window)};
  REPRISE_RETURN_IF_ERROR(
      kernels::Attention(stream, kernels_, args, kernels::AttentionPhase::kDecode));
  if (!shape.mixed) return absl::OkStatus();
  args.items = w.plan.prefill_items;
  args.num_items = &w.plan.counts->num_prefill_items;
  return kernels::Attention(stream, kernels_, args, kernels::AttentionPhase::kPrefill);
}

absl::Status StepProgram::EnqueueMlp(runtime::Stream& stream, const StepShape& shape,
                                     size_t layer) const {
  const StepWorkspace& w = workspace_;
  const models::LayerWeights& weights = weights_.layers()[layer];
  REPRISE_RETURN_IF_ERROR(EnqueueLinear(stream, shape, weights.gate_up, w.normed, w.gate_up));
  REPRISE_RETURN_IF_ERROR(
      kernels::SiluMul(stream, kernels_,
                       {.gate_up = w.gate_up,
                        .out = w.activated,
                        .num_tokens = &w.plan.counts->num_tokens,
                        .intermediate = static_cast<int32_t>(spec_.intermediate_size)},
                       shape.max_tokens));
  return EnqueueLinear(stream, shape, weights.down, w.activated, w.branch);
}

absl::Status StepProgram::EnqueueLogitsAndSample(runtime::Stream& stream,
                                                 const StepShape& shape) const {
  const StepWorkspace& w = workspace_;
  const uint32_t max_sampled = std::min(shape.max_rows, shape.max_tokens);
  // Only the last token of each sampling row goes on from here, and prompt tokens whose likelihood
  // is asked for; those come in mixed buckets only.
  const uint32_t max_prompt = shape.mixed ? std::min(w.max_prompt_logprobs, shape.max_tokens) : 0;
  const uint32_t max_logits = max_sampled + max_prompt;
  REPRISE_RETURN_IF_ERROR(
      kernels::RmsNorm(stream, kernels_,
                       {.residual = w.residual,
                        .branch = w.branch,
                        .weight = weights_.final_norm(),
                        .out = w.sampled_hidden,
                        .gather = w.plan.sampled_token,
                        .num_rows = &w.plan.counts->num_logits,
                        .hidden = static_cast<int32_t>(spec_.hidden_size),
                        .eps = static_cast<float>(spec_.rms_norm_eps),
                        .branch_scale = static_cast<float>(spec_.residual_multiplier)},
                       max_logits));
  REPRISE_RETURN_IF_ERROR(kernels::Linear(stream, kernels_, weights_.lm_head(),
                                          {.x = w.sampled_hidden,
                                           .out = w.logits,
                                           .num_rows = &w.plan.counts->num_logits,
                                           .partials = w.linear_partials,
                                           .counters = w.linear_counters,
                                           .scale = static_cast<float>(1.0 / spec_.logits_scaling),
                                           .out_is_f32 = 1},
                                          max_logits, linear_));
  const auto vocab = static_cast<int32_t>(spec_.vocab_size);
  return kernels::Sample(
      stream, kernels_,
      {.logits = w.logits,
       .partials = w.sample_partials,
       .adjusted = w.adjusted_logits,
       .adjusted_partials = w.adjusted_partials,
       .cut = w.sample_cut,
       .token = w.sampled_token_id,
       .logprob = w.sampled_logprob,
       .results = results_.device_base(),
       .result_layout = w.result_layout,
       .result_depth = results_.depth(),
       .plan = w.plan,
       .rows = w.rows,
       .vocab = vocab,
       .num_chunks = (vocab + kernels::kSampleChunk - 1) / kernels::kSampleChunk},
      max_sampled, max_prompt);
}

absl::Status StepProgram::EnqueuePublish(runtime::Stream& stream) const {
  const StepWorkspace& w = workspace_;
  return kernels::Publish(stream, kernels_,
                          {.plan = w.plan,
                           .rows = w.rows,
                           .sampled_token_id = w.sampled_token_id,
                           .sampled_logprob = w.sampled_logprob,
                           .staging = w.result_staging,
                           .ring = results_.device_base(),
                           .slot_bytes = results_.slot_bytes(),
                           .depth = results_.depth(),
                           .step_count = w.step_count});
}

}  // namespace reprise::engine
