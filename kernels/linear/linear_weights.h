// SPDX-License-Identifier: Apache-2.0
// LinearWeights: one linear layer's weight matrix as it lies on a device. Here every field has its
// place; what a kernel can read is said by the instances (instances.h), and Linear refuses the
// rest.
#ifndef REPRISE_KERNELS_LINEAR_LINEAR_WEIGHTS_H_
#define REPRISE_KERNELS_LINEAR_LINEAR_WEIGHTS_H_

#include <cstdint>

#include "kernels/packed_layout.h"
#include "kernels/weight_format.h"

namespace reprise::kernels {

// Which part of a layer's full matrix this is, where tensor parallelism shares it out.
struct WeightShard {
  enum class Dimension : uint8_t {
    kOutFeatures,  // every rank has some of the outputs
    kInFeatures,   // every rank has a part of every sum
  };
  int32_t rank = 0;   // of `world`
  int32_t world = 1;  // 1: the whole matrix
  Dimension dimension = Dimension::kOutFeatures;

  bool operator==(const WeightShard&) const = default;
};

// Addresses are device memory, 16-byte aligned, and outlive every graph that holds them.
struct LinearWeights {
  WeightFormat format = WeightFormat::kNone;
  WeightLayout layout = WeightLayout::kRowMajor;
  const void* data = nullptr;  // [out_features, in_features] in that layout, elements of `format`
  const void* bias = nullptr;  // [out_features] in the type of activations, or nullptr
  int64_t out_features = 0;    // of this shard
  int64_t in_features = 0;     // of this shard
  // Of formats that have them; nullptr and 0 elsewhere. There is a scale for `group_size`
  // neighbouring columns of an output, of E4M3 kScaleInputs, of kInt4 32, 64 or 128, which has the
  // zero point in it (ScaleWord). Where the scales lie says PackedLayout.
  const float* scales = nullptr;
  int32_t group_size = 0;
  // Whether columns are of inputs in another order. Column i is then of input input_order[i],
  // [in_features], and whoever calls Linear puts x into that order before (GatherColumns).
  bool reordered = false;
  const uint32_t* input_order = nullptr;
  WeightShard shard = {};
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_LINEAR_LINEAR_WEIGHTS_H_
