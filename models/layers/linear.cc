// SPDX-License-Identifier: Apache-2.0
#include "models/layers/linear.h"

#include <algorithm>

#include "kernels/gather_columns/gather_columns.h"
#include "kernels/linear/linear.h"
#include "kernels/round_rows/round_rows.h"
#include "models/layers/norm_layer.h"
#include "runtime/status_macros.h"

namespace reprise::models {

void LinearScratch::Declare(const LayerBuffers& buffers, uint32_t max_rows,
                            std::initializer_list<const kernels::LinearWeights*> all) {
  size_t partial_floats = 0;
  int64_t out_features = 0, reordered_features = 0, rounded_features = 0;
  for (const kernels::LinearWeights* weights : all) {
    out_features = std::max(out_features, weights->out_features);
    if (weights->reordered) reordered_features = std::max(reordered_features, weights->in_features);
    if (weights->format == kernels::WeightFormat::kE4m3Rounded)
      rounded_features = std::max(rounded_features, weights->in_features);
    if (!kernels::IsPacked(weights->layout))
      partial_floats = kernels::LinearPartialFloats(buffers.kernels, max_rows);
  }
  buffers.scratch.Share(&partials, partial_floats, "linear.partials");
  buffers.scratch.Share(
      &counters, kernels::LinearNumCounters(buffers.kernels, static_cast<uint32_t>(out_features)),
      "linear.counters");
  if (reordered_features != 0)
    buffers.activations.ShareElements(&reordered,
                                      size_t{max_rows} * static_cast<size_t>(reordered_features),
                                      buffers.kernels.dtype, "linear.reordered");
  if (rounded_features == 0) return;
  buffers.activations.ShareElements(&rounded.elements,
                                    size_t{max_rows} * static_cast<size_t>(rounded_features),
                                    runtime::DType::kE4m3, "linear.rounded");
  buffers.activations.Share(&rounded.scales, max_rows, "linear.row_scales");
}

absl::Status EnqueueLinear(const LayerContext& context, const LinearScratch& scratch,
                           const kernels::LinearWeights& weights, const LinearCall& call) {
  kernels::LinearArgs args{.x = call.x,
                           .out = call.out,
                           .num_rows = call.num_rows,
                           .partials = scratch.partials,
                           .counters = scratch.counters,
                           .scale = call.scale,
                           .out_is_f32 = call.out_is_f32 ? 1 : 0,
                           .silu_mul = call.silu_mul ? 1 : 0,
                           // Others come between the plan, which counts rows, and here.
                           .reads_ahead = true,
                           .ahead = call.ahead};
  if (call.norm_before != nullptr) args.ahead = kernels::KernelAhead::kNorm;
  if (call.norm_before != nullptr && call.norm_before->IsDoneBeside(context)) {
    args.ahead = kernels::KernelAhead::kLong;
    args.x = context.x.residual;
    args.norm_weight = call.norm_before->weight();
    args.norm_eps = call.norm_before->eps();
    args.norm_weight_offset = call.norm_before->weight_offset();
  }
  if (call.norm_behind != nullptr && call.norm_behind->IsDoneBeside(context)) {
    args.out = context.x.residual;
    args.adds_to_out = 1;
    args.branch_scale = call.norm_behind->branch_scale();
  }
  if (weights.reordered) {
    REPRISE_RETURN_IF_ERROR(
        kernels::GatherColumns(context.stream, context.kernels,
                               {.x = args.x,
                                .out = scratch.reordered,
                                .order = weights.input_order,
                                .num_rows = call.num_rows,
                                .columns = static_cast<int32_t>(weights.in_features)},
                               call.max_rows));
    args.x = scratch.reordered;
    args.ahead = kernels::KernelAhead::kNorm;  // as short
  }
  if (const RoundedRows rounded = scratch.RoundedInputOf(weights); rounded.elements != nullptr) {
    if (call.norm_before == nullptr)
      REPRISE_RETURN_IF_ERROR(
          kernels::RoundRows(context.stream, context.kernels,
                             {.x = args.x,
                              .out = rounded.elements,
                              .scales = rounded.scales,
                              .num_rows = call.num_rows,
                              .columns = static_cast<int32_t>(weights.in_features)},
                             call.max_rows));
    args.x = rounded.elements;
    args.row_scales = rounded.scales;
    args.ahead = kernels::KernelAhead::kNorm;
  }
  return kernels::Linear(context.stream, context.kernels, weights, args, call.max_rows,
                         context.linear);
}

namespace {

bool CanFuse(const LayerContext& context) {
  return !context.shape.separate_norms && context.linear == kernels::LinearCandidate::kBest;
}

}  // namespace

bool CanNormInput(const LayerContext& context, const kernels::LinearWeights& weights) {
  return CanFuse(context) &&
         kernels::LinearNormsInput(context.kernels, weights, context.shape.max_tokens);
}

bool CanAddBranch(const LayerContext& context, const kernels::LinearWeights& weights) {
  return CanFuse(context) &&
         kernels::LinearAddsToOut(context.kernels, weights, context.shape.max_tokens);
}

}  // namespace reprise::models
