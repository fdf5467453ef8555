// SPDX-License-Identifier: Apache-2.0
// The linear layers of a decode step, as `reprise bench linear` times them: the distinct matrices
// of a model and how often a step runs each, or matrices of given sizes; how their weights are
// stored; and where the weights of a chain of calls lie in memory. Numbers alone; no device.
#ifndef REPRISE_TOOLS_BENCH_LINEAR_SHAPES_H_
#define REPRISE_TOOLS_BENCH_LINEAR_SHAPES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/weight_format.h"
#include "models/config/model_spec.h"
#include "models/config/weight_quantization.h"
#include "runtime/dtype.h"

namespace reprise::tools {

// The most features of a matrix that is given by its sizes.
inline constexpr uint64_t kMostFeatures = 1u << 24;

struct LinearShape {
  std::string name = {};  // "qkv"; of one that is given by its sizes "28672x4096"
  int64_t out_features = 0;
  int64_t in_features = 0;
  uint32_t per_step = 0;  // calls of a decode step, each with a weight of its own; 0: of no model
  bool biased = false;
  bool out_is_f32 = false;  // else in the type of activations
  bool plain = false;       // of the compute dtype in models with quantised weights, too
  // How the weight is stored: SetFormats.
  kernels::WeightFormat format = kernels::WeightFormat::kBf16;
  int32_t group_size = 0;  // inputs of a scale; 0 where the format has none

  // As the weight lies row-major; of whole tiles packed ones are as large.
  uint64_t ElementBytes() const;
  uint64_t ScaleBytes() const;                                            // 4 each
  uint64_t WeightBytes() const { return ElementBytes() + ScaleBytes(); }  // without the bias
  std::string SizeText() const;                                           // "28672x4096"
};

// qkv, o, gate_up, down and lm_head, in the order of a step; of layers with experts, which are no
// linear layers, the router in place of gate_up and down. What a quantization leaves out in some
// layers is a shape of its own, plain: "qkv_plain". Their formats are SetFormats' to say.
// Wants a spec that ValidateModelSpec accepts.
std::vector<LinearShape> LinearsOf(const models::ModelSpec& spec);

// Weights of `quantization` have its format, as kernels read it; plain ones, and without a
// `quantization` all, that of `dtype`.
void SetFormats(std::vector<LinearShape>* shapes, runtime::DType dtype,
                const std::optional<models::WeightQuantization>& quantization);

// "6144x4096,4096x4096": <out_features>x<in_features>. Errors: InvalidArgument with what, got,
// allowed; on one that comes twice too.
absl::StatusOr<std::vector<LinearShape>> ParseLinearShapes(std::string_view text);

// Bytes of the two ranges of memory that the weights of a format lie in: so many, or how far into
// them a weight begins.
struct LinearRanges {
  uint64_t elements = 0;
  uint64_t scales = 0;
};

// Calls of the linear op, one behind the other.
struct LinearChain {
  std::string name = {};                  // of its shape, or "step"
  uint32_t steps = 0;                     // whole decode steps; 0: its shape again and again
  std::vector<size_t> shapes = {};        // by call: index of the shape
  std::vector<LinearRanges> begins = {};  // by call: where its weight begins
  uint64_t unit_bytes = 0;                // weights of one call, or of one step
  uint64_t cycled_bytes = 0;              // weights that are read before the same come again

  bool is_step() const { return steps != 0; }
  // What a replay's time is divided by: calls, or steps.
  double units() const { return is_step() ? steps : static_cast<double>(shapes.size()); }
};

// One shape, `calls` times. pool_bytes, here and below: weights of all formats together that come
// before they begin anew.
LinearChain ChainOfShape(const std::vector<LinearShape>& shapes, size_t shape, uint32_t calls,
                         uint64_t pool_bytes);
// All calls of a step in its order, the layers and then what runs once, `steps` times. REQUIRES:
// shapes of a model.
LinearChain ChainOfSteps(const std::vector<LinearShape>& shapes, uint32_t steps,
                         uint64_t pool_bytes);

// Of all weights of a step.
uint64_t StepWeightBytes(const std::vector<LinearShape>& shapes);

// Memory that the weights of the chains lie in, by format: bits of one format may be NaN in
// another. Chains share it.
std::map<kernels::WeightFormat, LinearRanges> RangesOf(const std::vector<LinearShape>& shapes,
                                                       const std::vector<LinearChain>& chains);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_BENCH_LINEAR_SHAPES_H_
