// SPDX-License-Identifier: Apache-2.0
// Heads of which rope turns a part: the order that kernels want them in, and weights in every
// format that are loaded in it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "models/weights/checkpoint.h"
#include "models/weights/model_weights.h"
#include "models/weights/published_matrix.h"
#include "models/weights/weight_plan.h"
#include "runtime/device.h"
#include "tests/models/model_files.h"
#include "tests/testing/tiny_model.h"

namespace reprise::models {
namespace {

using ::reprise::testing::BytesOf;
using ::reprise::testing::FileTensor;
using ::reprise::testing::SafetensorsBytes;
using ::reprise::testing::TemporaryDirectory;
using ::reprise::testing::WriteBytes;
using ::testing::ElementsAre;

std::vector<int64_t> PublishedOf(const HeadOrder& heads, int64_t outputs) {
  std::vector<int64_t> published;
  for (int64_t output = 0; output < outputs; ++output) published.push_back(heads.Published(output));
  return published;
}

TEST(HeadOrder, PutsWhatIsTurnedInFrontOfBothHalves) {
  // Pairs 0 and 2, 1 and 3 are turned; 4 to 7 are not.
  EXPECT_THAT(PublishedOf({.head_dim = 8, .turned = 4}, 16),
              ElementsAre(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  EXPECT_THAT(PublishedOf({.head_dim = 6, .turned = 2}, 6), ElementsAre(0, 2, 3, 1, 4, 5));
  EXPECT_THAT(PublishedOf({.head_dim = 4, .turned = 4}, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(PublishedOf({}, 4), ElementsAre(0, 1, 2, 3));
}

TEST(HeadOrder, LeavesWhatLiesBehindItsEnd) {
  EXPECT_THAT(PublishedOf({.head_dim = 4, .turned = 2, .end = 8}, 12),
              ElementsAre(0, 2, 1, 3, 4, 6, 5, 7, 8, 9, 10, 11));
}

TEST(HeadOrder, NamesEveryOutputOnceInsideOfItsHead) {
  for (int64_t head_dim = 2; head_dim <= 130; head_dim += 2) {
    for (int64_t turned = 2; turned <= head_dim; turned += 2) {
      const std::vector<int64_t> second =
          PublishedOf({.head_dim = head_dim, .turned = turned}, 2 * head_dim);
      const std::set<int64_t> names(second.begin() + head_dim, second.end());
      ASSERT_EQ(names.size(), static_cast<size_t>(head_dim));
      ASSERT_EQ(*names.begin(), head_dim);
      ASSERT_EQ(*names.rbegin(), 2 * head_dim - 1);
    }
  }
}

// q and k of heads of 8, whose border cuts a tile, and v, whose outputs stay.
constexpr HeadOrder kHeads = {.head_dim = 8, .turned = 4};
constexpr struct {
  const char* name;
  int64_t rows;
  bool has_heads;
} kParts[] = {{"q", 24, true}, {"k", 16, true}, {"v", 16, false}};
constexpr int64_t kColumns = 96;

struct Format {
  const char* name;
  std::optional<WeightQuantization> quantization;
};
const Format kFormats[] = {
    {"f32", std::nullopt},
    {"fp8", WeightQuantization{.granularity = ScaleGranularity::kChannel}},
    {"int4", WeightQuantization{
                 .storage = WeightStorage::kPackedInt4, .group_size = 32, .symmetric = true}}};

// The same parts in one tensor.
constexpr int64_t kAllRows = 24 + 16 + 16, kRowsWithHeads = 24 + 16;

// What is stored as output `row` of all parts together; `permuted`: those of q and k in the order
// of kHeads.
int64_t StoredAs(int64_t row, bool permuted) {
  return permuted && row < kRowsWithHeads ? kHeads.Published(row) : row;
}

// `fused`: one tensor of all parts.
std::vector<FileTensor> Tensors(const Format& format, bool permuted, bool fused) {
  std::vector<FileTensor> tensors;
  int64_t first = 0;
  for (const auto& part : kParts) {
    const int64_t rows = fused ? kAllRows : part.rows;
    std::vector<float> plain, scales;
    std::vector<uint8_t> codes;
    std::vector<uint32_t> words;
    const bool int4 = std::string(format.name) == "int4";
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t of = StoredAs(first + row, permuted);
      for (int64_t c = 0; c < kColumns; ++c) {
        plain.push_back(static_cast<float>((of * 7 + c) % 61));
        codes.push_back(static_cast<uint8_t>((of * 7 + c) % 100));
      }
      for (int64_t w = 0; w < kColumns / 8; ++w)
        words.push_back(static_cast<uint32_t>(of * 2654435761u + static_cast<uint64_t>(w) * 40503));
      for (int64_t group = 0; group < (int4 ? kColumns / 32 : 1); ++group)
        scales.push_back(static_cast<float>(1 + (of + group) % 50) / 64.0f);
    }
    const std::string name = fused ? "qkv" : part.name;
    const std::vector<int64_t> shape = {rows, kColumns};
    if (!format.quantization) {
      tensors.push_back({name + ".weight", "F32", shape, BytesOf(plain)});
    } else if (int4) {
      tensors.push_back({name + ".weight_packed", "I32", {rows, kColumns / 8}, BytesOf(words)});
      tensors.push_back({name + ".weight_shape", "I64", {2}, BytesOf(shape)});
      tensors.push_back({name + ".weight_scale", "F32", {rows, kColumns / 32}, BytesOf(scales)});
    } else {
      tensors.push_back({name + ".weight", "F8_E4M3", shape, BytesOf(codes)});
      tensors.push_back({name + ".weight_scale", "F32", {rows, 1}, BytesOf(scales)});
    }
    if (fused) break;
    first += rows;
  }
  return tensors;
}

class HeadOrderWeightsTest : public ::testing::Test {
 protected:
  // What is loaded, byte by byte: elements, then scales.
  std::string Loaded(const Format& format, kernels::WeightLayout layout, bool permuted,
                     bool fused = false) {
    WeightPlan plan(runtime::DType::kBf16, runtime::DType::kBf16, layout, format.quantization,
                    "tested");
    kernels::LinearWeights layer;
    std::vector<WeightPlan::Part> parts;
    for (const auto& part : kParts)
      parts.push_back({part.name, part.rows, part.has_heads && !permuted ? kHeads : HeadOrder{}});
    if (fused) {
      HeadOrder heads = kHeads;
      heads.end = kRowsWithHeads;
      parts = {{"qkv", kAllRows, permuted ? HeadOrder{} : heads}};
    }
    plan.Linear(&layer, parts, kColumns, false);
    const std::string path = absl::StrCat(directory_.path(), "/", num_checkpoints_++);
    std::filesystem::create_directory(path);
    WriteBytes(path + "/model.safetensors", SafetensorsBytes(Tensors(format, permuted, fused)));
    const auto checkpoint = Checkpoint::Open(path);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    const auto device = *runtime::Device::Create({.kind = runtime::DeviceKind::kHost});
    const auto weights = ModelWeights::Load(*device, plan, **checkpoint);
    EXPECT_TRUE(weights.ok()) << weights.status();
    if (!weights.ok()) return {};
    const WeightRegion& region = plan.regions().front();
    const size_t elements = static_cast<size_t>(region.count) * runtime::SizeOf(region.dtype);
    size_t scales = 0;
    for (const WeightScales& of : plan.scales())
      scales += static_cast<size_t>(of.count()) * sizeof(float);
    std::string bytes(elements + scales, '\0');
    const auto stream = *device->CreateStream();
    EXPECT_TRUE(stream->CopyToHost(bytes.data(), layer.data, elements).ok());
    if (scales != 0) {
      EXPECT_TRUE(stream->CopyToHost(bytes.data() + elements, layer.scales, scales).ok());
    }
    EXPECT_TRUE(stream->Synchronize().ok());
    return bytes;
  }

 private:
  TemporaryDirectory directory_;
  int num_checkpoints_ = 0;
};

// As a checkpoint whose outputs are stored in that order is without it, scales included.
TEST_F(HeadOrderWeightsTest, AreLoadedInTheOrderOfKernels) {
  for (const Format& format : kFormats) {
    for (const auto layout : {kernels::WeightLayout::kRowMajor, kernels::WeightLayout::kPacked}) {
      SCOPED_TRACE(absl::StrCat(format.name, ", ", std::string(kernels::NameOf(layout))));
      const std::string moved = Loaded(format, layout, false);
      EXPECT_TRUE(moved == Loaded(format, layout, true));
      EXPECT_TRUE(moved == Loaded(format, layout, false, /*fused=*/true));
      EXPECT_FALSE(moved.empty());
    }
  }
}

}  // namespace
}  // namespace reprise::models
