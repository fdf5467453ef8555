// SPDX-License-Identifier: Apache-2.0
#include "models/layers/mlp_layer.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/silu_mul/silu_mul.h"
#include "runtime/status_macros.h"

namespace reprise::models {

void MlpLayer::DeclareWeights(WeightPlan& weights) {
  const std::string gate = absl::StrCat(name_, ".", tensors_.gate);
  std::vector<WeightPlan::Part> parts = {{gate, 2 * spec_.intermediate_size}};
  if (tensors_.up != nullptr)
    parts = {{gate, spec_.intermediate_size},
             {absl::StrCat(name_, ".", tensors_.up), spec_.intermediate_size}};
  // Kernels take the product with SiLU at once, and no other.
  const bool quantized = spec_.IsQuantized(block_, BlockLinear::kMlpIn);
  if (spec_.activation == Activation::kSilu) {
    weights.PairedLinear(&gate_up_, parts, spec_.hidden_size, spec_.mlp_bias, quantized);
  } else {
    weights.Linear(&gate_up_, parts, spec_.hidden_size, spec_.mlp_bias, quantized);
  }
  weights.Linear(&down_, {{absl::StrCat(name_, ".", tensors_.down), spec_.hidden_size}},
                 spec_.intermediate_size, spec_.mlp_bias,
                 spec_.IsQuantized(block_, BlockLinear::kMlpOut));
}

void MlpLayer::DeclareBuffers(const LayerBuffers& buffers) {
  const size_t elements =
      buffers.limits.max_step_tokens * static_cast<size_t>(spec_.intermediate_size);
  if (!HasPairs())
    buffers.activations.ShareElements(&gate_up_out_, 2 * elements, buffers.kernels.dtype,
                                      "gate_up");
  buffers.activations.ShareElements(&activated_, elements, buffers.kernels.dtype, "activated");
  linear_.Declare(buffers, buffers.limits.max_step_tokens, {&gate_up_, &down_});
}

absl::Status MlpLayer::Enqueue(const LayerContext& context) const {
  const uint32_t* num_tokens = &context.plan.counts->num_tokens;
  const uint32_t max_tokens = context.shape.max_tokens;
  REPRISE_RETURN_IF_ERROR(EnqueueLinear(context, linear_, gate_up_,
                                        {.x = context.InputOf(form_),
                                         .out = HasPairs() ? activated_ : gate_up_out_,
                                         .num_rows = num_tokens,
                                         .max_rows = max_tokens,
                                         .silu_mul = HasPairs(),
                                         .norm_before = norm_before()}));
  if (!HasPairs()) {
    REPRISE_RETURN_IF_ERROR(
        kernels::SiluMul(context.stream, context.kernels,
                         {.gate_up = gate_up_out_,
                          .out = activated_,
                          .num_tokens = num_tokens,
                          .intermediate = static_cast<int32_t>(spec_.intermediate_size),
                          .gelu = spec_.activation == Activation::kGeluTanh ? 1 : 0},
                         max_tokens));
  }
  return EnqueueLinear(context, linear_, down_,
                       {.x = activated_,
                        .out = context.x.branch,
                        .num_rows = num_tokens,
                        .max_rows = max_tokens,
                        .norm_behind = norm_behind()});
}

void MlpLayer::AddBytes(const StepTraffic& traffic, StepBytes* bytes) const {
  const auto hidden = static_cast<uint64_t>(spec_.hidden_size);
  const auto intermediate = static_cast<uint64_t>(spec_.intermediate_size);
  // In and out of gate and up, of the activation where it is a kernel of its own, of down.
  const uint64_t activation = HasPairs() ? intermediate : 5 * intermediate;
  const uint64_t elements = hidden + activation + (intermediate + hidden) +
                            PreparedElements(gate_up_) + PreparedElements(down_) -
                            SparedElements(gate_up_, norm_before());
  bytes->activations += traffic.rows * elements * traffic.element_bytes;
}

}  // namespace reprise::models
