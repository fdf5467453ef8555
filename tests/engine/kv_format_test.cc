// SPDX-License-Identifier: Apache-2.0
// Contents of blocks on their way out and back, against the layout's own formula, element by
// element.
#include "engine/kv_format.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/attention/kv_layout.h"
#include "tests/testing/number.h"

namespace reprise::engine {
namespace {

using kernels::KvLayout;
using runtime::DType;

const std::vector<KvLayout>& Layouts() {
  static const std::vector<KvLayout> layouts = {
      {.num_kv_heads = 2, .head_dim = 8, .block_size = 4, .dtype = DType::kF32},
      {.num_kv_heads = 1, .head_dim = 5, .block_size = 3, .dtype = DType::kBf16},
      {.num_kv_heads = 3, .head_dim = 16, .block_size = 7, .dtype = DType::kE4m3},
      {.num_kv_heads = 2, .head_dim = 64, .block_size = 16, .dtype = DType::kF16, .swizzled = true},
      {.num_kv_heads = 1,
       .head_dim = 128,
       .block_size = 9,
       .dtype = DType::kBf16,
       .swizzled = true},
      {.num_kv_heads = 2,
       .head_dim = 128,
       .block_size = 8,
       .dtype = DType::kE5m2,
       .swizzled = true},
  };
  return layouts;
}

constexpr uint32_t kLayers = 3;

std::string NameOfLayout(const KvLayout& layout) {
  return std::to_string(layout.head_dim) + " " + std::string(NameOf(layout.dtype)) +
         (layout.swizzled ? " swizzled" : "");
}

std::vector<std::byte> RandomLayers(const KvLayout& layout) {
  testing::Random random(static_cast<uint64_t>(layout.head_dim));
  std::vector<std::byte> bytes(kLayers * static_cast<size_t>(layout.BlockElements()) *
                               static_cast<size_t>(layout.ElementBytes()));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Below(256));
  return bytes;
}

// Calls f(place in the layers, place in the contents) of every element, in bytes.
template <typename F>
void ForElements(const KvLayout& layout, uint32_t num_tokens, const F& f) {
  const auto element = static_cast<size_t>(layout.ElementBytes());
  size_t next = 0;
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    for (int part = 0; part < 2; ++part) {
      for (int head = 0; head < layout.num_kv_heads; ++head) {
        for (uint32_t token = 0; token < num_tokens; ++token) {
          for (int dim = 0; dim < layout.head_dim; ++dim, ++next) {
            const int64_t at =
                layer * layout.BlockElements() + layout.Offset(0, part, head, token, dim);
            f(static_cast<size_t>(at) * element, next * element);
          }
        }
      }
    }
  }
}

size_t ContentsBytes(const KvLayout& layout, uint32_t num_tokens) {
  return size_t{kLayers} * 2 * static_cast<size_t>(layout.num_kv_heads) * num_tokens *
         static_cast<size_t>(layout.head_dim) * static_cast<size_t>(layout.ElementBytes());
}

TEST(KvFormat, PacksElementsInTheOrderOfTheContract) {
  for (const KvLayout& layout : Layouts()) {
    for (const uint32_t tokens : {0u, 1u, static_cast<uint32_t>(layout.block_size)}) {
      SCOPED_TRACE(NameOfLayout(layout) + ", tokens " + std::to_string(tokens));
      const std::vector<std::byte> layers = RandomLayers(layout);
      std::vector<std::byte> contents(ContentsBytes(layout, tokens));
      PackTokens(layout, kLayers, tokens, layers.data(), contents.data());
      size_t num_wrong = 0;
      ForElements(layout, tokens, [&](size_t from, size_t to) {
        num_wrong += std::memcmp(layers.data() + from, contents.data() + to,
                                 static_cast<size_t>(layout.ElementBytes())) != 0;
      });
      EXPECT_EQ(num_wrong, 0u);
    }
  }
}

TEST(KvFormat, UnpackedElementsAreThoseThatWerePackedAndTheRestIsZero) {
  for (const KvLayout& layout : Layouts()) {
    SCOPED_TRACE(NameOfLayout(layout));
    const uint32_t tokens = static_cast<uint32_t>(layout.block_size) - 1;
    const std::vector<std::byte> layers = RandomLayers(layout);
    std::vector<std::byte> contents(ContentsBytes(layout, tokens));
    PackTokens(layout, kLayers, tokens, layers.data(), contents.data());
    std::vector<std::byte> back(layers.size(), std::byte{0xff});
    UnpackTokens(layout, kLayers, tokens, contents.data(), back.data());
    std::vector<std::byte> want(layers.size(), std::byte{0});
    ForElements(layout, tokens, [&](size_t from, size_t) {
      std::memcpy(want.data() + from, layers.data() + from,
                  static_cast<size_t>(layout.ElementBytes()));
    });
    EXPECT_TRUE(back == want);
  }
}

}  // namespace
}  // namespace reprise::engine
