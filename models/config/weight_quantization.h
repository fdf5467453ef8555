// SPDX-License-Identifier: Apache-2.0
// WeightQuantization: how a checkpoint stores the linear layers of its blocks, where not in the
// dtype of the rest: E4M3 elements, and scales in tensors of their own.
#ifndef REPRISE_MODELS_CONFIG_WEIGHT_QUANTIZATION_H_
#define REPRISE_MODELS_CONFIG_WEIGHT_QUANTIZATION_H_

#include <cstdint>
#include <string>

namespace reprise::models {

enum class ScaleGranularity : uint8_t {
  kTensor,   // one scale: [] or [1]
  kChannel,  // one for each output: [outputs, 1] or [outputs]
  kBlock,    // one for each 128 x 128 elements, fewer at the ends: [outputs / 128, inputs / 128]
};

struct WeightQuantization {
  ScaleGranularity granularity = ScaleGranularity::kTensor;
  // Of "<layer>.weight" the scales are "<layer>.<scale_name>".
  std::string scale_name = "weight_scale";
  // There are "<layer>.input_scale", for products of rounded activations. Ours are not rounded.
  bool input_scales = false;

  bool operator==(const WeightQuantization&) const = default;
};

inline constexpr int64_t kScaleBlock = 128;

}  // namespace reprise::models

#endif  // REPRISE_MODELS_CONFIG_WEIGHT_QUANTIZATION_H_
