// SPDX-License-Identifier: Apache-2.0
// Weights of 4 bits from a checkpoint, in each way in which they are published: elements, scales
// and zero points where the plan says, in every layout; and the checkpoints that are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
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

// Two parts of one layer, whose border cuts a tile; inputs of a tile and a half.
constexpr int64_t kRows[2] = {24, 40};
constexpr int64_t kColumns = 96;
constexpr size_t kAll = 64;

uint8_t Element(int64_t row, int64_t column) {
  return static_cast<uint8_t>((row * 7 + column * 5 + column / 16) % 16);
}
uint8_t ZeroPoint(int64_t row, int64_t group) {
  return static_cast<uint8_t>(1 + (row * 3 + group) % 15);
}
float Scale(int64_t row, int64_t group) {  // exact in 16 bits
  return 0.25f + static_cast<float>(row) / 64 + static_cast<float>(group) * 2;
}

// Eight values to a word, each at its place.
std::vector<uint32_t> Words(int64_t count, const std::vector<int>& places,
                            const std::function<uint32_t(int64_t word, int64_t of_word)>& value) {
  std::vector<uint32_t> words(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < 8; ++j)
      words[static_cast<size_t>(i)] |= value(i, j) << (4 * places[static_cast<size_t>(j)]);
  return words;
}
const std::vector<int> kPlaces = {0, 1, 2, 3, 4, 5, 6, 7};
const std::vector<int> kAwqPlaces = {0, 4, 1, 5, 2, 6, 3, 7};

WeightQuantization Of(WeightStorage storage, int32_t group_size) {
  WeightQuantization quantization{.storage = storage, .group_size = group_size};
  if (storage != WeightStorage::kPackedInt4) quantization.scale_name = "scales";
  if (storage == WeightStorage::kGptq) quantization.zero_point_offset = 1;
  return quantization;
}

// Of a quantization that reorders inputs, the input that stands at a place: those of a group are
// far apart.
int64_t InputAt(int64_t place, int64_t group) {
  const int64_t groups = kColumns / group;
  return place % group * groups + place / group;
}
// And the place of an input.
int64_t PlaceOf(const WeightQuantization& quantization, int64_t input) {
  if (!quantization.reorders_inputs) return input;
  const int64_t groups = kColumns / quantization.group_size;
  return input % groups * quantization.group_size + input / groups;
}
FileTensor Order(const std::string& name, const WeightQuantization& quantization, int64_t group) {
  std::vector<int32_t> order;
  for (int64_t column = 0; column < kColumns; ++column)
    order.push_back(static_cast<int32_t>(PlaceOf(quantization, column) / group));
  return {name, "I32", {kColumns}, BytesOf(order)};
}

// The tensors of outputs [first, first + rows) as a layer of its own.
std::vector<FileTensor> Layer(const std::string& name, const WeightQuantization& quantization,
                              int64_t first, int64_t rows) {
  const int64_t group = quantization.group_size == 0 ? kColumns : quantization.group_size;
  const int64_t groups = kColumns / group, columns = kColumns / 8, outputs = rows / 8;
  std::vector<float> scales;
  const auto element = [&](int64_t row, int64_t input) {
    return Element(first + row, PlaceOf(quantization, input));
  };
  if (quantization.storage == WeightStorage::kPackedInt4) {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t g = 0; g < groups; ++g) scales.push_back(Scale(first + row, g));
    std::vector<FileTensor> tensors = {
        {name + ".weight_packed",
         "I32",
         {rows, columns},
         BytesOf(Words(
             rows * columns, kPlaces,
             [&](int64_t i, int64_t j) { return element(i / columns, i % columns * 8 + j); }))},
        {name + ".weight_scale", "F32", {rows, groups}, BytesOf(scales)},
        {name + ".weight_zero_point",
         "I32",
         {outputs, groups},
         BytesOf(Words(outputs * groups, kPlaces,
                       [&](int64_t i, int64_t j) {
                         return ZeroPoint(first + i / groups * 8 + j, i % groups);
                       }))},
        {name + ".weight_shape", "I64", {2}, BytesOf(std::vector<int64_t>{rows, kColumns})}};
    if (quantization.reorders_inputs)
      tensors.push_back(Order(name + ".weight_g_idx", quantization, group));
    return tensors;
  }
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t row = 0; row < rows; ++row) scales.push_back(Scale(first + row, g));
  const bool awq = quantization.storage == WeightStorage::kAwq;
  const std::vector<int>& places = awq ? kAwqPlaces : kPlaces;
  const std::vector<uint32_t> words =
      awq ? Words(kColumns * outputs, places,
                  [&](int64_t i, int64_t j) { return element(i % outputs * 8 + j, i / outputs); })
          : Words(columns * rows, places,
                  [&](int64_t i, int64_t j) { return element(i % rows, i / rows * 8 + j); });
  std::vector<FileTensor> tensors = {
      {name + ".qweight", "I32",
       awq ? std::vector<int64_t>{kColumns, outputs} : std::vector<int64_t>{columns, rows},
       BytesOf(words)},
      {name + ".scales", "F32", {groups, rows}, BytesOf(scales)},
      {name + ".qzeros",
       "I32",
       {groups, outputs},
       BytesOf(Words(groups * outputs, places, [&](int64_t i, int64_t j) {
         return ZeroPoint(first + i % outputs * 8 + j, i / outputs) -
                static_cast<uint32_t>(quantization.zero_point_offset);
       }))}};
  if (!awq) tensors.push_back(Order(name + ".g_idx", quantization, group));
  return tensors;
}

class Int4WeightsTest : public ::testing::Test {
 protected:
  Int4WeightsTest() : device_(*runtime::Device::Create({.kind = runtime::DeviceKind::kHost})) {}

  static WeightPlan Plan(const WeightQuantization& quantization, kernels::WeightLayout layout) {
    return WeightPlan(runtime::DType::kBf16, runtime::DType::kBf16, layout, quantization, "tested");
  }
  absl::StatusOr<ModelWeights> Load(const WeightPlan& plan,
                                    const std::vector<FileTensor>& tensors) {
    const std::string path = absl::StrCat(directory_.path(), "/", num_checkpoints_++);
    std::filesystem::create_directory(path);
    WriteBytes(path + "/model.safetensors", SafetensorsBytes(tensors));
    checkpoint_ = *Checkpoint::Open(path);
    return ModelWeights::Load(*device_, plan, *checkpoint_);
  }
  absl::StatusOr<ModelWeights> Random(const WeightPlan& plan) {
    return ModelWeights::Random(*device_, plan, 1, [](auto&&...) { return absl::OkStatus(); });
  }
  // "a" and "b", one below the other.
  static std::vector<FileTensor> Tensors(const WeightQuantization& quantization) {
    std::vector<FileTensor> tensors = Layer("a", quantization, 0, kRows[0]);
    for (FileTensor& tensor : Layer("b", quantization, kRows[0], kRows[1]))
      tensors.push_back(std::move(tensor));
    return tensors;
  }
  template <typename T>
  std::vector<T> Read(const void* data, size_t count) {
    std::vector<T> values(count);
    auto stream = *device_->CreateStream();
    EXPECT_TRUE(stream->CopyToHost(values.data(), data, count * sizeof(T)).ok());
    EXPECT_TRUE(stream->Synchronize().ok());
    return values;
  }
  // What is loaded as one layer of both parts has their elements and scales.
  void ExpectLayer(const kernels::LinearWeights& layer, int32_t group_size) {
    const bool packed = layer.layout != kernels::WeightLayout::kRowMajor;
    const size_t inputs = group_size == 0 ? 128 : static_cast<size_t>(group_size);
    const size_t groups = (128 + inputs - 1) / inputs;  // of two whole tiles
    std::vector<uint8_t> elements;
    std::vector<uint32_t> words;
    for (size_t row = 0; row < kAll; ++row) {
      for (int64_t column = 0; column < kColumns; ++column)
        elements.push_back(Element(static_cast<int64_t>(row), column));
      for (size_t group = 0; group < groups; ++group) {
        const bool there = group_size == 0 || group < kColumns / inputs;
        const auto r = static_cast<int64_t>(row), g = static_cast<int64_t>(group);
        words.push_back(there ? std::bit_cast<uint32_t>(Scale(r, g)) | ZeroPoint(r, g) : 0);
      }
    }
    if (layer.layout == kernels::WeightLayout::kPackedPairs) {
      elements = testing::RowsInTurns(elements, kAll, kColumns);
      words = testing::RowsInTurns(words, kAll, groups);
    }
    EXPECT_EQ(layer.format, kernels::WeightFormat::kInt4);
    EXPECT_EQ(layer.group_size, static_cast<int32_t>(inputs));
    const auto wanted = testing::Int4Bytes(elements, kAll, kColumns, packed, 0);
    EXPECT_EQ(Read<uint8_t>(layer.data, wanted.size()), wanted);
    if (packed) words = testing::PackedFp8Scales<uint32_t>(words, kAll, groups, 0);
    EXPECT_EQ(Read<uint32_t>(layer.scales, words.size()), words);
  }

 private:
  std::unique_ptr<runtime::Device> device_;
  TemporaryDirectory directory_;
  std::unique_ptr<Checkpoint> checkpoint_;
  int num_checkpoints_ = 0;
};

TEST_F(Int4WeightsTest, LieWhereThePlanSaysHoweverTheyArePublished) {
  for (const auto storage :
       {WeightStorage::kGptq, WeightStorage::kAwq, WeightStorage::kPackedInt4}) {
    for (const int32_t group_size : {32, 0}) {
      const WeightQuantization quantization = Of(storage, group_size);
      for (const auto layout : {kernels::WeightLayout::kRowMajor, kernels::WeightLayout::kPacked}) {
        SCOPED_TRACE(absl::StrCat(static_cast<int>(storage), ", ", group_size, ", ",
                                  std::string(kernels::NameOf(layout))));
        WeightPlan plan = Plan(quantization, layout);
        kernels::LinearWeights layer;
        plan.Linear(&layer, {{"a", kRows[0]}, {"b", kRows[1]}}, kColumns, false);
        const auto weights = Load(plan, Tensors(quantization));
        ASSERT_TRUE(weights.ok()) << weights.status();
        EXPECT_EQ(weights->bytes(), plan.bytes());
        ExpectLayer(layer, group_size);
      }
    }
  }
}

// Columns lie group by group, and the layer says which input each is of.
TEST_F(Int4WeightsTest, OfInputsInAnotherOrderLieInGroups) {
  for (const auto storage : {WeightStorage::kGptq, WeightStorage::kPackedInt4}) {
    WeightQuantization quantization = Of(storage, 32);
    quantization.reorders_inputs = true;
    for (const auto layout : {kernels::WeightLayout::kRowMajor, kernels::WeightLayout::kPacked,
                              kernels::WeightLayout::kPackedPairs}) {
      SCOPED_TRACE(
          absl::StrCat(static_cast<int>(storage), ", ", std::string(kernels::NameOf(layout))));
      WeightPlan plan = Plan(quantization, layout);
      kernels::LinearWeights layer, second;
      std::vector<FileTensor> tensors;
      if (layout == kernels::WeightLayout::kPackedPairs) {
        plan.PairedLinear(&layer, {{"a", 32}, {"b", 32}}, kColumns, false);
        tensors = Layer("a", quantization, 0, 32);
        for (FileTensor& tensor : Layer("b", quantization, 32, 32))
          tensors.push_back(std::move(tensor));
      } else {
        plan.Linear(&layer, {{"a", kRows[0]}, {"b", kRows[1]}}, kColumns, false);
        tensors = Tensors(quantization);
      }
      // A second one shows that each has its own.
      plan.Linear(&second, {{"c", 64}}, kColumns, false);
      for (FileTensor& tensor : Layer("c", quantization, 0, 64))
        tensors.push_back(std::move(tensor));
      const int64_t bytes_read = plan.quantized_bytes_read();
      EXPECT_TRUE(layer.reordered);
      const auto weights = Load(plan, tensors);
      ASSERT_TRUE(weights.ok()) << weights.status();
      EXPECT_EQ(weights->bytes(), plan.bytes());
      ExpectLayer(layer, 32);
      ExpectLayer(second, 32);
      std::vector<uint32_t> order;
      for (int64_t place = 0; place < kColumns; ++place)
        order.push_back(static_cast<uint32_t>(InputAt(place, 32)));
      EXPECT_EQ(Read<uint32_t>(layer.input_order, kColumns), order);
      EXPECT_EQ(Read<uint32_t>(second.input_order, kColumns), order);
      EXPECT_NE(layer.input_order, second.input_order);
      // Each layer of 64 outputs: half a byte, a scale for 32 of two tiles, its order.
      EXPECT_EQ(bytes_read, 2 * (64 * 48 + 64 * 4 * 4 + kColumns * 4));
    }
  }
}

TEST_F(Int4WeightsTest, WithoutAnOrderOfTheirOwnGroupsAreOfNeighbours) {
  const WeightQuantization published = Of(WeightStorage::kPackedInt4, 32);
  WeightQuantization quantization = published;
  quantization.reorders_inputs = true;
  WeightPlan plan = Plan(quantization, kernels::WeightLayout::kPacked);
  kernels::LinearWeights layer;
  plan.Linear(&layer, {{"a", kRows[0]}, {"b", kRows[1]}}, kColumns, false);
  const auto weights = Load(plan, Tensors(published));
  ASSERT_TRUE(weights.ok()) << weights.status();
  ExpectLayer(layer, 32);
  const std::vector<uint32_t> order = Read<uint32_t>(layer.input_order, kColumns);
  for (uint32_t input = 0; input < kColumns; ++input) EXPECT_EQ(order[input], input);
}

TEST_F(Int4WeightsTest, RandomOnesOfInputsInAnotherOrderHaveEveryInputOnce) {
  WeightQuantization quantization = Of(WeightStorage::kGptq, 32);
  quantization.reorders_inputs = true;
  WeightPlan plan = Plan(quantization, kernels::WeightLayout::kRowMajor);
  kernels::LinearWeights layer;
  plan.Linear(&layer, {{"a", kRows[0]}}, kColumns, false);
  const auto weights = Random(plan);
  ASSERT_TRUE(weights.ok()) << weights.status();
  std::vector<uint32_t> order = Read<uint32_t>(layer.input_order, kColumns);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  std::sort(order.begin(), order.end());
  for (uint32_t input = 0; input < kColumns; ++input) EXPECT_EQ(order[input], input);
}

TEST_F(Int4WeightsTest, OrdersThatAreNoneAreRefusedByName) {
  kernels::LinearWeights layer;
  WeightQuantization gptq = Of(WeightStorage::kGptq, 32);
  gptq.reorders_inputs = true;
  const auto status = [&](const std::vector<int32_t>& order) {
    WeightPlan plan = Plan(gptq, kernels::WeightLayout::kPacked);
    plan.Linear(&layer, {{"a", kRows[0]}, {"b", kRows[1]}}, kColumns, false);
    std::vector<FileTensor> tensors = Tensors(gptq);
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].name != "b.g_idx") continue;
      if (order.empty()) {
        tensors.erase(tensors.begin() + static_cast<ptrdiff_t>(i));
      } else {
        tensors[i] = {"b.g_idx", "I32", {static_cast<int64_t>(order.size())}, BytesOf(order)};
      }
      break;
    }
    return Load(plan, tensors).status();
  };
  std::vector<int32_t> order;
  for (int32_t column = 0; column < kColumns; ++column) order.push_back(column % 3);
  EXPECT_TRUE(status(order).ok());
  ExpectError(status({}), absl::StatusCode::kNotFound, {"'b.g_idx'", "missing", "[96]"});
  ExpectInvalid(status(std::vector<int32_t>(95, 0)), {"'b.g_idx'", "got shape [95]", "[96]"});
  std::vector<int32_t> bad = order;
  bad[7] = 3;
  ExpectInvalid(status(bad), {"'b.g_idx'", "got group 3 of input 7", "allowed 0 to 2"});
  bad[7] = -1;
  ExpectInvalid(status(bad), {"'b.g_idx'", "got group -1 of input 7", "allowed 0 to 2"});
  bad = order;
  bad[1] = 0;
  ExpectInvalid(status(bad),
                {"'b.g_idx'", "got input 93 as another of group 0", "allowed 32 inputs"});
  std::swap(order[0], order[1]);
  ExpectInvalid(status(order),
                {"'b.g_idx'", "got other groups of inputs than 'a.g_idx'", "allowed the same"});
}

TEST_F(Int4WeightsTest, OfPairsLieInTurns) {
  const WeightQuantization quantization = Of(WeightStorage::kGptq, 32);
  WeightPlan plan = Plan(quantization, kernels::WeightLayout::kPackedPairs);
  kernels::LinearWeights layer;
  plan.PairedLinear(&layer, {{"a", 32}, {"b", 32}}, kColumns, false);
  std::vector<FileTensor> tensors = Layer("a", quantization, 0, 32);
  for (FileTensor& tensor : Layer("b", quantization, 32, 32)) tensors.push_back(std::move(tensor));
  const auto weights = Load(plan, tensors);
  ASSERT_TRUE(weights.ok()) << weights.status();
  ASSERT_EQ(layer.layout, kernels::WeightLayout::kPackedPairs);
  ExpectLayer(layer, 32);
}

TEST_F(Int4WeightsTest, AStepReadsHalfAByteOfEachAndItsShareOfAScale) {
  WeightPlan plan = Plan(Of(WeightStorage::kAwq, 64), kernels::WeightLayout::kRowMajor);
  kernels::LinearWeights layer, head;
  plan.Linear(&layer, {{"a", 8}}, 256, true);
  plan.PlainLinear(&head, {{"head", 16}}, 256);
  EXPECT_EQ(head.format, kernels::WeightFormat::kBf16);
  EXPECT_EQ(plan.elements_read(), 8 + 16 * 256);
  EXPECT_EQ(plan.quantized_bytes_read(), 8 * 128 + 8 * 4 * 4);
  EXPECT_EQ(plan.num_parameters(), 8 * 256 + 8 + 16 * 256);
}

TEST_F(Int4WeightsTest, ABiasOfZerosThatTheModelHasNotIsNotRead) {
  kernels::LinearWeights layer;
  for (const auto storage : {WeightStorage::kGptq, WeightStorage::kAwq}) {
    WeightPlan plan = Plan(Of(storage, 32), kernels::WeightLayout::kRowMajor);
    plan.Linear(&layer, {{"a", kRows[0]}}, kColumns, false);
    for (const float value : {0.0f, 0.5f}) {
      std::vector<FileTensor> tensors = Layer("a", Of(storage, 32), 0, kRows[0]);
      tensors.push_back({"a.bias", "F32", {kRows[0]}, BytesOf(std::vector<float>(24, value))});
      const absl::Status loaded = Load(plan, tensors).status();
      if (storage == WeightStorage::kGptq && value == 0.0f) {
        EXPECT_TRUE(loaded.ok()) << loaded;
      } else {
        ExpectInvalid(loaded, {"'a.bias'", "allowed only tensors"});
      }
    }
  }
}

// Each with one tensor of "b" exchanged, or taken away.
TEST_F(Int4WeightsTest, AreRefusedByName) {
  kernels::LinearWeights layer;
  const auto status = [&](const WeightQuantization& quantization, const std::string& name,
                          const FileTensor* instead) {
    WeightPlan plan = Plan(quantization, kernels::WeightLayout::kPacked);
    plan.Linear(&layer, {{"a", kRows[0]}, {"b", kRows[1]}}, kColumns, false);
    std::vector<FileTensor> tensors = Tensors(quantization);
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].name != name) continue;
      if (instead != nullptr) {
        tensors[i] = *instead;
      } else {
        tensors.erase(tensors.begin() + static_cast<ptrdiff_t>(i));
      }
      break;
    }
    return Load(plan, tensors).status();
  };
  const auto with = [&](const WeightQuantization& quantization, const FileTensor& tensor) {
    return status(quantization, tensor.name, &tensor);
  };
  const auto words = [](size_t count, uint32_t word) {
    return BytesOf(std::vector<uint32_t>(count, word));
  };
  const WeightQuantization gptq = Of(WeightStorage::kGptq, 32);
  const WeightQuantization packed = Of(WeightStorage::kPackedInt4, 32);
  std::vector<float> scales(3 * 40, 1.0f);
  EXPECT_TRUE(with(gptq, {"b.scales", "F32", {3, 40}, BytesOf(scales)}).ok());
  for (const float bad : {NAN, INFINITY, -1.0f}) {
    scales[50] = bad;
    ExpectInvalid(with(gptq, {"b.scales", "F32", {3, 40}, BytesOf(scales)}),
                  {"'b.scales'", "got scale", "of at least 0"});
  }
  scales.resize(2 * 40);
  ExpectInvalid(with(gptq, {"b.scales", "F32", {2, 40}, BytesOf(scales)}),
                {"'b.scales'", "got shape [2, 40]", "allowed [3, 40]"});
  ExpectInvalid(with(gptq, {"b.scales", "I32", {3, 40}, words(120, 1)}),
                {"'b.scales'", "got dtype i32", "allowed f32, bf16 and f16"});
  ExpectError(status(gptq, "b.qzeros", nullptr), absl::StatusCode::kNotFound,
              {"'b.qzeros'", "missing", "[3, 5]"});
  ExpectInvalid(with(gptq, {"b.qzeros", "I32", {5, 3}, words(15, 0)}), {"'b.qzeros'", "[5, 3]"});
  ExpectInvalid(with(gptq, {"b.qzeros", "I32", {3, 5}, words(15, 0x1f111111)}),
                {"'b.qzeros'", "got a zero point of 16", "allowed 0 to 15"});
  WeightQuantization symmetric = gptq;
  symmetric.symmetric = true;
  ExpectInvalid(with(symmetric, {"b.qzeros", "I32", {3, 5}, words(15, 0x77777777)}),
                {"'a.qzeros'", "got a zero point of", "allowed 8", "symmetric"});
  std::vector<int32_t> order(96, 0);
  ExpectInvalid(with(gptq, {"b.g_idx", "I32", {96}, BytesOf(order)}),
                {"'b.g_idx'", "got group 0 of input 32", "allowed 1"});
  EXPECT_TRUE(status(gptq, "b.g_idx", nullptr).ok());
  ExpectInvalid(with(gptq, {"b.qweight", "I32", {40, 12}, words(480, 0)}),
                {"'b.qweight'", "got shape [40, 12]", "allowed [12, 40]"});
  ExpectInvalid(with(gptq, {"b.qweight", "F32", {12, 40}, words(480, 0)}),
                {"'b.qweight'", "got dtype f32", "allowed i32, as the config's"});
  ExpectInvalid(with(packed, {"b.weight_shape", "I64", {2}, BytesOf(std::vector<int64_t>{40, 95})}),
                {"'b.weight_shape'", "got [40, 95]", "allowed [40, 96]"});
  ExpectError(status(packed, "b.weight_zero_point", nullptr), absl::StatusCode::kNotFound,
              {"'b.weight_zero_point'", "missing"});
  // Zero points of what the config says is symmetric.
  WeightQuantization even = packed;
  even.symmetric = true;
  ExpectInvalid(status(even, "none", nullptr), {"'a.weight_zero_point'", "allowed only tensors"});
  // Inputs that are no whole groups, outputs that are no whole words.
  WeightPlan uneven = Plan(Of(WeightStorage::kGptq, 64), kernels::WeightLayout::kPacked);
  uneven.Linear(&layer, {{"a", kRows[0]}}, kColumns, false);
  ExpectInvalid(Load(uneven, Layer("a", gptq, 0, kRows[0])).status(),
                {"'a.qweight'", "got 96 inputs", "a multiple of the group size, 64"});
  // Integers where there should be numbers.
  WeightPlan plain(runtime::DType::kBf16, runtime::DType::kBf16, kernels::WeightLayout::kRowMajor,
                   std::nullopt, "tested");
  plain.Linear(&layer, {{"a", 8}}, 8, false);
  ExpectInvalid(Load(plain, {{"a.weight", "I32", {8, 8}, words(64, 0)}}).status(),
                {"'a.weight'", "got dtype i32", "allowed f32, bf16 and f16"});
}

}  // namespace
}  // namespace reprise::models
