// SPDX-License-Identifier: Apache-2.0
// WeightLayout: where each tensor of a model lies in the one buffer of its weights, and by what
// name it is published. Offsets only: no memory, no device. Part of model_weights.cc's
// implementation.
#ifndef REPRISE_MODELS_WEIGHTS_WEIGHT_LAYOUT_H_
#define REPRISE_MODELS_WEIGHTS_WEIGHT_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/config/model_spec.h"
#include "runtime/dtype.h"

namespace reprise::models {

// Every region begins at a multiple of this, which suits any vector load or bulk copy.
inline constexpr size_t kWeightAlignment = 256;

enum class WeightKind : uint8_t { kMatrix, kNorm, kBias };

// What the step program reads as one tensor: the rows of q, k and v together, for instance.
struct WeightRegion {
  WeightKind kind;
  size_t offset;  // bytes
  int64_t count;  // elements
};

// One tensor of the checkpoint, and where its elements go: a region or a part of one.
struct WeightSlot {
  std::string name;
  std::vector<int64_t> shape;
  size_t offset;  // bytes
};

struct LinearOffsets {
  size_t weight = 0;
  std::optional<size_t> bias;
  int64_t out_features = 0;
  int64_t in_features = 0;
};

struct LayerOffsets {
  size_t input_norm = 0;
  LinearOffsets qkv, o;
  std::optional<size_t> q_norm, k_norm;  // [head_dim]
  size_t post_attention_norm = 0;
  LinearOffsets gate_up, down;
};

struct WeightLayout {
  size_t embedding = 0;
  LinearOffsets lm_head;  // at `embedding` when tied
  size_t final_norm = 0;
  size_t rope = 0;  // [head_dim / 2] f32, in no region and no slot: it is computed
  std::vector<LayerOffsets> layers;
  std::vector<WeightRegion> regions;  // ascending, disjoint
  std::vector<WeightSlot> slots;
  size_t bytes = 0;
};

// `spec` is one that ValidateModelSpec accepts.
WeightLayout PlanWeights(const ModelSpec& spec, runtime::DType dtype);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_WEIGHTS_WEIGHT_LAYOUT_H_
