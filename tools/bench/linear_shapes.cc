// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/linear_shapes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "models/config/architectures.h"
#include "runtime/status_macros.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

// Of vector loads and bulk copies.
constexpr uint64_t kAlignment = 256;

// Weights follow each other as the calls do; where the range ends they begin anew.
void PlaceWeights(const std::vector<LinearShape>& shapes, runtime::DType dtype, uint64_t pool_bytes,
                  LinearChain* chain) {
  uint64_t offset = 0;
  bool again = false;
  for (const size_t shape : chain->shapes) {
    const uint64_t bytes = shapes[shape].WeightBytes(dtype);
    if (offset + bytes > pool_bytes) {
      offset = 0;
      again = true;
    }
    chain->offsets.push_back(offset);
    if (!again) chain->cycled_bytes += bytes;
    offset += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
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

uint64_t LinearShape::WeightBytes(runtime::DType dtype) const {
  return static_cast<uint64_t>(out_features) * static_cast<uint64_t>(in_features) *
         runtime::SizeOf(dtype);
}

std::string LinearShape::SizeText() const { return absl::StrCat(out_features, "x", in_features); }

std::vector<LinearShape> LinearsOf(const models::ModelSpec& spec) {
  const auto layers = static_cast<uint32_t>(spec.num_layers);
  const auto attention = static_cast<uint32_t>(spec.NumAttentionLayers());
  uint32_t sparse = 0;  // layers with experts
  for (int64_t layer = 0; layer < spec.num_layers; ++layer)
    sparse += spec.HasExperts(layer) ? 1 : 0;
  std::vector<LinearShape> shapes = {{.name = "qkv",
                                      .out_features = spec.qkv_size(),
                                      .in_features = spec.hidden_size,
                                      .per_step = attention,
                                      .biased = spec.qkv_bias},
                                     {.name = "o",
                                      .out_features = spec.hidden_size,
                                      .in_features = spec.q_size(),
                                      .per_step = attention,
                                      .biased = spec.o_bias}};
  if (attention < layers) {
    shapes.push_back({.name = "mamba_in",
                      .out_features = spec.mamba->projected_size(),
                      .in_features = spec.hidden_size,
                      .per_step = layers - attention,
                      .biased = spec.mamba->proj_bias});
    shapes.push_back({.name = "mamba_out",
                      .out_features = spec.hidden_size,
                      .in_features = spec.mamba->inner_size(),
                      .per_step = layers - attention,
                      .biased = spec.mamba->proj_bias});
  }
  // Beside experts there may be an MLP that all tokens go through.
  const models::Architecture* const architecture = models::FindArchitecture(spec.architecture);
  const bool shares = architecture != nullptr && architecture->shared_mlp != nullptr;
  const uint32_t dense = shares ? layers : layers - sparse;
  if (dense > 0) {
    shapes.push_back({.name = "gate_up",
                      .out_features = 2 * spec.intermediate_size,
                      .in_features = spec.hidden_size,
                      .per_step = dense,
                      .biased = spec.mlp_bias});
    shapes.push_back({.name = "down",
                      .out_features = spec.hidden_size,
                      .in_features = spec.intermediate_size,
                      .per_step = dense,
                      .biased = spec.mlp_bias});
  }
  if (sparse > 0)
    shapes.push_back({.name = "router",
                      .out_features = spec.num_experts,
                      .in_features = spec.hidden_size,
                      .per_step = sparse,
                      .out_is_f32 = true});
  shapes.push_back({.name = "lm_head",
                    .out_features = spec.vocab_size,
                    .in_features = spec.hidden_size,
                    .per_step = 1,
                    .out_is_f32 = true});
  return shapes;
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
                         runtime::DType dtype, uint64_t pool_bytes) {
  LinearChain chain{.name = shapes[shape].name};
  chain.shapes.assign(calls, shape);
  chain.unit_bytes = shapes[shape].WeightBytes(dtype);
  PlaceWeights(shapes, dtype, pool_bytes, &chain);
  return chain;
}

LinearChain ChainOfSteps(const std::vector<LinearShape>& shapes, uint32_t steps,
                         runtime::DType dtype, uint64_t pool_bytes) {
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
  chain.unit_bytes = StepWeightBytes(shapes, dtype);
  PlaceWeights(shapes, dtype, pool_bytes, &chain);
  return chain;
}

uint64_t StepWeightBytes(const std::vector<LinearShape>& shapes, runtime::DType dtype) {
  uint64_t bytes = 0;
  for (const LinearShape& shape : shapes) bytes += shape.per_step * shape.WeightBytes(dtype);
  return bytes;
}

}  // namespace reprise::tools
