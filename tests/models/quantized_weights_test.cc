// SPDX-License-Identifier: Apache-2.0
// Weights of E4M3 from a checkpoint: elements and scales where the plan says, in every layout, of
// every granularity; and the checkpoints that are refused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "models/weights/checkpoint.h"
#include "models/weights/model_weights.h"
#include "models/weights/weight_plan.h"
#include "runtime/device.h"
#include "tests/models/model_files.h"
#include "tests/testing/packed_weight.h"
#include "tests/testing/tiny_model.h"

namespace reprise::models {
namespace {

using ::reprise::testing::BytesOf;
using ::reprise::testing::ExpectError;
using ::reprise::testing::ExpectInvalid;
using ::reprise::testing::FileTensor;
using ::reprise::testing::SafetensorsBytes;
using ::reprise::testing::TemporaryDirectory;
using ::reprise::testing::WriteBytes;

// Two parts of one layer, whose borders cut blocks of scales and tiles.
constexpr int64_t kRows[2] = {136, 24};
constexpr int64_t kColumns = 144;
constexpr size_t kGroups = 2;  // of a row's scales
constexpr size_t kAll = 160;   // rows

// Codes that are no NaN.
std::vector<uint8_t> Codes(int64_t count, uint8_t first) {
  std::vector<uint8_t> codes;
  for (int64_t i = 0; i < count; ++i)
    codes.push_back(static_cast<uint8_t>((first + i * 37) % 127 + (i % 2) * 128));
  return codes;
}

std::vector<int64_t> ScaleShape(ScaleGranularity granularity, int64_t rows) {
  if (granularity == ScaleGranularity::kTensor) return {1};
  if (granularity == ScaleGranularity::kChannel) return {rows, 1};
  return {(rows + 127) / 128, 2};
}

class QuantizedWeightsTest : public ::testing::Test {
 protected:
  QuantizedWeightsTest()
      : device_(*runtime::Device::Create({.kind = runtime::DeviceKind::kHost})) {}

  static WeightPlan Plan(const WeightQuantization& quantization, kernels::WeightLayout layout) {
    return WeightPlan(runtime::DType::kBf16, runtime::DType::kBf16, layout, quantization, "tested");
  }
  // "a" and "b", with scales 1, 2, 3 .. over both.
  static std::vector<FileTensor> Tensors(const WeightQuantization& quantization) {
    std::vector<FileTensor> tensors;
    float next = 1.0f;
    for (int part = 0; part < 2; ++part) {
      const std::string name = part == 0 ? "a" : "b";
      tensors.push_back({name + ".weight",
                         "F8_E4M3",
                         {kRows[part], kColumns},
                         BytesOf(Codes(kRows[part] * kColumns, part == 0 ? 3 : 90))});
      const std::vector<int64_t> shape = ScaleShape(quantization.granularity, kRows[part]);
      std::vector<float> scales;
      for (int64_t i = 0; i < (shape.size() == 1 ? 1 : shape[0] * shape[1]); ++i)
        scales.push_back(next++);
      tensors.push_back(
          {absl::StrCat(name, ".", quantization.scale_name), "F32", shape, BytesOf(scales)});
    }
    return tensors;
  }
  absl::Status LoadStatus(const WeightPlan& plan, const std::vector<FileTensor>& tensors) {
    const auto weights = Load(plan, tensors);
    return weights.status();
  }
  absl::StatusOr<ModelWeights> Load(const WeightPlan& plan,
                                    const std::vector<FileTensor>& tensors) {
    const std::string path = absl::StrCat(directory_.path(), "/", num_checkpoints_++);
    std::filesystem::create_directory(path);
    WriteBytes(path + "/model.safetensors", SafetensorsBytes(tensors));
    checkpoint_ = *Checkpoint::Open(path);
    return ModelWeights::Load(*device_, plan, *checkpoint_);
  }
  template <typename T>
  std::vector<T> Read(const void* data, size_t count) {
    std::vector<T> values(count);
    auto stream = *device_->CreateStream();
    EXPECT_TRUE(stream->CopyToHost(values.data(), data, count * sizeof(T)).ok());
    EXPECT_TRUE(stream->Synchronize().ok());
    return values;
  }

 private:
  std::unique_ptr<runtime::Device> device_;
  TemporaryDirectory directory_;
  std::unique_ptr<Checkpoint> checkpoint_;
  int num_checkpoints_ = 0;
};

TEST_F(QuantizedWeightsTest, LieWhereThePlanSays) {
  std::vector<uint8_t> codes = Codes(kRows[0] * kColumns, 3);
  const std::vector<uint8_t> more = Codes(kRows[1] * kColumns, 90);
  codes.insert(codes.end(), more.begin(), more.end());
  for (const auto granularity :
       {ScaleGranularity::kTensor, ScaleGranularity::kChannel, ScaleGranularity::kBlock}) {
    // By hand: tensor 1 | 2; outputs 1 .. 136 | 137 .. 160; blocks 1 2, 3 4 | 5 6.
    std::vector<float> scales;
    for (size_t row = 0; row < kAll; ++row) {
      const bool second = row >= 136;
      for (size_t group = 0; group < kGroups; ++group) {
        const auto g = static_cast<float>(group);
        scales.push_back(granularity == ScaleGranularity::kTensor    ? (second ? 2.0f : 1.0f)
                         : granularity == ScaleGranularity::kChannel ? static_cast<float>(row) + 1
                         : second                                    ? 5.0f + g
                         : row < 128                                 ? 1.0f + g
                                                                     : 3.0f + g);
      }
    }
    const WeightQuantization quantization{.granularity = granularity};
    for (const auto layout : {kernels::WeightLayout::kRowMajor, kernels::WeightLayout::kPacked}) {
      SCOPED_TRACE(
          absl::StrCat(static_cast<int>(granularity), ", ", std::string(kernels::NameOf(layout))));
      WeightPlan plan = Plan(quantization, layout);
      kernels::LinearWeights layer;
      plan.Linear(&layer, {{"a", kRows[0]}, {"b", kRows[1]}}, kColumns, false);
      const auto weights = Load(plan, Tensors(quantization));
      ASSERT_TRUE(weights.ok()) << weights.status();
      EXPECT_EQ(weights->bytes(), plan.bytes());
      EXPECT_EQ(layer.format, kernels::WeightFormat::kE4m3);
      EXPECT_EQ(layer.group_size, kernels::kScaleInputs);
      const bool packed = layout == kernels::WeightLayout::kPacked;
      const auto wanted = packed ? testing::PackedFp8(codes, kAll, kColumns, 0) : codes;
      EXPECT_EQ(Read<uint8_t>(layer.data, wanted.size()), wanted);
      const auto wanted_scales =
          packed ? testing::PackedFp8Scales<float>(scales, kAll, kGroups, 0) : scales;
      EXPECT_EQ(Read<float>(layer.scales, wanted_scales.size()), wanted_scales);
    }
  }
}

// Two neighbours as one element of 16 bits; scales as ever.
TEST_F(QuantizedWeightsTest, OfRoundedActivationsLieInTilesOf128Inputs) {
  std::vector<uint8_t> codes = Codes(kRows[0] * kColumns, 3);
  const std::vector<uint8_t> more = Codes(kRows[1] * kColumns, 90);
  codes.insert(codes.end(), more.begin(), more.end());
  const WeightQuantization quantization{.granularity = ScaleGranularity::kChannel,
                                        .means_rounding = true,
                                        .rounds_activations = true};
  for (const auto layout : {kernels::WeightLayout::kRowMajor, kernels::WeightLayout::kPacked}) {
    SCOPED_TRACE(kernels::NameOf(layout));
    WeightPlan plan = Plan(quantization, layout);
    kernels::LinearWeights layer, behind;
    plan.Linear(&layer, {{"a", kRows[0]}, {"b", kRows[1]}}, kColumns, false);
    plan.PlainLinear(&behind, {{"c", 16}}, 64);
    std::vector<FileTensor> tensors = Tensors(quantization);
    tensors.push_back({"c.weight", "BF16", {16, 64}, BytesOf(std::vector<uint16_t>(1024, 0x3f80))});
    const auto weights = Load(plan, tensors);
    ASSERT_TRUE(weights.ok()) << weights.status();
    EXPECT_EQ(layer.format, kernels::WeightFormat::kE4m3Rounded);
    EXPECT_EQ(layer.group_size, kernels::kScaleInputs);
    const bool packed = layout == kernels::WeightLayout::kPacked;
    const auto wanted = packed ? testing::PackedRounded(codes, kAll, kColumns, 0) : codes;
    EXPECT_EQ(Read<uint8_t>(layer.data, wanted.size()), wanted);
    std::vector<float> scales;
    for (size_t row = 0; row < kAll; ++row)
      scales.insert(scales.end(), kGroups, static_cast<float>(row) + 1);
    const auto wanted_scales =
        packed ? testing::PackedFp8Scales<float>(scales, kAll, kGroups, 0) : scales;
    EXPECT_EQ(Read<float>(layer.scales, wanted_scales.size()), wanted_scales);
    EXPECT_EQ(Read<uint16_t>(behind.data, 1024), std::vector<uint16_t>(1024, 0x3f80));
  }
}

// Pairs lie in 16 bytes of a token, which are 16 inputs; experts are not of this format.
TEST_F(QuantizedWeightsTest, OfRoundedActivationsHavePairsOfWholeSixteensAndPlainExperts) {
  WeightPlan plan = Plan({.means_rounding = true, .rounds_activations = true},
                         kernels::WeightLayout::kPackedPairs);
  kernels::LinearWeights sixteens, eights;
  plan.PairedLinear(&sixteens, {{"a", 16}, {"b", 16}}, 48, false);
  plan.PairedLinear(&eights, {{"c", 16}, {"d", 16}}, 40, false);
  EXPECT_EQ(sixteens.layout, kernels::WeightLayout::kPackedPairs);
  EXPECT_EQ(eights.layout, kernels::WeightLayout::kPacked);
  kernels::ExpertWeights experts;
  plan.Experts(&experts, {{{"e", 16}, {"f", 16}}}, 40, true);
  EXPECT_EQ(experts.first.format, kernels::WeightFormat::kE4m3);
  EXPECT_EQ(experts.first.layout, kernels::WeightLayout::kPackedPairs);
}

TEST_F(QuantizedWeightsTest, OfPairsLieInTurns) {
  const WeightQuantization quantization{.granularity = ScaleGranularity::kChannel};
  WeightPlan plan = Plan(quantization, kernels::WeightLayout::kPackedPairs);
  kernels::LinearWeights layer;
  plan.PairedLinear(&layer, {{"a", 24}, {"b", 24}}, kColumns, false);
  std::vector<FileTensor> tensors;
  std::vector<uint8_t> codes;
  std::vector<float> scales;
  for (const char* name : {"a", "b"}) {
    const std::vector<uint8_t> of_part = Codes(24 * kColumns, *name == 'a' ? 1 : 60);
    std::vector<float> of_rows;
    for (int row = 0; row < 24; ++row) of_rows.push_back(static_cast<float>(scales.size()) + row);
    tensors.push_back({absl::StrCat(name, ".weight"), "F8_E4M3", {24, kColumns}, BytesOf(of_part)});
    tensors.push_back({absl::StrCat(name, ".weight_scale"), "F32", {24, 1}, BytesOf(of_rows)});
    codes.insert(codes.end(), of_part.begin(), of_part.end());
    for (const float scale : of_rows) scales.insert(scales.end(), kGroups, scale);
  }
  const auto weights = Load(plan, tensors);
  ASSERT_TRUE(weights.ok()) << weights.status();
  ASSERT_EQ(layer.layout, kernels::WeightLayout::kPackedPairs);
  const auto wanted =
      testing::PackedFp8(testing::RowsInTurns(codes, 48, kColumns), 48, kColumns, 0);
  EXPECT_EQ(Read<uint8_t>(layer.data, wanted.size()), wanted);
  const auto wanted_scales =
      testing::PackedFp8Scales<float>(testing::RowsInTurns(scales, 48, kGroups), 48, kGroups, 0);
  EXPECT_EQ(Read<float>(layer.scales, wanted_scales.size()), wanted_scales);
}

// Which row-major elements may be.
TEST_F(QuantizedWeightsTest, PackedElementsAreNumbers) {
  const WeightQuantization quantization{.granularity = ScaleGranularity::kChannel};
  for (const auto layout : {kernels::WeightLayout::kRowMajor, kernels::WeightLayout::kPacked}) {
    WeightPlan plan = Plan(quantization, layout);
    kernels::LinearWeights layer;
    const HeadOrder heads{.head_dim = 8, .turned = 4};  // puts output 5 of a head in place 3
    plan.Linear(&layer, {{"a", kRows[0]}, {"b", kRows[1], heads}}, kColumns, false);
    std::vector<FileTensor> tensors = Tensors(quantization);
    tensors[2].data[5 * kColumns + 17] = '\xff';
    if (layout == kernels::WeightLayout::kRowMajor) {
      EXPECT_TRUE(LoadStatus(plan, tensors).ok());
    } else {
      ExpectInvalid(LoadStatus(plan, tensors), {"b.weight[5, 17] is NaN", "allowed: numbers"});
    }
  }
}

// Of 16 bits: norms, biases, heads. And what a step reads.
TEST_F(QuantizedWeightsTest, TheRestHasTheComputeType) {
  WeightPlan plan = Plan({.granularity = ScaleGranularity::kChannel, .input_scales = true},
                         kernels::WeightLayout::kRowMajor);
  kernels::LinearWeights layer, head;
  const void* norm = nullptr;
  plan.Linear(&layer, {{"a", 8}}, 256, true);
  plan.Norm(&norm, "norm.weight", 256);
  plan.PlainLinear(&head, {{"head", 16}}, 256);
  EXPECT_EQ(head.format, kernels::WeightFormat::kBf16);
  EXPECT_EQ(head.scales, nullptr);
  EXPECT_EQ(plan.elements_read(), 8 + 256 + 16 * 256);
  EXPECT_EQ(plan.quantized_bytes_read(), 8 * 256 + 8 * 2 * 4);
  EXPECT_EQ(plan.num_parameters(), 8 * 256 + 8 + 256 + 16 * 256);
  EXPECT_EQ(plan.unread(), std::vector<std::string>{"a.input_scale"});
}

// One in the middle, in every layout: its elements, its bytes, and those of what is behind it.
TEST_F(QuantizedWeightsTest, LayersLeftOutHaveTheComputeTypeAndTheirNeighboursTheirs) {
  const WeightQuantization quantization{.granularity = ScaleGranularity::kChannel,
                                        .input_scales = true,
                                        .means_rounding = true,
                                        .rounds_activations = true,
                                        .input_scale_name = "input_scale_ub"};
  for (const auto layout :
       {kernels::WeightLayout::kRowMajor, kernels::WeightLayout::kPackedPairs}) {
    SCOPED_TRACE(kernels::NameOf(layout));
    WeightPlan plan = Plan(quantization, layout);
    kernels::LinearWeights first, middle, paired, last;
    plan.Linear(&first, {{"a", kRows[0]}}, kColumns, false);
    plan.Linear(&middle, {{"c", 16}}, 64, false, /*quantized=*/false);
    plan.PairedLinear(&paired, {{"d", 16}, {"e", 16}}, 40, false, /*quantized=*/false);
    plan.Linear(&last, {{"b", kRows[1]}}, kColumns, false);
    EXPECT_EQ(plan.unread(), (std::vector<std::string>{"a.input_scale_ub", "b.input_scale_ub"}));
    EXPECT_EQ(plan.elements_read(), 16 * 64 + 32 * 40);
    EXPECT_EQ(plan.quantized_bytes_read(), 160 * kColumns + 160 * 2 * 4);
    std::vector<FileTensor> tensors = Tensors(quantization);
    const auto ones = [](int64_t rows, int64_t columns, const char* name) {
      const std::vector<uint16_t> values(static_cast<size_t>(rows * columns), 0x3f80);
      return FileTensor{name, "BF16", {rows, columns}, BytesOf(values)};
    };
    tensors.push_back(ones(16, 64, "c.weight"));
    tensors.push_back(ones(16, 40, "d.weight"));
    tensors.push_back(ones(16, 40, "e.weight"));
    tensors.push_back({"b.input_scale_ub", "F32", {1}, BytesOf(std::vector<float>{1200.0f})});
    const auto weights = Load(plan, tensors);
    ASSERT_TRUE(weights.ok()) << weights.status();
    EXPECT_EQ(weights->bytes(), plan.bytes());
    EXPECT_EQ(first.format, kernels::WeightFormat::kE4m3Rounded);
    EXPECT_EQ(middle.format, kernels::WeightFormat::kBf16);
    EXPECT_EQ(middle.scales, nullptr);
    EXPECT_EQ(middle.group_size, 0);
    EXPECT_EQ(Read<uint16_t>(middle.data, 1024), std::vector<uint16_t>(1024, 0x3f80));
    EXPECT_EQ(paired.format, kernels::WeightFormat::kBf16);
    // Of 16 bits eights are enough.
    EXPECT_EQ(paired.layout, layout);
    const bool packed = layout != kernels::WeightLayout::kRowMajor;
    const size_t whole = packed ? 40 - 40 % 8 : 1280;  // up to what fills the first row up
    EXPECT_EQ(Read<uint16_t>(paired.data, whole), std::vector<uint16_t>(whole, 0x3f80));
    const std::vector<uint8_t> codes = Codes(kRows[1] * kColumns, 90);
    const auto wanted = packed ? testing::PackedRounded(codes, 24, kColumns, 0) : codes;
    EXPECT_EQ(Read<uint8_t>(last.data, wanted.size()), wanted);
    std::vector<float> scales;
    for (size_t row = 0; row < 24; ++row)
      scales.insert(scales.end(), kGroups, static_cast<float>(137 + row));
    const auto wanted_scales =
        packed ? testing::PackedFp8Scales<float>(scales, 24, kGroups, 0) : scales;
    EXPECT_EQ(Read<float>(last.scales, wanted_scales.size()), wanted_scales);
  }
}

// What the config and the file say of a layer must be the same.
TEST_F(QuantizedWeightsTest, LayersLeftOutAreStoredSo) {
  const WeightQuantization quantization{.granularity = ScaleGranularity::kChannel};
  kernels::LinearWeights a, b;
  WeightPlan plan = Plan(quantization, kernels::WeightLayout::kRowMajor);
  plan.Linear(&a, {{"a", kRows[0]}}, kColumns, false);
  plan.Linear(&b, {{"b", kRows[1]}}, kColumns, false, /*quantized=*/false);
  std::vector<FileTensor> tensors = Tensors(quantization);
  ExpectInvalid(LoadStatus(plan, tensors),
                {"'b.weight'", "got dtype fp8_e4m3", "allowed f32, bf16 and f16"});
  tensors[2] = {"b.weight", "BF16", {24, kColumns}, std::string(24 * kColumns * 2, '\0')};
  ExpectInvalid(LoadStatus(plan, tensors), {"'b.weight_scale'", "allowed only tensors"});
  tensors.pop_back();
  EXPECT_TRUE(LoadStatus(plan, tensors).ok());
}

TEST_F(QuantizedWeightsTest, AreRefusedByName) {
  const WeightQuantization quantization{.granularity = ScaleGranularity::kChannel};
  kernels::LinearWeights layer;
  WeightPlan plan = Plan(quantization, kernels::WeightLayout::kRowMajor);
  plan.Linear(&layer, {{"a", kRows[0]}, {"b", kRows[1]}}, kColumns, false);
  const auto with = [&](const std::string& name, const FileTensor& tensor) {
    std::vector<FileTensor> tensors = Tensors(quantization);
    for (FileTensor& old : tensors)
      if (old.name == name) old = tensor;
    return LoadStatus(plan, tensors);
  };
  const auto scales = [&](const std::vector<int64_t>& shape, std::vector<float> values) {
    return with("b.weight_scale", {"b.weight_scale", "F32", shape, BytesOf(values)});
  };
  std::vector<float> good(24, 1.0f);
  EXPECT_TRUE(scales({24, 1}, good).ok());
  EXPECT_TRUE(scales({24}, good).ok());
  good[5] = 0.0f;  // of an output that is nothing but zeros
  EXPECT_TRUE(scales({24, 1}, good).ok());
  ExpectInvalid(scales({1}, {1.0f}),
                {"'b.weight_scale'", "got shape [1]", "allowed [24, 1] and [24]"});
  ExpectInvalid(scales({1, 24}, good), {"got shape [1, 24]"});
  for (const float bad : {NAN, -INFINITY, -1.0f}) {
    good[7] = bad;
    ExpectInvalid(scales({24, 1}, good), {"'b.weight_scale'", "got scale", "of at least 0"});
  }
  ExpectInvalid(with("b.weight_scale", {"b.weight_scale", "F8_E4M3", {24}, std::string(24, 'a')}),
                {"'b.weight_scale'", "got dtype fp8_e4m3"});
  ExpectError(with("b.weight_scale", {"b.weight_scale_inv", "F32", {24}, BytesOf(good)}),
              absl::StatusCode::kInvalidArgument, {"'b.weight_scale_inv'", "allowed only tensors"});
  std::vector<FileTensor> missing = Tensors(quantization);
  missing.pop_back();
  ExpectError(LoadStatus(plan, missing), absl::StatusCode::kNotFound,
              {"'b.weight_scale'", "missing", "[24, 1]"});
  // Elements and config that contradict each other.
  ExpectInvalid(
      with("b.weight", {"b.weight", "BF16", {24, kColumns}, std::string(24 * kColumns * 2, '\0')}),
      {"'b.weight'", "got dtype bf16", "allowed fp8_e4m3"});
  WeightPlan plain(runtime::DType::kBf16, runtime::DType::kBf16, kernels::WeightLayout::kRowMajor,
                   std::nullopt, "tested");
  plain.Linear(&layer, {{"a", kRows[0]}}, kColumns, false);
  ExpectInvalid(LoadStatus(plain, {Tensors(quantization)[0]}),
                {"'a.weight'", "got dtype fp8_e4m3", "allowed f32, bf16 and f16"});
}

}  // namespace
}  // namespace reprise::models
