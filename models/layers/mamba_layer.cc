// SPDX-License-Identifier: Apache-2.0
#include "models/layers/mamba_layer.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/mamba/mamba.h"
#include "runtime/status_macros.h"

namespace reprise::models {

// What is random is as transformers initialises it, but for A, which is 1 for every head.
void MambaLayer::DeclareWeights(WeightPlan& weights) {
  const auto of_layer = [&](const char* tensor) { return absl::StrCat(name_, ".", tensor); };
  weights.Linear(&in_, {{of_layer("in_proj"), mamba_.projected_size()}}, spec_.hidden_size,
                 mamba_.proj_bias, spec_.IsQuantized(block_, BlockLinear::kAttentionIn));
  weights.Numbers(&conv_weight_, of_layer("conv1d.weight"),
                  {mamba_.conv_size(), 1, mamba_.conv_width},
                  1.0f / static_cast<float>(mamba_.conv_width));
  conv_bias_ = nullptr;
  if (mamba_.conv_bias) weights.Numbers(&conv_bias_, of_layer("conv1d.bias"), {mamba_.conv_size()});
  weights.Numbers(&a_log_, of_layer("A_log"), {mamba_.num_heads});
  weights.Numbers(&d_, of_layer("D"), {mamba_.num_heads}, 1.0f);
  weights.Numbers(&dt_bias_, of_layer("dt_bias"), {mamba_.num_heads}, 1.0f);
  weights.Norm(&norm_, of_layer("norm.weight"), mamba_.inner_size());
  weights.Linear(&out_, {{of_layer("out_proj"), spec_.hidden_size}}, mamba_.inner_size(),
                 mamba_.proj_bias, spec_.IsQuantized(block_, BlockLinear::kAttentionOut));
}

void MambaLayer::DeclareBuffers(const LayerBuffers& buffers) {
  const runtime::DType dtype = buffers.kernels.dtype;
  const size_t tokens = buffers.limits.max_step_tokens, rows = buffers.limits.max_rows;
  const auto conv = static_cast<size_t>(mamba_.conv_size());
  const auto inner = static_cast<size_t>(mamba_.inner_size());
  // Every layer has its own.
  const size_t conv_elements = static_cast<size_t>(mamba_.conv_width - 1) * conv;
  const size_t model_elements = inner * static_cast<size_t>(mamba_.state_size);
  buffers.scratch.AddElements(&conv_state_, rows * conv_elements, dtype,
                              absl::StrCat(name_, ".conv_state"));
  buffers.scratch.Add(&model_state_, rows * model_elements, absl::StrCat(name_, ".state"));
  conv_slot_bytes_ = conv_elements * runtime::SizeOf(dtype);
  model_slot_bytes_ = model_elements * sizeof(float);
  buffers.activations.ShareElements(
      &projected_, tokens * static_cast<size_t>(mamba_.projected_size()), dtype, "mamba.projected");
  buffers.activations.ShareElements(&convolved_, tokens * conv, dtype, "mamba.convolved");
  buffers.activations.ShareElements(&y_, tokens * inner, dtype, "mamba.y");
  linear_.Declare(buffers, buffers.limits.max_step_tokens, {&in_, &out_});
}

void MambaLayer::ListRowState(std::vector<RowStateBuffer>* buffers) const {
  buffers->push_back(
      {.data = static_cast<std::byte*>(conv_state_), .slot_bytes = conv_slot_bytes_});
  buffers->push_back(
      {.data = reinterpret_cast<std::byte*>(model_state_), .slot_bytes = model_slot_bytes_});
}

absl::Status MambaLayer::Enqueue(const LayerContext& context) const {
  const uint32_t* num_tokens = &context.plan.counts->num_tokens;
  const uint32_t max_tokens = context.shape.max_tokens;
  REPRISE_RETURN_IF_ERROR(EnqueueLinear(context, linear_, in_,
                                        {.x = context.InputOf(form_),
                                         .out = projected_,
                                         .num_rows = num_tokens,
                                         .max_rows = max_tokens,
                                         .norm_before = norm_before()}));
  REPRISE_RETURN_IF_ERROR(EnqueueModel(context));
  return EnqueueLinear(context, linear_, out_,
                       {.x = y_,
                        .out = context.x.branch,
                        .num_rows = num_tokens,
                        .max_rows = max_tokens,
                        .norm_behind = norm_behind()});
}

absl::Status MambaLayer::EnqueueModel(const LayerContext& context) const {
  const kernels::MambaRows rows = {.num_rows = &context.plan.counts->num_rows,
                                   .entries = context.plan.entries,
                                   .query_start = context.plan.query_start,
                                   .context_before = context.plan.context_before};
  const auto projected_size = static_cast<int32_t>(mamba_.projected_size());
  const auto inner = static_cast<int32_t>(mamba_.inner_size());
  REPRISE_RETURN_IF_ERROR(kernels::MambaConv(context.stream, context.kernels,
                                             {.projected = projected_,
                                              .out = convolved_,
                                              .state = conv_state_,
                                              .weight = conv_weight_,
                                              .bias = conv_bias_,
                                              .rows = rows,
                                              .projected_size = projected_size,
                                              .offset = inner,
                                              .channels = static_cast<int32_t>(mamba_.conv_size()),
                                              .width = static_cast<int32_t>(mamba_.conv_width)},
                                             context.shape.max_rows, context.shape.max_tokens));
  // Nothing is above infinity, and f32 has one too.
  const double most =
      std::min(mamba_.max_dt, static_cast<double>(std::numeric_limits<float>::max()));
  REPRISE_RETURN_IF_ERROR(kernels::MambaScan(context.stream, context.kernels,
                                             {.convolved = convolved_,
                                              .projected = projected_,
                                              .y = y_,
                                              .state = model_state_,
                                              .a_log = a_log_,
                                              .d = d_,
                                              .dt_bias = dt_bias_,
                                              .rows = rows,
                                              .projected_size = projected_size,
                                              .num_heads = static_cast<int32_t>(mamba_.num_heads),
                                              .head_dim = static_cast<int32_t>(mamba_.head_dim),
                                              .num_groups = static_cast<int32_t>(mamba_.num_groups),
                                              .state_size = static_cast<int32_t>(mamba_.state_size),
                                              .min_dt = static_cast<float>(mamba_.min_dt),
                                              .max_dt = static_cast<float>(most)},
                                             context.shape.max_rows, context.shape.max_tokens));
  return kernels::MambaNorm(context.stream, context.kernels,
                            {.y = y_,
                             .projected = projected_,
                             .weight = norm_,
                             .out = y_,
                             .num_tokens = &context.plan.counts->num_tokens,
                             .projected_size = projected_size,
                             .size = inner,
                             .eps = static_cast<float>(spec_.rms_norm_eps)},
                            context.shape.max_tokens);
}

void MambaLayer::AddBytes(const StepTraffic& traffic, StepBytes* bytes) const {
  const auto hidden = static_cast<uint64_t>(spec_.hidden_size);
  const auto projected = static_cast<uint64_t>(mamba_.projected_size());
  const auto conv = static_cast<uint64_t>(mamba_.conv_size());
  const auto inner = static_cast<uint64_t>(mamba_.inner_size());
  const auto heads = static_cast<uint64_t>(mamba_.num_heads);
  const auto width = static_cast<uint64_t>(mamba_.conv_width);
  // Numbers are f32, and WeightPlan does not count them.
  bytes->weights += (conv * (width + (mamba_.conv_bias ? 1 : 0)) + 3 * heads) * sizeof(float);
  const uint64_t state = (width - 1) * conv * traffic.element_bytes +
                         inner * static_cast<uint64_t>(mamba_.state_size) * sizeof(float);
  bytes->kv_read += traffic.states_read * state;
  bytes->kv_written += traffic.states_written * state;
  // In and out of the projection in, of the convolution, of the model, of the norm, of the
  // projection out.
  const uint64_t elements = (hidden + projected) + 2 * conv + (conv + heads + inner) + 3 * inner +
                            (inner + hidden) + PreparedElements(in_) + PreparedElements(out_) -
                            SparedElements(in_, norm_before());
  bytes->activations += traffic.rows * elements * traffic.element_bytes;
}

}  // namespace reprise::models
