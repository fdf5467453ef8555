// SPDX-License-Identifier: Apache-2.0
// Sizes of models on the wire: what is counted from them on the other side is what the server would
// count, of every model that we know.
#include "service/wire/model_sizes.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "models/config/hf_config.h"
#include "models/config/model_presets.h"
#include "models/decoder.h"
#include "tests/testing/source_dir.h"
#include "tests/testing/status_matchers.h"

namespace reprise::service {
namespace {

using ::reprise::testing::StatusIs;

std::vector<std::pair<std::string, models::ModelSpec>> AllSpecs() {
  std::vector<std::pair<std::string, models::ModelSpec>> specs;
  for (const std::string_view name : models::PresetNames())
    specs.emplace_back(name, *models::PresetSpec(name));
  const std::string fixtures = testing::SourceDir() + "/tests/fixtures";
  for (const auto& entry : std::filesystem::directory_iterator(fixtures)) {
    const auto spec = models::ReadHfConfig(entry.path().string());
    EXPECT_OK(spec.status());
    if (spec.ok()) specs.emplace_back(entry.path().filename().string(), *spec);
  }
  specs.emplace_back("rounded", *models::PresetSpec("llama-3.1-8b-fp8"));
  specs.back().second.weight_quantization->rounds_activations = true;
  for (const bool rounds : {false, true}) {
    specs.emplace_back("left out", *models::PresetSpec("llama-3.1-8b-fp8"));
    auto& quantization = specs.back().second.weight_quantization;
    quantization->rounds_activations = rounds;
    quantization->left_out.assign(32, 0);
    quantization->left_out[3] = 5;
    quantization->left_out[31] = 8;
  }
  return specs;
}

TEST(ModelSizes, CountTheSameOnBothSides) {
  constexpr runtime::DType kBf16 = runtime::DType::kBf16, kE4m3 = runtime::DType::kE4m3;
  const auto specs = AllSpecs();
  ASSERT_GT(specs.size(), 40u);
  for (const auto& [name, spec] : specs) {
    SCOPED_TRACE(name);
    v1::ModelSizes wire;
    ModelSizesToWire(spec, &wire);
    ASSERT_OK_AND_ASSIGN(const models::ModelSpec sizes, ModelSizesFromWire(wire));
    for (const uint64_t rows : {1, 7, 64}) {
      for (const double attended : {1.0, 700.5}) {
        ASSERT_OK_AND_ASSIGN(const models::StepBytes own,
                             models::BytesOfStep(spec, kBf16, kE4m3, {.decoding = rows}, attended));
        ASSERT_OK_AND_ASSIGN(
            const models::StepBytes told,
            models::BytesOfStep(sizes, kBf16, kE4m3, {.decoding = rows}, attended));
        EXPECT_EQ(told.weights, own.weights);
        EXPECT_EQ(told.kv_read, own.kv_read);
        EXPECT_EQ(told.kv_written, own.kv_written);
        EXPECT_EQ(told.activations, own.activations);
      }
    }
    // What rules of single kernels count by.
    EXPECT_EQ(sizes.architecture, spec.architecture);
    EXPECT_EQ(sizes.vocab_size, spec.vocab_size);
    EXPECT_EQ(sizes.NumRopeTables(), spec.NumRopeTables());
    EXPECT_EQ(sizes.NumAttentionLayers(), spec.NumAttentionLayers());
    EXPECT_EQ(sizes.RowStateBytes(kBf16), spec.RowStateBytes(kBf16));
    EXPECT_EQ(sizes.MeanVisible(900), spec.MeanVisible(900));
    EXPECT_EQ(sizes.MeanExperts(5), spec.MeanExperts(5));
    EXPECT_EQ(sizes.q_size(), spec.q_size());
    EXPECT_EQ(sizes.whole_qk_norm, spec.whole_qk_norm);
    EXPECT_EQ(sizes.mxfp4_experts, spec.mxfp4_experts);
    for (int64_t layer = 0; layer < spec.num_layers; ++layer)
      EXPECT_EQ(sizes.HasExperts(layer), spec.HasExperts(layer));
    ASSERT_EQ(sizes.weight_quantization.has_value(), spec.weight_quantization.has_value());
    if (spec.weight_quantization) {
      EXPECT_EQ(sizes.weight_quantization->format(), spec.weight_quantization->format());
      EXPECT_EQ(sizes.weight_quantization->scale_inputs(),
                spec.weight_quantization->scale_inputs());
      EXPECT_EQ(sizes.weight_quantization->left_out, spec.weight_quantization->left_out);
    }
  }
}

TEST(ModelSizes, OfNoModelAreRefused) {
  v1::ModelSizes wire;
  EXPECT_THAT(ModelSizesFromWire(wire), StatusIs(absl::StatusCode::kInvalidArgument, "got ''"));
  ModelSizesToWire(*models::PresetSpec("llama-3.1-8b"), &wire);
  wire.set_num_heads(UINT64_MAX);
  EXPECT_THAT(ModelSizesFromWire(wire), StatusIs(absl::StatusCode::kInvalidArgument, "num_heads"));
  ModelSizesToWire(*models::PresetSpec("llama-3.1-8b"), &wire);
  wire.mutable_quantized_weights()->set_format("int3");
  EXPECT_THAT(ModelSizesFromWire(wire),
              StatusIs(absl::StatusCode::kInvalidArgument, "quantized_weights: got \"int3\""));
  wire.mutable_quantized_weights()->set_format("fp8_e4m3");
  wire.mutable_quantized_weights()->add_left_out(1);
  EXPECT_THAT(ModelSizesFromWire(wire),
              StatusIs(absl::StatusCode::kInvalidArgument, "left_out: got 1 layers"));
  wire.mutable_quantized_weights()->add_left_out(16);
  EXPECT_THAT(ModelSizesFromWire(wire),
              StatusIs(absl::StatusCode::kInvalidArgument, "left_out: got 16"));
  wire.Clear();
  ModelSizesToWire(*models::PresetSpec("qwen3-30b-a3b-int4"), &wire);
  wire.mutable_quantized_weights()->set_reorders_inputs(true);
  EXPECT_THAT(ModelSizesFromWire(wire),
              StatusIs(absl::StatusCode::kUnimplemented, "model with experts"));
}

}  // namespace
}  // namespace reprise::service
