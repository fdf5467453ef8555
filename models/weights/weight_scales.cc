// SPDX-License-Identifier: Apache-2.0
#include "models/weights/weight_scales.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "models/weights/int4_tensors.h"
#include "models/weights/parallel.h"
#include "models/weights/safetensors.h"
#include "runtime/float_convert.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

// One part's scales of weights, as the checkpoint has them; of 4 bits, as kernels read them.
struct PublishedScales {
  ScaleGranularity granularity;
  int64_t columns;  // of kBlock, and of 4 bits
  bool int4 = false;
  std::vector<float> values = {};

  float Of(int64_t row, int64_t group) const {
    if (int4) return values[static_cast<size_t>(row * columns + group)];
    switch (granularity) {
      case ScaleGranularity::kTensor:
        break;
      case ScaleGranularity::kChannel:
        return values[static_cast<size_t>(row)];
      case ScaleGranularity::kBlock:
        static_assert(kScaleBlock == kernels::kScaleInputs);
        return values[static_cast<size_t>(row / kScaleBlock * columns + group)];
    }
    return values[0];
  }
};

// rows, columns: of the weight.
std::vector<std::vector<int64_t>> ShapesOfScales(ScaleGranularity granularity, int64_t rows,
                                                 int64_t columns) {
  switch (granularity) {
    case ScaleGranularity::kTensor:
      break;
    case ScaleGranularity::kChannel:
      return {{rows, 1}, {rows}};
    case ScaleGranularity::kBlock:
      return {{(rows + kScaleBlock - 1) / kScaleBlock, (columns + kScaleBlock - 1) / kScaleBlock}};
  }
  return {{}, {1}};
}

absl::StatusOr<PublishedScales> ReadPart(const Checkpoint& checkpoint,
                                         const WeightQuantization& quantization,
                                         const WeightScales::Part& part,
                                         const kernels::PackedLayout& matrix) {
  const int64_t columns = matrix.in_features;
  if (quantization.format() == kernels::WeightFormat::kInt4) {
    REPRISE_ASSIGN_OR_RETURN(
        std::vector<float> words,
        ReadInt4Scales(checkpoint, quantization, part.layer, part.rows, columns));
    return PublishedScales{.granularity = quantization.granularity,
                           .columns = matrix.ScaleGroups(),
                           .int4 = true,
                           .values = std::move(words)};
  }
  const ScaleGranularity granularity = quantization.granularity;
  const std::string name = NameOfScales(quantization, part);
  const auto shapes = ShapesOfScales(granularity, part.rows, columns);
  std::string allowed;
  for (const std::vector<int64_t>& shape : shapes)
    absl::StrAppend(&allowed, allowed.empty() ? "" : " and ", ShowShape(shape));
  const TensorView* const view = checkpoint.Find(name);
  if (view == nullptr)
    return absl::NotFoundError(
        absl::StrCat("tensor '", name, "': missing, wanted with shape ", allowed));
  if (std::find(shapes.begin(), shapes.end(), view->shape) == shapes.end())
    return absl::InvalidArgumentError(absl::StrCat("tensor '", name, "': got shape ",
                                                   ShowShape(view->shape), ", allowed ", allowed));
  if (!view->is_float() || runtime::IsFp8(view->dtype))
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor '", name, "': got dtype ", ElementName(*view), ", allowed f32, bf16 and f16"));
  PublishedScales scales{.granularity = granularity,
                         .columns = (columns + kScaleBlock - 1) / kScaleBlock};
  scales.values.resize(view->data.size() / runtime::SizeOf(view->dtype));
  runtime::ConvertElements(view->dtype, runtime::DType::kF32, view->data.data(),
                           reinterpret_cast<std::byte*>(scales.values.data()),
                           scales.values.size());
  for (const float scale : scales.values) {
    if (std::isfinite(scale) && scale >= 0.0f) continue;
    return absl::InvalidArgumentError(absl::StrCat("tensor '", name, "': got scale ", scale,
                                                   ", allowed finite numbers of at least 0"));
  }
  return scales;
}

// Of MXFP4, whose tensor was checked: powers of two.
std::vector<float> ReadBlockScales(const Checkpoint& checkpoint, const WeightScales& scales) {
  const TensorView& view = *checkpoint.Find(scales.blocks->tensor);
  const kernels::PackedLayout& matrix = scales.matrix;
  const int64_t blocks = matrix.in_features / kMxfp4Block;
  const std::byte* const exponents =
      view.data.data() + scales.blocks->expert * matrix.out_features * blocks;
  return LayOutScales(scales, [&](int64_t row, int64_t block) {
    if (block >= blocks) return 0.0f;  // of inputs that fill up
    const int64_t output =
        scales.blocks->alternates ? AlternateOutput(row, matrix.out_features) : row;
    return std::ldexp(1.0f, static_cast<int>(exponents[output * blocks + block]) - 127);
  });
}

// The order of inputs that all parts of a region share.
absl::StatusOr<std::vector<uint32_t>> ReadOrder(const Checkpoint& checkpoint,
                                                const WeightQuantization& quantization,
                                                const WeightScales& scales) {
  std::vector<uint32_t> order;
  for (const WeightScales::Part& part : scales.parts) {
    REPRISE_ASSIGN_OR_RETURN(
        std::vector<uint32_t> of_part,
        ReadInt4Order(checkpoint, quantization, part.layer, scales.matrix.in_features));
    if (!order.empty() && order != of_part)
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", Int4OrderName(quantization.storage, part.layer),
                       "': got other groups of inputs than '",
                       Int4OrderName(quantization.storage, scales.parts.front().layer),
                       "' has, allowed the same: both layers are run as one, on one input"));
    order = std::move(of_part);
  }
  return order;
}

}  // namespace

std::string NameOfScales(const WeightQuantization& quantization, const WeightScales::Part& part) {
  return absl::StrCat(part.layer, ".", quantization.scale_name);
}

absl::Status CheckWeightScales(const Checkpoint& checkpoint, const WeightPlan& plan) {
  const std::vector<WeightScales> all = plan.scales();
  return ForEachInParallel(all.size(), [&](size_t i) -> absl::Status {
    for (const WeightScales::Part& part : all[i].parts)
      REPRISE_RETURN_IF_ERROR(
          ReadPart(checkpoint, *plan.quantization(), part, all[i].matrix).status());
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<float>> ReadWeightScales(
    const Checkpoint& checkpoint, const WeightScales& scales,
    const std::optional<WeightQuantization>& of_plan) {
  if (scales.blocks.has_value()) return ReadBlockScales(checkpoint, scales);
  const WeightQuantization& quantization = *of_plan;
  std::vector<PublishedScales> parts;
  std::vector<std::pair<size_t, int64_t>> part_of_row;  // and the row there
  for (const WeightScales::Part& part : scales.parts) {
    REPRISE_ASSIGN_OR_RETURN(PublishedScales read,
                             ReadPart(checkpoint, quantization, part, scales.matrix));
    for (int64_t row = 0; row < part.rows; ++row)
      part_of_row.emplace_back(parts.size(), part.heads.Published(row));
    parts.push_back(std::move(read));
  }
  return LayOutScales(scales, [&](int64_t row, int64_t group) {
    const auto& [part, row_of_part] = part_of_row[static_cast<size_t>(row)];
    return parts[part].Of(row_of_part, group);
  });
}

absl::StatusOr<std::vector<std::vector<uint32_t>>> ReadInputOrders(const Checkpoint& checkpoint,
                                                                   const WeightPlan& plan) {
  std::vector<std::vector<uint32_t>> orders;
  if (!plan.quantization() || !plan.quantization()->reorders_inputs) return orders;
  const std::vector<WeightScales> all = plan.scales();
  orders.resize(all.size());
  REPRISE_RETURN_IF_ERROR(ForEachInParallel(all.size(), [&](size_t i) -> absl::Status {
    REPRISE_ASSIGN_OR_RETURN(orders[i], ReadOrder(checkpoint, *plan.quantization(), all[i]));
    return absl::OkStatus();
  }));
  return orders;
}

}  // namespace reprise::models
