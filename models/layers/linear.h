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
  RoundedRows rounded;           // of layers that round what they read; null: none does

  // Where such weights want what they read rounded to E4M3; null: they do not.
  RoundedRows RoundedInputOf(const kernels::LinearWeights& weights) const {
    const bool rounds = weights.format == kernels::WeightFormat::kE4m3Rounded;
    return rounds ? rounded : RoundedRows{};
  }

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
  // What is enqueued just before, where neither norm_before is nor what makes inputs ready.
  kernels::KernelAhead ahead = kernels::KernelAhead::kLong;
  // Whose output x is, and which adds the branch that out is. Where NormLayer::IsDoneBeside, its
  // work is done here.
  const NormLayer* norm_before = nullptr;
  const NormLayer* norm_behind = nullptr;
};
absl::Status EnqueueLinear(const LayerContext& context, const LinearScratch& scratch,
                           const kernels::LinearWeights& weights, const LinearCall& call);

// Elements of activations that making a row's input ready for such weights moves, read and written:
// in another order, or rounded to E4M3. What is written then, and read by the layer in place of the
// input, counts as half of it, as it is of elements of 16 bits.
inline uint64_t PreparedElements(const kernels::LinearWeights& weights) {
  const auto inputs = static_cast<uint64_t>(weights.in_features);
  if (weights.format == kernels::WeightFormat::kE4m3Rounded) return inputs;
  return weights.reordered ? 2 * inputs : 0;
}
// What of that, and of the input itself, a norm spares that leaves it rounded: nothing reads it to
// round it, and half of it is written and read. norm_before: nullptr, there is none.
inline uint64_t SparedElements(const kernels::LinearWeights& weights,
                               const NormLayer* norm_before) {
  const bool rounds = weights.format == kernels::WeightFormat::kE4m3Rounded;
  return rounds && norm_before != nullptr ? 2 * static_cast<uint64_t>(weights.in_features) : 0;
}

// Whether such a call can do the work of a norm before it, or add to the residual.
bool CanNormInput(const LayerContext& context, const kernels::LinearWeights& weights);
bool CanAddBranch(const LayerContext& context, const kernels::LinearWeights& weights);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_LAYERS_LINEAR_H_
