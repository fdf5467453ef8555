// SPDX-License-Identifier: Apache-2.0
// Linear layers of 4 bits as checkpoints have them (WeightStorage), and as kernels read them: names
// and shapes of their tensors, elements of an output, and scales with their zero points. Part of
// model_weights.cc's and weight_plan.cc's implementation.
#ifndef REPRISE_MODELS_WEIGHTS_INT4_TENSORS_H_
#define REPRISE_MODELS_WEIGHTS_INT4_TENSORS_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "models/config/weight_quantization.h"
#include "models/weights/checkpoint.h"

namespace reprise::models {

// Of the elements of a layer: "qweight" or "weight_packed".
const char* Int4TensorName(WeightStorage storage);
// Words of a weight of so many outputs and inputs.
std::vector<int64_t> Int4TensorShape(WeightStorage storage, int64_t outputs, int64_t inputs);
// Of the layer's tensors beside elements and scales, those that a checkpoint may have.
std::vector<std::string> Int4TensorsBeside(const WeightQuantization& quantization,
                                           const std::string& layer);

// The elements of an output, 0 to 15. words: of the layer's tensor, any alignment. to: [inputs],
// which is a multiple of eight, as `outputs` is where words are of outputs.
void ReadInt4Output(WeightStorage storage, std::span<const std::byte> words, int64_t outputs,
                    int64_t output, std::span<uint8_t> to);

// A layer's scales and zero points, checked: kernels::ScaleWord's as floats, [outputs, groups] as
// kernels::PackedLayout counts them.
// Errors: NotFound, InvalidArgument with the tensor's name, got, allowed.
absl::StatusOr<std::vector<float>> ReadInt4Scales(const Checkpoint& checkpoint,
                                                  const WeightQuantization& quantization,
                                                  const std::string& layer, int64_t outputs,
                                                  int64_t inputs);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_WEIGHTS_INT4_TENSORS_H_
