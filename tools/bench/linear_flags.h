// SPDX-License-Identifier: Apache-2.0
// Which linear layers a command times (`bench linear`, `tune linear`): options, and what they come
// to.
#ifndef REPRISE_TOOLS_BENCH_LINEAR_FLAGS_H_
#define REPRISE_TOOLS_BENCH_LINEAR_FLAGS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/weight_format.h"
#include "models/config/model_spec.h"
#include "models/model_source.h"
#include "runtime/dtype.h"
#include "tools/bench/linear_shapes.h"
#include "tools/cli.h"

namespace reprise::tools {

// A model's layers, or sizes.
struct LinearShapeFlags {
  models::ModelSource source;
  std::vector<LinearShape> sizes;
  std::optional<runtime::DType> dtype;
  std::optional<kernels::WeightFormat> weights;  // unset: the model's; kNone: that of `dtype`
  std::optional<int32_t> group_size;
};

// `flags` and `rows` must outlive `app`.
void AddLinearShapeOptions(CLI::App* app, LinearShapeFlags* flags, std::vector<uint32_t>* rows);

struct LinearShapes {
  std::vector<LinearShape> shapes;               // with their formats
  runtime::DType dtype = runtime::DType::kBf16;  // of activations
  // Whose they are, without a name where they are given by their sizes; its weights are quantised
  // as the flags say.
  models::ModelSpec model = {};
};

// Errors: usage where there is no shape, or a model and sizes; those of the model's config.
absl::StatusOr<LinearShapes> ShapesOf(const LinearShapeFlags& flags);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_BENCH_LINEAR_FLAGS_H_
