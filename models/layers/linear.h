// SPDX-License-Identifier: Apache-2.0
// What every linear layer of a decoder shares: the scratch of the linear op, which all of them use
// in turn, and the call.
#ifndef REPRISE_MODELS_LAYERS_LINEAR_H_
#define REPRISE_MODELS_LAYERS_LINEAR_H_

#include <cstdint>
#include <initializer_list>

#include "absl/status/status.h"
#include "kernels/linear/linear_weights.h"
#include "models/layers/layer.h"

namespace reprise::models {

struct LinearScratch {
  float* partials = nullptr;     // null where the device's linears need none
  uint32_t* counters = nullptr;  // the same
  void* reordered = nullptr;     // [rows, in_features]: null where no layer wants another order

  // For calls of these with at most `max_rows` rows. Packed weights need no partial sums.
  void Declare(const LayerBuffers& buffers, uint32_t max_rows,
               std::initializer_list<const kernels::LinearWeights*> all);
};

// x: [rows, in_features], out: [rows, out_features], compute dtype, or f32.
struct LinearCall {
  const void* x = nullptr;
  void* out = nullptr;
  const uint32_t* num_rows = nullptr;  // live count, device address
  uint32_t max_rows = 0;               // of the bucket
  float scale = 1.0f;
  bool out_is_f32 = false;
  bool silu_mul = false;  // LinearArgs::silu_mul
  // What is enqueued just before, where neither norm_before nor a reordering of inputs is.
  kernels::KernelAhead ahead = kernels::KernelAhead::kLong;
  // Whose output x is, and which adds the branch that out is. Where NormLayer::IsDoneBeside, its
  // work is done here.
  const NormLayer* norm_before = nullptr;
  const NormLayer* norm_behind = nullptr;
};
absl::Status EnqueueLinear(const LayerContext& context, const LinearScratch& scratch,
                           const kernels::LinearWeights& weights, const LinearCall& call);

// Elements of activations that putting a row's input into the weights' order moves: read and
// written.
inline uint64_t ReorderedElements(const kernels::LinearWeights& weights) {
  return weights.reordered ? 2 * static_cast<uint64_t>(weights.in_features) : 0;
}

// Whether such a call can do the work of a norm before it, or add to the residual.
bool CanNormInput(const LayerContext& context, const kernels::LinearWeights& weights);
bool CanAddBranch(const LayerContext& context, const kernels::LinearWeights& weights);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_LAYERS_LINEAR_H_
