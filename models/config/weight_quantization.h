// SPDX-License-Identifier: Apache-2.0
// WeightQuantization: how a checkpoint stores the linear layers of its blocks, where not in the
// dtype of the rest: elements of E4M3 or of 4 bits, and scales in tensors of their own. Which of
// these layers are stored so is said layer by layer.
#ifndef REPRISE_MODELS_CONFIG_WEIGHT_QUANTIZATION_H_
#define REPRISE_MODELS_CONFIG_WEIGHT_QUANTIZATION_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/weight_format.h"

namespace reprise::models {

enum class ScaleGranularity : uint8_t {
  kTensor,   // one scale: [] or [1]
  kChannel,  // one for each output: [outputs, 1] or [outputs]
  kBlock,    // one for each 128 x 128 elements, fewer at the ends: [outputs / 128, inputs / 128]
};

// Of elements. Words are of 32 bits, with eight elements or zero points each, the first in the
// lowest bits. A weight of 4 bits is (element - zero point) * scale.
enum class WeightStorage : uint8_t {
  kE4m3,  // "<layer>.weight" [outputs, inputs]
  // "<layer>.qweight" words of inputs [inputs / 8, outputs], "<layer>.scales" [groups, outputs],
  // "<layer>.qzeros" words of outputs [groups, outputs / 8], and "<layer>.g_idx" [inputs], the
  // group of each, which may be missing where groups are of neighbours.
  kGptq,
  // "<layer>.qweight" words of outputs [inputs, outputs / 8], "<layer>.scales" [groups, outputs],
  // "<layer>.qzeros" words of outputs [groups, outputs / 8]; of eight outputs words have 0, 2, 4,
  // 6, 1, 3, 5, 7.
  kAwq,
  // "<layer>.weight_packed" words of inputs [outputs, inputs / 8], "<layer>.weight_scale" [outputs,
  // groups], "<layer>.weight_shape" [2], and with zero points "<layer>.weight_zero_point" words of
  // outputs [outputs / 8, groups].
  kPackedInt4,
};

// The linear layers of a block, as they run: those of several tensors are one.
enum class BlockLinear : uint8_t {
  kAttentionIn,   // q, k and v; of Mamba-2 the projection in
  kAttentionOut,  // o; of Mamba-2 the projection out
  kMlpIn,         // gate and up
  kMlpOut,        // down
};
inline constexpr int kNumBlockLinears = 4;

struct WeightQuantization {
  ScaleGranularity granularity = ScaleGranularity::kTensor;  // of kE4m3
  // Of "<layer>.weight" the scales are "<layer>.<scale_name>".
  std::string scale_name = "weight_scale";
  // There are "<layer>.<input_scale_name>", for activations rounded by them. Nobody reads them.
  bool input_scales = false;
  // Of kE4m3: whether the checkpoint means activations to be rounded to 8 bits, and whether they
  // are, in linear layers; experts read them as they are.
  bool means_rounding = false;
  bool rounds_activations = false;
  std::string input_scale_name = "input_scale";
  // [num_layers] of each a bit for every BlockLinear that is "<layer>.weight" in the checkpoint's
  // dtype all the same; empty: none is. Experts are in one format, all of them.
  std::vector<uint8_t> left_out = {};

  WeightStorage storage = WeightStorage::kE4m3;
  // The rest is of 4 bits. Inputs of a scale: 32, 64 or 128, or 0: all of an output.
  int32_t group_size = 0;
  // All zero points are 8; kPackedInt4 stores none then.
  bool symmetric = false;
  // What is stored of a zero point is so much less: of the first version of GPTQ, 1.
  int32_t zero_point_offset = 0;
  // Groups are of any inputs, as many each, which "<layer>.g_idx" says, of kPackedInt4
  // "<layer>.weight_g_idx" [inputs]. Else, and where the latter is missing, of neighbouring ones.
  bool reorders_inputs = false;

  // Of linear layers that are not left out; and of experts.
  kernels::WeightFormat format() const {
    return rounds_activations ? kernels::WeightFormat::kE4m3Rounded : storage_format();
  }
  kernels::WeightFormat storage_format() const {
    return storage == WeightStorage::kE4m3 ? kernels::WeightFormat::kE4m3
                                           : kernels::WeightFormat::kInt4;
  }
  bool Covers(int64_t layer, BlockLinear linear) const {
    return left_out.empty() || (left_out[static_cast<size_t>(layer)] & BitOf(linear)) == 0;
  }
  static uint8_t BitOf(BlockLinear linear) {
    return static_cast<uint8_t>(1u << static_cast<unsigned>(linear));
  }
  // As kernels read them: of the scale of a whole output there are several.
  int32_t scale_inputs() const { return group_size == 0 ? kernels::kScaleInputs : group_size; }
  bool operator==(const WeightQuantization&) const = default;
};

inline constexpr int64_t kScaleBlock = 128;
inline constexpr int64_t kMxfp4Block = kernels::kMxfp4ScaleInputs;  // inputs

}  // namespace reprise::models

#endif  // REPRISE_MODELS_CONFIG_WEIGHT_QUANTIZATION_H_
