// SPDX-License-Identifier: Apache-2.0
// Weights of mixtures of experts: where an expert's matrices lie, however a checkpoint stores them,
// and what is said of one that its config contradicts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "models/config/hf_config.h"
#include "models/config/json_input.h"
#include "models/decoder.h"
#include "models/layers/experts_layer.h"
#include "models/layers/mlp_layer.h"
#include "models/weights/checkpoint.h"
#include "models/weights/model_weights.h"
#include "runtime/device.h"
#include "tests/models/model_files.h"
#include "tests/testing/packed_weight.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/tiny_model.h"

namespace reprise::models {
namespace {

using ::reprise::testing::ExpectError;
using ::reprise::testing::TemporaryDirectory;
using ::reprise::testing::TinyModelOptions;
using ::reprise::testing::WriteTinyModel;
using ::testing::HasSubstr;

class ExpertsWeightsTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(device_, runtime::Device::Create({.kind = runtime::DeviceKind::kHost}));
    ASSERT_OK(WriteTinyModel({.architecture = GetParam(), .dtype = runtime::DType::kBf16},
                             directory_.path())
                  .status());
    ASSERT_OK_AND_ASSIGN(spec_, ReadHfConfig(directory_.path()));
    ASSERT_OK_AND_ASSIGN(checkpoint_, Checkpoint::Open(directory_.path()));
  }
  bool stacked() const { return std::string(GetParam()) == "granitemoe"; }
  bool mixtral() const { return std::string(GetParam()) == "mixtral"; }
  std::string Name(const std::string& what) const {
    return absl::StrCat("model.layers.1.",
                        std::string(GetParam()) == "qwen3_moe" ? "mlp" : "block_sparse_moe", ".",
                        what, ".weight");
  }

  std::vector<uint16_t> Tensor(const std::string& name) const {
    const TensorView* const view = checkpoint_->Find(name);
    EXPECT_NE(view, nullptr) << name;
    std::vector<uint16_t> values(view->data.size() / 2);
    std::memcpy(values.data(), view->data.data(), view->data.size());
    return values;
  }
  // One expert's rows of gate and then up, or of down.
  std::vector<uint16_t> Published(size_t expert, bool gate_up) const {
    if (stacked()) {
      const std::vector<uint16_t> all = Tensor(Name(gate_up ? "input_linear" : "output_linear"));
      const auto size = static_cast<ptrdiff_t>(all.size()) / spec_.num_experts;
      const auto begin = all.begin() + static_cast<ptrdiff_t>(expert) * size;
      return {begin, begin + size};
    }
    const auto of_expert = [&](const char* w, const char* proj) {
      return Tensor(Name(absl::StrCat("experts.", expert, ".", mixtral() ? w : proj)));
    };
    if (!gate_up) return of_expert("w2", "down_proj");
    std::vector<uint16_t> both = of_expert("w1", "gate_proj");
    const std::vector<uint16_t> up = of_expert("w3", "up_proj");
    both.insert(both.end(), up.begin(), up.end());
    return both;
  }
  static std::vector<uint16_t> MatrixOf(const kernels::ExpertWeights& weights, size_t expert,
                                        size_t elements) {
    const auto* const first = static_cast<const uint16_t*>(weights.first.data);
    const uint16_t* const at = first + static_cast<ptrdiff_t>(expert) * weights.expert_elements;
    return {at, at + elements};
  }
  static const ExpertsLayer& ExpertsOf(const Decoder& decoder) {
    return dynamic_cast<const ExpertsLayer&>(*decoder.layers()[decoder.layers().size() - 2]);
  }

  std::vector<absl::Status> ErrorsOf(const ModelSpec& spec) const {
    const auto decoder = Decoder::Create(spec);
    EXPECT_OK(decoder.status());
    return ModelWeights::Check((*decoder)->PlanWeights(runtime::DType::kBf16), *checkpoint_);
  }

  TemporaryDirectory directory_;
  std::unique_ptr<runtime::Device> device_;
  ModelSpec spec_;
  std::unique_ptr<Checkpoint> checkpoint_;
};
INSTANTIATE_TEST_SUITE_P(Architectures, ExpertsWeightsTest,
                         ::testing::Values("mixtral", "qwen3_moe", "granitemoe"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(ExpertsWeightsTest, EveryExpertLiesWhereItsKernelsReadIt) {
  using kernels::WeightLayout;
  for (const auto layout :
       {WeightLayout::kRowMajor, WeightLayout::kPacked, WeightLayout::kPackedPairs}) {
    SCOPED_TRACE(NameOf(layout));
    ASSERT_OK_AND_ASSIGN(const auto decoder, Decoder::Create(spec_));
    const WeightPlan plan = decoder->PlanWeights(runtime::DType::kBf16, std::nullopt, layout);
    ASSERT_OK_AND_ASSIGN(const ModelWeights weights,
                         ModelWeights::Load(*device_, plan, *checkpoint_));
    const ExpertsLayer& layer = ExpertsOf(*decoder);
    EXPECT_EQ(layer.router().out_features, spec_.num_experts);
    EXPECT_EQ(layer.gate_up().num_experts, spec_.num_experts);
    EXPECT_EQ(layer.gate_up().first.layout, layout);
    EXPECT_EQ(layer.down().first.layout,
              kernels::IsPacked(layout) ? WeightLayout::kPacked : WeightLayout::kRowMajor);
    const auto hidden = static_cast<size_t>(spec_.hidden_size);
    const auto inner = static_cast<size_t>(spec_.expert_intermediate_size);
    for (size_t expert = 0; expert < static_cast<size_t>(spec_.num_experts); ++expert) {
      std::vector<uint16_t> gate_up = Published(expert, true), down = Published(expert, false);
      if (layout == WeightLayout::kPacked)
        gate_up = testing::Packed<uint16_t>(gate_up, 2 * inner, hidden, 0);
      if (layout == WeightLayout::kPackedPairs)
        gate_up = testing::PackedPairs<uint16_t>(gate_up, 2 * inner, hidden, 0);
      if (kernels::IsPacked(layout)) down = testing::Packed<uint16_t>(down, hidden, inner, 0);
      EXPECT_EQ(MatrixOf(layer.gate_up(), expert, gate_up.size()), gate_up) << expert;
      EXPECT_EQ(MatrixOf(layer.down(), expert, down.size()), down) << expert;
    }
  }
}

TEST_P(ExpertsWeightsTest, LayersWithoutExpertsHaveAnMlp) {
  ASSERT_OK_AND_ASSIGN(const auto decoder, Decoder::Create(spec_));
  // Embedding, two blocks of norm, attention, norm and the layer in question, head.
  ASSERT_EQ(decoder->layers().size(), 10u);
  const bool has_mlp = dynamic_cast<const MlpLayer*>(decoder->layers()[4].get()) != nullptr;
  EXPECT_EQ(has_mlp, std::string(GetParam()) == "qwen3_moe");
  EXPECT_NE(dynamic_cast<const ExpertsLayer*>(decoder->layers()[8].get()), nullptr);
}

TEST_P(ExpertsWeightsTest, ExpertsThatTheConfigHasMoreOfAreNamed) {
  ModelSpec more = spec_;
  ++more.num_experts;
  const std::vector<absl::Status> errors = ErrorsOf(more);
  std::string all;
  for (const absl::Status& error : errors) absl::StrAppend(&all, error.message(), "\n");
  const std::string router = Name(stacked() ? "router.layer" : "gate");
  EXPECT_THAT(all,
              HasSubstr(absl::StrCat("tensor '", router, "': got shape [6, 32], allowed [7, 32]")));
  if (stacked()) {
    EXPECT_THAT(all, HasSubstr(absl::StrCat("tensor '", Name("input_linear"),
                                            "': got shape [6, 96, 32], allowed [7, 96, 32]")));
    EXPECT_EQ(errors.size(), 6u);  // a tensor is named once, whatever it holds
  } else {
    EXPECT_THAT(all, HasSubstr(absl::StrCat(
                         "tensor '", Name(mixtral() ? "experts.6.w1" : "experts.6.gate_proj"),
                         "': missing")));
  }
}

TEST_P(ExpertsWeightsTest, ExpertsThatTheConfigHasFewerOfAreNamed) {
  ModelSpec fewer = spec_;
  --fewer.num_experts;
  const std::vector<absl::Status> errors = ErrorsOf(fewer);
  ASSERT_FALSE(errors.empty());
  std::string all;
  for (const absl::Status& error : errors) absl::StrAppend(&all, error.message(), "\n");
  if (stacked()) {
    EXPECT_THAT(all, HasSubstr("got shape [6, 96, 32], allowed [5, 96, 32]"));
  } else {
    EXPECT_THAT(all, HasSubstr(absl::StrCat(
                         "tensor '", Name(mixtral() ? "experts.5.w2" : "experts.5.down_proj"),
                         "': got it, allowed only tensors that the config")));
  }
  ASSERT_OK_AND_ASSIGN(const auto decoder, Decoder::Create(fewer));
  EXPECT_FALSE(
      ModelWeights::Load(*device_, decoder->PlanWeights(runtime::DType::kBf16), *checkpoint_).ok());
}

TEST_P(ExpertsWeightsTest, ExpertsOfAnotherSizeAreNamed) {
  ModelSpec wider = spec_;
  wider.expert_intermediate_size += 8;
  const std::vector<absl::Status> errors = ErrorsOf(wider);
  ASSERT_FALSE(errors.empty());
  ExpectError(errors.front(), absl::StatusCode::kInvalidArgument, {"got shape", "allowed ["});
}

// Of 8 and 4 bits.
TEST(QuantisedExperts, LieAsTheSameLayersWouldAlone) {
  using kernels::WeightLayout;
  ASSERT_OK_AND_ASSIGN(const auto device,
                       runtime::Device::Create({.kind = runtime::DeviceKind::kHost}));
  for (const bool int4 : {false, true}) {
    TemporaryDirectory directory;
    ASSERT_OK(WriteTinyModel({.architecture = "mixtral",
                              .intermediate_size = 160,
                              .dtype = runtime::DType::kBf16,
                              .fp8_weights = !int4,
                              .int4_weights = int4},
                             directory.path())
                  .status());
    ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ReadHfConfig(directory.path()));
    ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(directory.path()));
    for (const auto layout :
         {WeightLayout::kRowMajor, WeightLayout::kPacked, WeightLayout::kPackedPairs}) {
      SCOPED_TRACE(absl::StrCat(int4 ? "4 bits, " : "8 bits, ", std::string(NameOf(layout))));
      ASSERT_OK_AND_ASSIGN(const auto decoder, Decoder::Create(spec));
      WeightPlan plan = decoder->PlanWeights(runtime::DType::kBf16, std::nullopt, layout);
      std::vector<kernels::LinearWeights> gate_up(6), down(6);
      for (size_t e = 0; e < 6; ++e) {
        const std::string name = absl::StrCat("model.layers.1.block_sparse_moe.experts.", e, ".w");
        plan.PairedLinear(&gate_up[e], {{name + "1", 160}, {name + "3", 160}}, 32, false);
        plan.Linear(&down[e], {{name + "2", 32}}, 160, false);
      }
      ASSERT_OK_AND_ASSIGN(const ModelWeights weights,
                           ModelWeights::Load(*device, plan, *checkpoint));
      const auto& layer =
          dynamic_cast<const ExpertsLayer&>(*decoder->layers()[decoder->layers().size() - 2]);
      const auto compare = [&](const kernels::ExpertWeights& experts,
                               const std::vector<kernels::LinearWeights>& alone) {
        ASSERT_EQ(experts.num_experts, 6);
        const kernels::LinearWeights& first = experts.first;
        EXPECT_EQ(first.format, alone[0].format);
        EXPECT_EQ(first.layout, alone[0].layout);
        EXPECT_EQ(first.group_size, alone[0].group_size);
        const kernels::PackedLayout matrix{first.out_features, first.in_features, first.group_size};
        const bool packed = kernels::IsPacked(layout);
        const int64_t elements = packed ? matrix.Elements()
                                 : int4 ? matrix.out_features * matrix.Int4RowElements()
                                        : matrix.out_features * matrix.in_features;
        const auto bytes = static_cast<size_t>(elements) / (int4 ? 2 : 1);
        const auto scales = static_cast<size_t>(
            packed ? matrix.PackedScales() : matrix.out_features * matrix.ScaleGroups());
        for (size_t e = 0; e < 6; ++e) {
          const auto* const data =
              static_cast<const std::byte*>(first.data) +
              static_cast<int64_t>(e) * experts.expert_elements / (int4 ? 2 : 1);
          EXPECT_EQ(std::memcmp(data, alone[e].data, bytes), 0) << e;
          EXPECT_EQ(std::memcmp(first.scales + static_cast<int64_t>(e) * experts.expert_scales,
                                alone[e].scales, scales * sizeof(float)),
                    0)
              << e;
        }
      };
      compare(layer.gate_up(), gate_up);
      compare(layer.down(), down);
      EXPECT_EQ(layer.router().format, kernels::WeightFormat::kBf16);
    }
  }
}

// Of gpt-oss: all experts in one tensor, inputs first, or in MXFP4; gate and up in turns.
class LimitedExpertsTest : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr size_t kHidden = 32, kInner = 64, kExperts = 6;
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(device_, runtime::Device::Create({.kind = runtime::DeviceKind::kHost}));
    Write(directory_.path());
    ASSERT_OK_AND_ASSIGN(spec_, ReadHfConfig(directory_.path()));
    ASSERT_OK_AND_ASSIGN(checkpoint_, Checkpoint::Open(directory_.path()));
  }
  static void Write(const std::string& path) {
    ASSERT_OK(WriteTinyModel({.architecture = "gpt_oss",
                              .intermediate_size = kInner,
                              .dtype = runtime::DType::kBf16,
                              .mxfp4_experts = GetParam()},
                             path)
                  .status());
  }
  template <typename T>
  std::vector<T> Tensor(const std::string& name) const {
    const TensorView* const view = checkpoint_->Find("model.layers.1.mlp." + name);
    EXPECT_NE(view, nullptr) << name;
    std::vector<T> values(view->data.size() / sizeof(T));
    std::memcpy(values.data(), view->data.data(), view->data.size());
    return values;
  }
  // Output by output, as the checkpoint has them: as bf16, of MXFP4 its elements.
  std::vector<uint16_t> Published(const std::string& name, size_t expert, size_t outputs,
                                  size_t inputs) const {
    std::vector<uint16_t> matrix;
    if (!GetParam()) {
      const std::vector<uint16_t> all = Tensor<uint16_t>(name);
      for (size_t o = 0; o < outputs; ++o)
        for (size_t i = 0; i < inputs; ++i)
          matrix.push_back(all[(expert * inputs + i) * outputs + o]);
      return matrix;
    }
    const std::vector<uint8_t> blocks = Tensor<uint8_t>(name + "_blocks");
    for (size_t at = expert * outputs * inputs; at < (expert + 1) * outputs * inputs; ++at)
      matrix.push_back(blocks[at / 2] >> (at % 2 * 4) & 15);
    return matrix;
  }
  // Of MXFP4, [outputs, inputs / 32].
  std::vector<float> PublishedScales(const std::string& name, size_t expert, size_t outputs,
                                     size_t inputs) const {
    const std::vector<uint8_t> exponents = Tensor<uint8_t>(name + "_scales");
    const size_t count = outputs * inputs / 32;
    std::vector<float> scales;
    for (size_t at = expert * count; at < (expert + 1) * count; ++at)
      scales.push_back(std::ldexp(1.0f, exponents[at] - 127));
    return scales;
  }
  // Even rows, and then odd ones.
  template <typename T>
  static std::vector<T> Halves(const std::vector<T>& rows, size_t width) {
    std::vector<T> out;
    for (const size_t first : {size_t{0}, size_t{1}})
      for (size_t row = first; row < rows.size() / width; row += 2)
        out.insert(out.end(), rows.begin() + static_cast<ptrdiff_t>(row * width),
                   rows.begin() + static_cast<ptrdiff_t>((row + 1) * width));
    return out;
  }
  // Whether expert `expert` has the matrix [outputs, inputs], of bf16 or of MXFP4's elements.
  static void ExpectLiesAsBf16(const kernels::ExpertWeights& of, size_t expert,
                               std::vector<uint16_t> matrix, bool packed) {
    const auto n = static_cast<size_t>(of.first.out_features);
    const auto k = static_cast<size_t>(of.first.in_features);
    if (packed) matrix = testing::Packed<uint16_t>(matrix, n, k, 0);
    const auto* const at = static_cast<const uint16_t*>(of.first.data) +
                           static_cast<ptrdiff_t>(expert) * of.expert_elements;
    EXPECT_EQ(std::vector<uint16_t>(at, at + matrix.size()), matrix) << expert;
  }
  static void ExpectLiesAsMxfp4(const kernels::ExpertWeights& of, size_t expert,
                                const std::vector<uint16_t>& matrix, bool packed) {
    EXPECT_EQ(of.first.format, kernels::WeightFormat::kMxfp4);
    const auto n = static_cast<size_t>(of.first.out_features);
    const auto k = static_cast<size_t>(of.first.in_features);
    const std::vector<uint8_t> bytes = testing::Int4Bytes(
        std::vector<uint8_t>(matrix.begin(), matrix.end()), n, k, packed, /*filler=*/0);
    const auto* const at = static_cast<const uint8_t*>(of.first.data) +
                           static_cast<ptrdiff_t>(expert) * of.expert_elements / 2;
    EXPECT_EQ(std::vector<uint8_t>(at, at + bytes.size()), bytes) << expert;
  }
  // scales: [outputs, inputs / 32].
  static void ExpectScales(const kernels::ExpertWeights& of, size_t expert,
                           const std::vector<float>& scales, bool packed) {
    ASSERT_EQ(of.first.group_size, 32);
    const kernels::PackedLayout layout{of.first.out_features, of.first.in_features, 32};
    const float* const at = of.first.scales + static_cast<int64_t>(expert) * of.expert_scales;
    const int64_t blocks = of.first.in_features / 32;
    for (int64_t output = 0; output < of.first.out_features; ++output)
      for (int64_t block = 0; block < layout.ScaleGroups(); ++block)
        EXPECT_EQ(at[packed ? layout.PackedScaleOffset(output, block)
                            : output * layout.ScaleGroups() + block],
                  block < blocks ? scales[static_cast<size_t>(output * blocks + block)] : 0.0f)
            << expert << ", output " << output << ", block " << block;
  }
  std::string ErrorsOf(const ModelSpec& spec, const Checkpoint& checkpoint) const {
    const auto decoder = Decoder::Create(spec);
    EXPECT_OK(decoder.status());
    std::string all;
    for (const absl::Status& error :
         ModelWeights::Check((*decoder)->PlanWeights(runtime::DType::kBf16), checkpoint))
      absl::StrAppend(&all, error.message(), "\n");
    return all;
  }

  TemporaryDirectory directory_;
  std::unique_ptr<runtime::Device> device_;
  ModelSpec spec_;
  std::unique_ptr<Checkpoint> checkpoint_;
};
INSTANTIATE_TEST_SUITE_P(Forms, LimitedExpertsTest, ::testing::Bool(), [](const auto& info) {
  return info.param ? std::string("mxfp4") : std::string("bf16");
});

TEST_P(LimitedExpertsTest, EveryExpertLiesWhereItsKernelsReadIt) {
  using kernels::WeightLayout;
  for (const auto layout :
       {WeightLayout::kRowMajor, WeightLayout::kPacked, WeightLayout::kPackedPairs}) {
    SCOPED_TRACE(NameOf(layout));
    ASSERT_OK_AND_ASSIGN(const auto decoder, Decoder::Create(spec_));
    const WeightPlan plan = decoder->PlanWeights(runtime::DType::kBf16, std::nullopt, layout);
    ASSERT_OK_AND_ASSIGN(const ModelWeights weights,
                         ModelWeights::Load(*device_, plan, *checkpoint_));
    const auto& layer =
        dynamic_cast<const ExpertsLayer&>(*decoder->layers()[decoder->layers().size() - 2]);
    // No kernel takes this product at once.
    const bool packed = kernels::IsPacked(layout);
    EXPECT_EQ(layer.gate_up().first.layout,
              packed ? WeightLayout::kPacked : WeightLayout::kRowMajor);
    const auto* const bias = static_cast<const uint16_t*>(layer.gate_up().first.bias);
    const auto* const down_bias = static_cast<const uint16_t*>(layer.down().first.bias);
    const std::vector<uint16_t> biases = Tensor<uint16_t>("experts.gate_up_proj_bias");
    const std::vector<uint16_t> down_biases = Tensor<uint16_t>("experts.down_proj_bias");
    ASSERT_NE(layer.router().bias, nullptr);
    EXPECT_EQ(std::memcmp(layer.router().bias, Tensor<uint16_t>("router.bias").data(),
                          kExperts * sizeof(uint16_t)),
              0);
    for (size_t expert = 0; expert < kExperts; ++expert) {
      std::vector<uint16_t> gate_up =
          Halves(Published("experts.gate_up_proj", expert, 2 * kInner, kHidden), kHidden);
      std::vector<uint16_t> down = Published("experts.down_proj", expert, kHidden, kInner);
      if (GetParam()) {
        ExpectLiesAsMxfp4(layer.gate_up(), expert, gate_up, packed);
        ExpectScales(layer.gate_up(), expert,
                     Halves(PublishedScales("experts.gate_up_proj", expert, 2 * kInner, kHidden),
                            kHidden / 32),
                     packed);
        ExpectLiesAsMxfp4(layer.down(), expert, down, packed);
        ExpectScales(layer.down(), expert,
                     PublishedScales("experts.down_proj", expert, kHidden, kInner), packed);
      } else {
        ExpectLiesAsBf16(layer.gate_up(), expert, gate_up, packed);
        ExpectLiesAsBf16(layer.down(), expert, down, packed);
      }
      const auto slice = [&](const uint16_t* from, size_t size) {
        return std::vector<uint16_t>(from + expert * size, from + (expert + 1) * size);
      };
      EXPECT_EQ(slice(bias, 2 * kInner), Halves(slice(biases.data(), 2 * kInner), 1));
      EXPECT_EQ(slice(down_bias, kHidden), slice(down_biases.data(), kHidden));
    }
  }
}

TEST_P(LimitedExpertsTest, WhatDoesNotFitTheConfigIsNamed) {
  EXPECT_EQ(ErrorsOf(spec_, *checkpoint_), "");
  ModelSpec spec = spec_;
  spec.mxfp4_experts = !GetParam();
  EXPECT_THAT(ErrorsOf(spec, *checkpoint_),
              HasSubstr(GetParam() ? "tensor 'model.layers.0.mlp.experts.gate_up_proj': missing, "
                                     "wanted with shape [6, 32, 128]"
                                   : "tensor 'model.layers.0.mlp.experts.gate_up_proj_scales': "
                                     "missing, wanted with shape [6, 128, 1]"));
  spec = spec_;
  spec.num_heads *= 2;
  EXPECT_THAT(ErrorsOf(spec, *checkpoint_),
              HasSubstr("tensor 'model.layers.0.self_attn.sinks': got shape [4], allowed [8]"));
  spec = spec_;
  spec.expert_intermediate_size = 96;
  EXPECT_THAT(ErrorsOf(spec, *checkpoint_),
              HasSubstr(GetParam() ? "[6, 192, 1, 16]" : "[6, 32, 192]"));
}

// A byte of a file, behind its header.
void Change(const std::string& path, const std::string& tensor, size_t byte, char to) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), sizeof(length));
  std::string header(length, ' ');
  file.read(header.data(), static_cast<std::streamsize>(length));
  const auto offsets = Json::parse(header)[tensor]["data_offsets"];
  file.seekp(
      static_cast<std::streamoff>(sizeof(length) + length + offsets[0].get<size_t>() + byte));
  file.put(to);
}

TEST_P(LimitedExpertsTest, AScaleOrASinkThatIsNoNumberIsRefused) {
  const std::string file = directory_.path() + "/model.safetensors";
  if (GetParam()) {
    Change(file, "model.layers.1.mlp.experts.down_proj_scales", 5, '\xff');
    ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(directory_.path()));
    EXPECT_THAT(ErrorsOf(spec_, *checkpoint),
                HasSubstr("tensor 'model.layers.1.mlp.experts.down_proj_scales': got NaN as scale "
                          "5, allowed powers of two"));
  }
  Change(file, "model.layers.0.self_attn.sinks", 1, '\x7f');
  Change(file, "model.layers.0.self_attn.sinks", 0, '\x80');
  ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(directory_.path()));
  EXPECT_THAT(ErrorsOf(spec_, *checkpoint),
              HasSubstr("tensor 'model.layers.0.self_attn.sinks': got inf, allowed finite"));
}

TEST(ExpertsSpec, NumbersThatContradictEachOtherAreRefused) {
  TemporaryDirectory directory;
  ASSERT_OK(WriteTinyModel({.architecture = "mixtral"}, directory.path()).status());
  ASSERT_OK_AND_ASSIGN(const ModelSpec good, ReadHfConfig(directory.path()));
  ModelSpec spec = good;
  spec.experts_per_token = 7;
  testing::ExpectInvalid(ValidateModelSpec(spec), {"experts_per_token: got 7", "1 to 6"});
  spec = good;
  spec.num_experts = 0;
  testing::ExpectInvalid(ValidateModelSpec(spec), {"num_experts: got 0", "1 to 1024"});
  spec = good;
  spec.expert_intermediate_size = 0;
  testing::ExpectInvalid(ValidateModelSpec(spec), {"expert_intermediate_size: got 0"});
  spec = good;
  spec.sparse = {true};
  testing::ExpectInvalid(ValidateModelSpec(spec), {"sparse: got 1 layers", "each of 2"});
  spec = good;
  spec.architecture = "llama";
  testing::ExpectInvalid(ValidateModelSpec(spec), {"num_experts: got 6", "'llama' has none"});
}

}  // namespace
}  // namespace reprise::models
