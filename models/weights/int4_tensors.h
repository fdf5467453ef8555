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

// Some inputs of a layer's outputs. words: of its elements' tensor, any alignment.
struct Int4Inputs {
  std::span<const std::byte> words;
  int64_t outputs, inputs;   // of the tensor
  int64_t first = 0, count;  // multiples of eight
  // Of every place, the input that is read there; empty: inputs in their own order.
  std::span<const uint32_t> order = {};
};
// Their elements, 0 to 15, of one output: to [count].
void ReadInt4Output(WeightStorage storage, const Int4Inputs& from, int64_t output, uint8_t* to);
// And of eight outputs from `output` on, a multiple of eight, all of which there are: faster, since
// words may be of eight outputs. to: [8, stride], of which [8, count] is written.
void ReadInt4Outputs(WeightStorage storage, const Int4Inputs& from, int64_t output, uint8_t* to,
                     int64_t stride);

// A layer's scales and zero points, checked: kernels::ScaleWord's as floats, [outputs, groups] as
// kernels::PackedLayout counts them.
// Errors: NotFound, InvalidArgument with the tensor's name, got, allowed.
absl::StatusOr<std::vector<float>> ReadInt4Scales(const Checkpoint& checkpoint,
                                                  const WeightQuantization& quantization,
                                                  const std::string& layer, int64_t outputs,
                                                  int64_t inputs);

// Of a quantization that reorders inputs: the inputs of a layer's first group, then those of the
// second, and so on, each group's in ascending order.
// Errors: NotFound, InvalidArgument with the tensor's name, got, allowed.
absl::StatusOr<std::vector<uint32_t>> ReadInt4Order(const Checkpoint& checkpoint,
                                                    const WeightQuantization& quantization,
                                                    const std::string& layer, int64_t inputs);
// "<layer>.g_idx", as the storage calls it.
std::string Int4OrderName(WeightStorage storage, const std::string& layer);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_WEIGHTS_INT4_TENSORS_H_
