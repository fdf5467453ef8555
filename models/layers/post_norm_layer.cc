// SPDX-License-Identifier: Apache-2.0
#include "models/layers/post_norm_layer.h"

#include "kernels/rms_norm/rms_norm.h"

namespace reprise::models {

void PostNormLayer::DeclareWeights(WeightPlan& weights) {
  weights.Norm(&weight_, name_, spec_.hidden_size);
}

// It works on the decoder's activations alone.
void PostNormLayer::DeclareBuffers(const LayerBuffers&) {}

absl::Status PostNormLayer::Enqueue(const LayerContext& context) const {
  return kernels::RmsNormAdd(context.stream, context.kernels,
                             {.residual = context.x.residual,
                              .branch = context.x.branch,
                              .residual_out = context.x.residual,
                              .weight = weight_,
                              .num_rows = &context.plan.counts->num_tokens,
                              .hidden = static_cast<int32_t>(spec_.hidden_size),
                              .eps = static_cast<float>(spec_.rms_norm_eps),
                              .branch_scale = static_cast<float>(spec_.residual_multiplier),
                              .weight_offset = static_cast<float>(spec_.norm_offset)},
                             context.shape.max_tokens);
}

void PostNormLayer::AddBytes(const StepTraffic& traffic, StepBytes* bytes) const {
  // Branch and residual in, residual out.
  bytes->activations +=
      traffic.rows * 3 * static_cast<uint64_t>(spec_.hidden_size) * traffic.element_bytes;
}

}  // namespace reprise::models
