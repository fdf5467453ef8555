// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/linear_shapes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/packed_layout.h"
#include "models/config/architectures.h"
#include "runtime/status_macros.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

// Of vector loads and bulk copies.
constexpr uint64_t kAlignment = 256;

uint64_t Align(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Weights follow each other as the calls do, those of a format in its ranges; where the next would
// make them more than pool_bytes, all begin anew.
void PlaceWeights(const std::vector<LinearShape>& shapes, uint64_t pool_bytes, LinearChain* chain) {
  std::map<kernels::WeightFormat, LinearRanges> ends;
  uint64_t bytes = 0;
  bool again = false;
  for (const size_t index : chain->shapes) {
    const LinearShape& shape = shapes[index];
    if (bytes + shape.WeightBytes() > pool_bytes) {
      ends.clear();
      bytes = 0;
      again = true;
    }
    bytes += shape.WeightBytes();
    if (!again) chain->cycled_bytes = bytes;
    LinearRanges& end = ends[shape.format];
    chain->begins.push_back(end);
    end.elements += Align(shape.ElementBytes());
    end.scales += Align(shape.ScaleBytes());
  }
}

template <typename Has>
uint32_t CountLayers(const models::ModelSpec& spec, Has has) {
  uint32_t count = 0;
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) count += has(layer) ? 1 : 0;
  return count;
}

// `shape` as often as layers have it, and once more, plain, where some are left out of the model's
// quantization.
template <typename Has>
void AddOfBlocks(const models::ModelSpec& spec, models::BlockLinear linear, Has has,
                 LinearShape shape, std::vector<LinearShape>* shapes) {
  const bool quantized = spec.weight_quantization.has_value();
  const uint32_t plain = CountLayers(spec, [&](int64_t layer) {
    return has(layer) && quantized && !spec.IsQuantized(layer, linear);
  });
  shape.per_step = CountLayers(spec, has) - plain;
  if (shape.per_step > 0) shapes->push_back(shape);
  shape.name += "_plain";
  shape.plain = true;
  shape.per_step = plain;
  if (shape.per_step > 0) shapes->push_back(shape);
}

kernels::PackedLayout LayoutOf(const LinearShape& shape) {
  return {.out_features = shape.out_features,
          .in_features = shape.in_features,
          .scale_inputs = shape.group_size};
}

absl::StatusOr<LinearShape> ParseLinearShape(absl::string_view text) {
  const std::vector<absl::string_view> sizes = absl::StrSplit(text, 'x');
  const auto refuse = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("shape: got \"", text,
                     "\", allowed: <out_features>x<in_features>, such as 28672x4096, each 1 to ",
                     kMostFeatures));
  };
  if (sizes.size() != 2) return refuse();
  const auto out = ParseUnsigned({sizes[0].data(), sizes[0].size()}, 1, kMostFeatures);
  const auto in = ParseUnsigned({sizes[1].data(), sizes[1].size()}, 1, kMostFeatures);
  if (!out.ok() || !in.ok()) return refuse();
  LinearShape shape{.out_features = static_cast<int64_t>(*out),
                    .in_features = static_cast<int64_t>(*in)};
  shape.name = shape.SizeText();
  return shape;
}

}  // namespace

uint64_t LinearShape::ElementBytes() const {
  const bool int4 = format == kernels::WeightFormat::kInt4;
  const int64_t elements = int4 ? LayoutOf(*this).Int4RowElements() : in_features;
  return static_cast<uint64_t>(out_features) * static_cast<uint64_t>(elements) *
         static_cast<uint64_t>(kernels::BitsOf(format)) / 8;
}

uint64_t LinearShape::ScaleBytes() const {
  if (group_size == 0) return 0;
  return static_cast<uint64_t>(out_features * LayoutOf(*this).ScaleGroups()) * sizeof(float);
}

std::string LinearShape::SizeText() const { return absl::StrCat(out_features, "x", in_features); }

std::vector<LinearShape> LinearsOf(const models::ModelSpec& spec) {
  using models::BlockLinear;
  const models::Architecture* const architecture = models::FindArchitecture(spec.architecture);
  // Beside experts there may be an MLP that all tokens go through.
  const bool shares = architecture != nullptr && architecture->shared_mlp != nullptr;
  const auto has_attention = [&](int64_t layer) { return !spec.IsMamba(layer); };
  const auto has_mamba = [&](int64_t layer) { return spec.IsMamba(layer); };
  const auto has_experts = [&](int64_t layer) { return spec.HasExperts(layer); };
  const auto has_mlp = [&](int64_t layer) { return shares || !spec.HasExperts(layer); };
  std::vector<LinearShape> shapes;
  const int64_t hidden = spec.hidden_size;
  AddOfBlocks(spec, BlockLinear::kAttentionIn, has_attention,
              {.name = "qkv",
               .out_features = spec.qkv_size(),
               .in_features = hidden,
               .biased = spec.qkv_bias},
              &shapes);
  AddOfBlocks(
      spec, BlockLinear::kAttentionOut, has_attention,
      {.name = "o", .out_features = hidden, .in_features = spec.q_size(), .biased = spec.o_bias},
      &shapes);
  if (const auto& mamba = spec.mamba) {
    AddOfBlocks(spec, BlockLinear::kAttentionIn, has_mamba,
                {.name = "mamba_in",
                 .out_features = mamba->projected_size(),
                 .in_features = hidden,
                 .biased = mamba->proj_bias},
                &shapes);
    AddOfBlocks(spec, BlockLinear::kAttentionOut, has_mamba,
                {.name = "mamba_out",
                 .out_features = hidden,
                 .in_features = mamba->inner_size(),
                 .biased = mamba->proj_bias},
                &shapes);
  }
  AddOfBlocks(spec, BlockLinear::kMlpIn, has_mlp,
              {.name = "gate_up",
               .out_features = 2 * spec.intermediate_size,
               .in_features = hidden,
               .biased = spec.mlp_bias},
              &shapes);
  AddOfBlocks(spec, BlockLinear::kMlpOut, has_mlp,
              {.name = "down",
               .out_features = hidden,
               .in_features = spec.intermediate_size,
               .biased = spec.mlp_bias},
              &shapes);
  if (const uint32_t sparse = CountLayers(spec, has_experts); sparse > 0)
    shapes.push_back({.name = "router",
                      .out_features = spec.num_experts,
                      .in_features = hidden,
                      .per_step = sparse,
                      .out_is_f32 = true,
                      .plain = true});
  shapes.push_back({.name = "lm_head",
                    .out_features = spec.vocab_size,
                    .in_features = hidden,
                    .per_step = 1,
                    .out_is_f32 = true,
                    .plain = true});
  return shapes;
}

void SetFormats(std::vector<LinearShape>* shapes, runtime::DType dtype,
                const std::optional<models::WeightQuantization>& quantization) {
  for (LinearShape& shape : *shapes) {
    const bool quantized = quantization.has_value() && !shape.plain;
    shape.format = quantized ? quantization->format() : kernels::WeightFormatOf(dtype);
    shape.group_size = quantized ? quantization->scale_inputs() : 0;
  }
}

absl::StatusOr<std::vector<LinearShape>> ParseLinearShapes(std::string_view text) {
  std::vector<LinearShape> shapes;
  const std::vector<absl::string_view> parts =
      absl::StrSplit(absl::string_view(text.data(), text.size()), ',');
  for (const absl::string_view part : parts) {
    REPRISE_ASSIGN_OR_RETURN(const LinearShape shape, ParseLinearShape(part));
    const bool again = std::any_of(shapes.begin(), shapes.end(),
                                   [&](const LinearShape& s) { return s.name == shape.name; });
    if (again) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape: got \"", part, "\" twice, allowed: every shape once"));
    }
    shapes.push_back(shape);
  }
  return shapes;
}

LinearChain ChainOfShape(const std::vector<LinearShape>& shapes, size_t shape, uint32_t calls,
                         uint64_t pool_bytes) {
  LinearChain chain{.name = shapes[shape].name};
  chain.shapes.assign(calls, shape);
  chain.unit_bytes = shapes[shape].WeightBytes();
  PlaceWeights(shapes, pool_bytes, &chain);
  return chain;
}

LinearChain ChainOfSteps(const std::vector<LinearShape>& shapes, uint32_t steps,
                         uint64_t pool_bytes) {
  LinearChain chain{.name = "step", .steps = steps};
  uint32_t layers = 0;
  for (const LinearShape& shape : shapes) layers = std::max(layers, shape.per_step);
  for (uint32_t step = 0; step < steps; ++step) {
    for (uint32_t layer = 0; layer < layers; ++layer) {
      for (size_t i = 0; i < shapes.size(); ++i)
        // What runs fewer times than there are layers comes behind them.
        if (layer >= layers - shapes[i].per_step) chain.shapes.push_back(i);
    }
  }
  chain.unit_bytes = StepWeightBytes(shapes);
  PlaceWeights(shapes, pool_bytes, &chain);
  return chain;
}

uint64_t StepWeightBytes(const std::vector<LinearShape>& shapes) {
  uint64_t bytes = 0;
  for (const LinearShape& shape : shapes) bytes += shape.per_step * shape.WeightBytes();
  return bytes;
}

std::map<kernels::WeightFormat, LinearRanges> RangesOf(const std::vector<LinearShape>& shapes,
                                                       const std::vector<LinearChain>& chains) {
  std::map<kernels::WeightFormat, LinearRanges> all;
  for (const LinearChain& chain : chains) {
    for (size_t call = 0; call < chain.shapes.size(); ++call) {
      const LinearShape& shape = shapes[chain.shapes[call]];
      const LinearRanges& begin = chain.begins[call];
      LinearRanges& ranges = all[shape.format];
      ranges.elements = std::max(ranges.elements, begin.elements + Align(shape.ElementBytes()));
      ranges.scales = std::max(ranges.scales, begin.scales + Align(shape.ScaleBytes()));
    }
  }
  return all;
}

}  // namespace reprise::tools
