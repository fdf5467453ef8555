// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/random_attention.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "tests/testing/number.h"

namespace reprise::testing {
namespace {

template <typename T, size_t kCount>
T OneOf(Random& random, const T (&values)[kCount]) {
  return values[random.Below(kCount)];
}

// Mostly what kernels are compiled for, now and then a size that they pad.
int32_t HeadDim(Random& random) {
  constexpr int32_t kCommon[] = {64, 80, 96, 128, 192, 256}, kOdd[] = {8, 20, 24, 40, 112, 200};
  return random.Below(6) == 0 ? OneOf(random, kOdd) : OneOf(random, kCommon);
}

int32_t Group(Random& random) {
  constexpr int32_t kCommon[] = {1, 2, 4, 8};
  return random.Below(2) == 0 ? OneOf(random, kCommon) : static_cast<int32_t>(1 + random.Below(16));
}

int32_t BlockSize(Random& random) {
  constexpr int32_t kCommon[] = {16, 32, 48, 544}, kOdd[] = {1, 3, 24, 100};
  return random.Below(5) == 0 ? OneOf(random, kOdd) : OneOf(random, kCommon);
}

float Softcap(Random& random) {
  constexpr float kCaps[] = {0.5f, 3.0f, 30.0f, 50.0f};
  return random.Below(2) == 0 ? 0.0f : OneOf(random, kCaps);
}

kernels::SplitRule Splits(Random& random) {
  return {.min_split_tokens = 1 + random.Below(40),
          .max_splits = 1 + random.Below(random.Below(2) == 0 ? 8 : 40),
          .split_multiple = 1 + random.Below(20)};
}

// A length of one token, about a block, or any.
uint32_t Length(Random& random, uint32_t block_size, uint32_t most) {
  const uint32_t lengths[] = {1, block_size - 1, block_size, block_size + 1};
  const uint32_t length = random.Below(3) == 0 ? OneOf(random, lengths) : 1 + random.Below(most);
  return length == 0 || length > most ? 1 + random.Below(most) : length;
}

kernels::AttentionRow Row(Random& random, uint32_t block_size,
                          const RandomAttentionLimits& limits) {
  const uint32_t length = Length(random, block_size, limits.max_length);
  const bool decodes = random.Below(3) != 0;
  const uint32_t most = std::min(length, limits.max_query_tokens);
  const uint32_t tokens = decodes || most == 1 ? 1 : 2 + random.Below(most - 1);
  return {length - tokens, tokens};
}

}  // namespace

RandomAttention::RandomAttention(uint64_t number, const RandomAttentionLimits& limits) : shape{} {
  Random random(number);
  const int32_t group = Group(random);
  shape.name = "random";
  shape.num_kv_heads = static_cast<int32_t>(1 + random.Below(group < 5 ? 3 : 2));
  shape.num_heads = group * shape.num_kv_heads;
  shape.head_dim = HeadDim(random);
  shape.block_size = BlockSize(random);
  shape.split = Splits(random);
  shape.window = random.Below(2) == 0 ? 0 : 1 + random.Below(limits.max_length);
  shape.softcap = Softcap(random);
  shape.alibi = random.Below(2) == 0;
  shape.sinks = random.Below(2) == 0;
  shape.prompt_splits = 1 + random.Below(3);
  multiprocessors = 1 + static_cast<int>(random.Below(5));
  uint64_t left = limits.max_products;
  for (uint32_t r = 1 + random.Below(limits.max_rows); r > 0; --r) {
    const kernels::AttentionRow row = Row(random, static_cast<uint32_t>(shape.block_size), limits);
    const uint64_t products = uint64_t{row.num_tokens} * (row.context_before + row.num_tokens) *
                              static_cast<uint64_t>(shape.num_heads * shape.head_dim);
    if (!rows.empty() && products > left) continue;
    left -= std::min(left, products);
    rows.push_back(row);
  }
  shape.rows = rows;
}

std::string RandomAttention::Text() const {
  std::string text = absl::StrCat(
      shape.num_heads, " heads of ", shape.head_dim, " on ", shape.num_kv_heads, ", blocks of ",
      shape.block_size, ", splits {", shape.split.min_split_tokens, ", ", shape.split.max_splits,
      ", ", shape.split.split_multiple, "}, prompt splits ", shape.prompt_splits, ", window ",
      shape.window, ", softcap ", shape.softcap, shape.alibi ? ", ALiBi" : "",
      shape.sinks ? ", sinks" : "", ", ", multiprocessors,
      " multiprocessors, rows {before, tokens}:");
  for (const kernels::AttentionRow& row : rows)
    absl::StrAppend(&text, " {", row.context_before, ", ", row.num_tokens, "}");
  return text;
}

}  // namespace reprise::testing
