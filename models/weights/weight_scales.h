// SPDX-License-Identifier: Apache-2.0
// The scales of quantised weights as checkpoints have them, and the order of inputs where groups
// are of inputs that are not neighbours: checked, and as kernels read them. Of 4 bits what a tensor
// holds is int4_tensors.h's to say. Part of model_weights.cc's implementation.
#ifndef REPRISE_MODELS_WEIGHTS_WEIGHT_SCALES_H_
#define REPRISE_MODELS_WEIGHTS_WEIGHT_SCALES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/packed_layout.h"
#include "models/config/weight_quantization.h"
#include "models/weights/checkpoint.h"
#include "models/weights/weight_plan.h"

namespace reprise::models {

// The tensor of a part's scales; none of MXFP4 (WeightScales::blocks).
std::string NameOfScales(const WeightQuantization& quantization, const WeightScales::Part& part);

// Whether the checkpoint has all scales of the plan, as they must be; those of MXFP4 are checked
// with their tensors. Before any memory is taken.
// Errors: NotFound, InvalidArgument with the tensor's name, got, allowed.
absl::Status CheckWeightScales(const Checkpoint& checkpoint, const WeightPlan& plan);

// A region's scales where its kernels read them. quantization: the plan's; of MXFP4 it is not read,
// and the tensor was checked. Errors: as above.
absl::StatusOr<std::vector<float>> ReadWeightScales(
    const Checkpoint& checkpoint, const WeightScales& scales,
    const std::optional<WeightQuantization>& quantization);

// Of every quantised region, LinearWeights::input_order; none where inputs are not reordered.
// Before any memory is taken. Errors: as above.
absl::StatusOr<std::vector<std::vector<uint32_t>>> ReadInputOrders(const Checkpoint& checkpoint,
                                                                   const WeightPlan& plan);

// Puts a region's scales where its kernels read them. of(output, group).
template <typename Of>
std::vector<float> LayOutScales(const WeightScales& scales, Of of) {
  const kernels::PackedLayout& matrix = scales.matrix;
  const int64_t groups = matrix.ScaleGroups();
  std::vector<float> values(static_cast<size_t>(scales.count()));
  for (int64_t row = 0; row < matrix.out_features; ++row) {
    const int64_t output = scales.layout == kernels::WeightLayout::kPackedPairs
                               ? kernels::PairedOutput(row, matrix.out_features)
                               : row;
    for (int64_t group = 0; group < groups; ++group)
      values[static_cast<size_t>(kernels::IsPacked(scales.layout)
                                     ? matrix.PackedScaleOffset(output, group)
                                     : output * groups + group)] = of(row, group);
  }
  return values;
}

}  // namespace reprise::models

#endif  // REPRISE_MODELS_WEIGHTS_WEIGHT_SCALES_H_
