// SPDX-License-Identifier: Apache-2.0
// The vectorised packing of tiles against what kernels/packed_layout.h says of one word.
#include "models/weights/tile_packing.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "kernels/packed_layout.h"
#include "tests/testing/number.h"

namespace reprise::models {
namespace {

using kernels::PackedLayout;

// By kernels::PackE4m3 alone: the words of a matrix of E4M3 [outputs, inputs].
std::vector<uint32_t> WordsOf(const std::vector<uint8_t>& matrix, const PackedLayout& layout) {
  std::vector<uint32_t> words(static_cast<size_t>(layout.Elements()) / 4);
  for (int64_t output = 0; output < layout.out_features; ++output) {
    for (int64_t input = 0; input < layout.in_features; ++input) {
      const int64_t at = layout.ByteOffset(output, input);
      const uint32_t element = matrix[static_cast<size_t>(output * layout.in_features + input)];
      words[static_cast<size_t>(at / 4)] |= element << 8 * (at % 4);
    }
  }
  for (uint32_t& word : words) word = kernels::PackE4m3(word);
  return words;
}

// Every byte in every place of a word, inputs that end in the midst of a chunk, elements at any
// address.
TEST(TilePacking, WordsOfE4m3AreThoseThatAreDefined) {
  testing::Random random(3);
  for (const int64_t inputs : {1, 16, 64, 77, 1000}) {
    const PackedLayout layout{kernels::kPackedTileOutputs, inputs};
    std::vector<uint8_t> matrix(static_cast<size_t>(layout.out_features * inputs));
    for (uint8_t& element : matrix) element = static_cast<uint8_t>(random.Below(256));
    std::vector<uint32_t> got(static_cast<size_t>(layout.Elements()) / 4, 0xdeadbeef);
    const auto elements = std::as_bytes(std::span(matrix));
    auto* const tiles = reinterpret_cast<std::byte*>(got.data());
    for (int row = 0; row < kernels::kPackedTileOutputs; ++row)
      PackOutputE4m3(inputs, row, &elements[static_cast<size_t>(row * inputs)], tiles);
    EXPECT_EQ(got, WordsOf(matrix, layout)) << inputs;
  }
}

TEST(TilePacking, EveryElementOfAWordIsReadAsItWasPacked) {
  for (uint32_t element = 0; element < 256; ++element) {
    for (int i = 0; i < 4; ++i) {
      for (const uint32_t others : {0u, ~0u}) {
        const uint32_t mask = 0xffu << 8 * i;
        const uint32_t bytes = (others & ~mask) | element << 8 * i;
        for (int j = 0; j < 4; ++j)
          ASSERT_EQ(kernels::UnpackE4m3(kernels::PackE4m3(bytes), j), bytes >> 8 * j & 0xff);
      }
    }
  }
}

}  // namespace
}  // namespace reprise::models
