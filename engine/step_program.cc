// SPDX-License-Identifier: Apache-2.0
#include "engine/step_program.h"

#include "kernels/plan/plan.h"
#include "kernels/sample/sample.h"
#include "kernels/step/fetch.h"
#include "kernels/step/publish.h"
#include "runtime/status_macros.h"

namespace reprise::engine {

absl::Status StepProgram::Enqueue(runtime::Stream& stream, const models::StepShape& shape) const {
  REPRISE_RETURN_IF_ERROR(EnqueueFetchAndPlan(stream));
  REPRISE_RETURN_IF_ERROR(EnqueueDecoder(stream, shape));
  REPRISE_RETURN_IF_ERROR(EnqueueSample(stream, shape));
  // Behind sampling, whose work on the host is part of the time that is waited for.
  if (parts_.simulated != nullptr) REPRISE_RETURN_IF_ERROR(parts_.simulated->EnqueueWait(stream));
  return EnqueuePublish(stream);
}

absl::Status StepProgram::EnqueueDecoder(runtime::Stream& stream,
                                         const models::StepShape& shape) const {
  if (parts_.simulated != nullptr) return parts_.simulated->EnqueueTokens(stream);
  if (!shape.mixed && parts_.step_kernels != nullptr && parts_.step_kernels->Has(shape.max_tokens))
    return parts_.step_kernels->Enqueue(stream, parts_.kernels, shape.max_tokens);
  return EnqueueLayers(stream, shape);
}

absl::Status StepProgram::EnqueueLayers(runtime::Stream& stream,
                                        const models::StepShape& shape) const {
  return parts_.decoder.Enqueue({.stream = stream,
                                 .kernels = parts_.kernels,
                                 .shape = shape,
                                 .plan = parts_.state.plan,
                                 .rows = parts_.state.rows,
                                 .kv = parts_.pool,
                                 .linear = linear_});
}

absl::Status StepProgram::EnqueueFetchAndPlan(runtime::Stream& stream) const {
  const StepState& s = parts_.state;
  REPRISE_RETURN_IF_ERROR(kernels::Fetch(stream, parts_.kernels,
                                         {.ring = parts_.metadata.device_base(),
                                          .layout = metadata_layout_,
                                          .depth = parts_.metadata.depth(),
                                          .progress = s.progress,
                                          .plan = s.plan,
                                          .rows = s.rows}));
  return kernels::Plan(stream, parts_.kernels,
                       {.plan = s.plan,
                        .rows = s.rows,
                        .attention = s.attention,
                        .block_size = static_cast<uint32_t>(parts_.pool.geometry().block_size),
                        .max_rows = s.max_rows});
}

absl::Status StepProgram::EnqueueSample(runtime::Stream& stream,
                                        const models::StepShape& shape) const {
  const StepState& s = parts_.state;
  const auto vocab = static_cast<int32_t>(parts_.decoder.spec().vocab_size);
  return kernels::Sample(
      stream, parts_.kernels,
      {.logits = parts_.decoder.logits(),
       .partials = s.sample_partials,
       .adjusted = s.adjusted_logits,
       .adjusted_partials = s.adjusted_partials,
       .cut = s.sample_cut,
       .token = s.sampled_token_id,
       .logprob = s.sampled_logprob,
       .results = parts_.results.device_base(),
       .result_layout = s.result_layout,
       .result_depth = parts_.results.depth(),
       .plan = s.plan,
       .rows = s.rows,
       .vocab = vocab,
       .num_chunks = (vocab + kernels::kSampleChunk - 1) / kernels::kSampleChunk},
      models::MaxSampled(shape, s.max_draft_tokens),
      models::MaxPromptLogprobs(shape, s.max_prompt_logprobs));
}

absl::Status StepProgram::EnqueuePublish(runtime::Stream& stream) const {
  const StepState& s = parts_.state;
  return kernels::Publish(stream, parts_.kernels,
                          {.plan = s.plan,
                           .rows = s.rows,
                           .sampled_token_id = s.sampled_token_id,
                           .sampled_logprob = s.sampled_logprob,
                           .staging = s.result_staging,
                           .ring = parts_.results.device_base(),
                           .entry_bytes = parts_.results.entry_bytes(),
                           .sampled_offset = s.result_layout.sampled,
                           .depth = parts_.results.depth(),
                           .progress = s.progress});
}

}  // namespace reprise::engine
