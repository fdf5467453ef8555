// SPDX-License-Identifier: Apache-2.0
#include "models/layers/lm_head_layer.h"

#include "absl/strings/str_cat.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/softcap/softcap.h"
#include "runtime/status_macros.h"

namespace reprise::models {

void LmHeadLayer::DeclareWeights(WeightPlan& weights) {
  weights.Norm(&norm_, names_.norm, spec_.hidden_size);
  if (spec_.tie_word_embeddings) {
    weights.TiedLinear(&head_, absl::StrCat(names_.head, ".weight"), names_.embedding);
  } else {
    weights.PlainLinear(&head_, {{names_.head, spec_.vocab_size}}, spec_.hidden_size);
  }
}

void LmHeadLayer::DeclareBuffers(const LayerBuffers& buffers) {
  const uint32_t max_rows = MaxLogits(buffers.limits);
  buffers.activations.AddElements(&normed_, max_rows * static_cast<size_t>(spec_.hidden_size),
                                  buffers.kernels.dtype, "sampled_hidden");
  linear_.Declare(buffers, max_rows, {&head_});
}

absl::Status LmHeadLayer::Enqueue(const LayerContext& context) const {
  const uint32_t* num_logits = &context.plan.counts->num_logits;
  REPRISE_RETURN_IF_ERROR(
      kernels::RmsNorm(context.stream, context.kernels,
                       {.residual = context.x.residual,
                        .branch = adds_branch_ ? context.x.branch : nullptr,
                        .weight = norm_,
                        .out = normed_,
                        .gather = context.plan.sampled_token,
                        .num_rows = num_logits,
                        .hidden = static_cast<int32_t>(spec_.hidden_size),
                        .eps = static_cast<float>(spec_.rms_norm_eps),
                        .branch_scale = static_cast<float>(spec_.residual_multiplier),
                        .weight_offset = static_cast<float>(spec_.norm_offset)},
                       context.max_logits));
  REPRISE_RETURN_IF_ERROR(EnqueueLinear(context, linear_, head_,
                                        {.x = normed_,
                                         .out = context.x.logits,
                                         .num_rows = num_logits,
                                         .max_rows = context.max_logits,
                                         .scale = static_cast<float>(1.0 / spec_.logits_scaling),
                                         .out_is_f32 = true}));
  if (spec_.logits_softcap == 0.0) return absl::OkStatus();
  return kernels::Softcap(context.stream, context.kernels,
                          {.x = context.x.logits,
                           .num_rows = num_logits,
                           .columns = static_cast<int32_t>(spec_.vocab_size),
                           .cap = static_cast<float>(spec_.logits_softcap)},
                          context.max_logits);
}

void LmHeadLayer::AddBytes(const StepTraffic& traffic, StepBytes* bytes) const {
  // Residual and branch in, normed out (nothing goes back to the residual), normed in; logits are
  // written once and read once, and both once more where they are capped.
  const uint64_t elements = (adds_branch_ ? 4 : 3) * static_cast<uint64_t>(spec_.hidden_size);
  const uint64_t passes = spec_.logits_softcap == 0.0 ? 2 : 4;
  const uint64_t logits = passes * static_cast<uint64_t>(spec_.vocab_size) * sizeof(float);
  bytes->activations += traffic.rows * (elements * traffic.element_bytes + logits);
}

}  // namespace reprise::models
