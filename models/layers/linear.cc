// SPDX-License-Identifier: Apache-2.0
#include "models/layers/linear.h"

#include <algorithm>

#include "kernels/linear/linear.h"

namespace reprise::models {

void LinearScratch::Declare(const LayerBuffers& buffers, uint32_t max_rows,
                            std::initializer_list<const kernels::LinearWeights*> all) {
  size_t partial_floats = 0;
  int64_t out_features = 0;
  for (const kernels::LinearWeights* weights : all) {
    out_features = std::max(out_features, weights->out_features);
    if (!kernels::IsPacked(weights->layout))
      partial_floats = kernels::LinearPartialFloats(buffers.kernels, max_rows);
  }
  buffers.scratch.Share(&partials, partial_floats, "linear.partials");
  buffers.scratch.Share(
      &counters, kernels::LinearNumCounters(buffers.kernels, static_cast<uint32_t>(out_features)),
      "linear.counters");
}

absl::Status EnqueueLinear(const LayerContext& context, const LinearScratch& scratch,
                           const kernels::LinearWeights& weights, const LinearCall& call) {
  return kernels::Linear(context.stream, context.kernels, weights,
                         {.x = call.x,
                          .out = call.out,
                          .num_rows = call.num_rows,
                          .partials = scratch.partials,
                          .counters = scratch.counters,
                          .scale = call.scale,
                          .out_is_f32 = call.out_is_f32 ? 1 : 0,
                          .silu_mul = call.silu_mul ? 1 : 0,
                          // Others come between the plan, which counts rows, and here.
                          .reads_ahead = true},
                         call.max_rows, context.linear);
}

}  // namespace reprise::models
