// SPDX-License-Identifier: Apache-2.0
#include "models/layers/norm_layer.h"

#include "kernels/rms_norm/rms_norm.h"

namespace reprise::models {

void NormLayer::DeclareWeights(WeightPlan& weights) {
  weights.Norm(&weight_, name_, spec_.hidden_size);
}

// It works on the decoder's activations alone.
void NormLayer::DeclareBuffers(const LayerBuffers&) {}

bool NormLayer::IsDoneBeside(const LayerContext& context) const {
  return reader_ != nullptr && reader_->CanNormInput(context) &&
         (before_ == nullptr || before_->CanAddBranch(context));
}

absl::Status NormLayer::Enqueue(const LayerContext& context) const {
  if (IsDoneBeside(context)) return absl::OkStatus();
  const RoundedRows rounded = reader_ != nullptr ? reader_->rounded_input() : RoundedRows{};
  return kernels::RmsNorm(context.stream, context.kernels,
                          {.residual = context.x.residual,
                           .branch = before_ != nullptr ? context.x.branch : nullptr,
                           .residual_out = context.x.residual,
                           .weight = weight_,
                           .out = rounded.elements != nullptr ? rounded.elements : context.x.normed,
                           .num_rows = &context.plan.counts->num_tokens,
                           .hidden = static_cast<int32_t>(spec_.hidden_size),
                           .eps = eps(),
                           .branch_scale = branch_scale(),
                           .weight_offset = weight_offset(),
                           .row_scales = rounded.scales},
                          context.shape.max_tokens);
}

void NormLayer::AddBytes(const StepTraffic& traffic, StepBytes* bytes) const {
  // Residual and branch in, residual and normed out.
  const uint64_t elements = (before_ != nullptr ? 4 : 3) * static_cast<uint64_t>(spec_.hidden_size);
  bytes->activations += traffic.rows * elements * traffic.element_bytes;
}

}  // namespace reprise::models
