// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope_append/rope_append.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/cases/rope_append_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/oracle.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::testing {
namespace {

using kernels::RopeAppendArgs;
using kernels::RopeAppendCase;
using runtime::DType;

constexpr double kNormEps = 1e-6;

// Random qkv and angles, and a distinct place in the cache for every token.
struct Input {
  size_t dim, heads, kv_heads, block_size, tokens, num_blocks;
  std::vector<double> qkv, rope;       // rope: of all tables
  std::vector<double> q_norm, k_norm;  // empty: heads are not normed
  bool whole;                          // norms of all heads together
  double norm_offset;
  size_t tables, table;
  std::vector<uint32_t> block, offset;

  Input(const RopeAppendCase& c, DType dtype)
      : dim(static_cast<size_t>(c.head_dim)),
        heads(static_cast<size_t>(c.num_heads)),
        kv_heads(static_cast<size_t>(c.num_kv_heads)),
        block_size(static_cast<size_t>(c.block_size)),
        tokens(c.tokens),
        num_blocks((2 * c.max_tokens + block_size - 1) / block_size + 1),
        whole(c.whole),
        norm_offset(c.norm_offset),
        tables(static_cast<size_t>(c.rope_tables)),
        table(static_cast<size_t>(c.rope_table)) {
    Random random(dim * 17 + tokens);
    qkv = random.Tensor(dtype, tokens * (heads + 2 * kv_heads) * dim);
    for (size_t i = 0; i < tokens * tables * dim / 2; ++i) {
      const double angle = 6.3 * random.Uniform();
      rope.push_back(RoundTo(DType::kF32, std::cos(angle)));
      rope.push_back(RoundTo(DType::kF32, std::sin(angle)));
    }
    if (c.norm) {
      q_norm = random.Tensor(dtype, whole ? heads * dim : dim);
      k_norm = random.Tensor(dtype, whole ? kv_heads * dim : dim);
    }
    const std::vector<uint32_t> place =
        random.Permutation(static_cast<uint32_t>(num_blocks * block_size));
    for (size_t t = 0; t < tokens; ++t) {
      block.push_back(place[t] / static_cast<uint32_t>(block_size));
      offset.push_back(place[t] % static_cast<uint32_t>(block_size));
    }
  }

  // Head `index` of token t: q heads, then k heads, then v heads.
  std::span<const double> Head(size_t t, size_t index) const {
    return std::span(qkv).subspan((t * (heads + 2 * kv_heads) + index) * dim, dim);
  }
  // Of a q or k head, normed first where heads are.
  Expected Rotated(size_t t, size_t index) const {
    const std::span<const double> cos_sin =
        std::span(rope).subspan((t * tables + table) * dim, dim);
    if (q_norm.empty()) return OracleRope(Head(t, index), cos_sin);
    std::vector<double> weight = index < heads ? q_norm : k_norm;
    for (double& w : weight) w += norm_offset;
    if (!whole) return OracleRope(OracleRmsNorm(Head(t, index), weight, kNormEps), cos_sin);
    const size_t first = index < heads ? 0 : heads;
    const std::span<const double> all =
        std::span(qkv).subspan((t * (heads + 2 * kv_heads) + first) * dim, weight.size());
    const Expected normed = OracleRmsNorm(all, weight, kNormEps);
    Expected head;
    for (size_t d = 0; d < dim; ++d)
      head.Add(normed.value[(index - first) * dim + d], normed.slack[(index - first) * dim + d]);
    return OracleRope(head, cos_sin);
  }
  // First element of a token's head in the cache: [num_blocks, 2, kv_heads, block_size, dim].
  size_t CacheAt(size_t t, size_t k_or_v, size_t head) const {
    return (((block[t] * 2 + k_or_v) * kv_heads + head) * block_size + offset[t]) * dim;
  }
};

using RopeAppendTest = KernelTest;
REPRISE_FOR_EVERY_DEVICE_DTYPE_AND_KV(RopeAppendTest);

// What a stored element of K or V is worth, by KV head; empty: 1.
struct Scales {
  std::vector<float> k, v;
  static Scales Of(size_t kv_heads, DType kv_dtype) {
    Scales scales;
    for (size_t h = 0; runtime::IsFp8(kv_dtype) && h < kv_heads; ++h) {
      scales.k.push_back(0.017f * static_cast<float>(h + 1));
      scales.v.push_back(0.9f / static_cast<float>(h + 1));
    }
    return scales;
  }
};

// Values over a scale, as they are stored: beyond the largest number that number.
Expected Stored(const Expected& x, double scale, DType kv_dtype) {
  Expected out;
  for (size_t i = 0; i < x.value.size(); ++i) {
    const double y = x.value[i] / scale;
    out.Add(std::fabs(y) > RoundTo(kv_dtype, INFINITY) ? RoundTo(kv_dtype, y) : y,
            (x.slack[i] + 0x1p-23 * std::fabs(x.value[i])) / scale);
  }
  return out;
}
Expected Exactly(std::span<const double> x) {
  Expected out;
  for (const double value : x) out.Add(value, 0.0);
  return out;
}

void ExpectQ(const Input& in, const std::vector<double>& q_out, DType dtype) {
  Expected expected;
  for (size_t t = 0; t < in.tokens; ++t) {
    for (size_t h = 0; h < in.heads; ++h) {
      const Expected head = in.Rotated(t, h);
      for (size_t d = 0; d < in.dim; ++d) expected.Add(head.value[d], head.slack[d]);
    }
  }
  ExpectNear(q_out, expected, dtype);
}

// K and V of every token in their places, and nothing anywhere else.
void ExpectCache(const Input& in, std::vector<double> cache, DType kv_dtype, const Scales& scales) {
  for (size_t t = 0; t < in.tokens; ++t) {
    for (size_t h = 0; h < in.kv_heads; ++h) {
      const std::span<double> k = std::span(cache).subspan(in.CacheAt(t, 0, h), in.dim);
      const std::span<double> v = std::span(cache).subspan(in.CacheAt(t, 1, h), in.dim);
      const std::span<const double> v_in = in.Head(t, in.heads + in.kv_heads + h);
      if (scales.k.empty()) {
        ExpectNear(k, in.Rotated(t, in.heads + h), kv_dtype);
        for (size_t d = 0; d < in.dim; ++d)
          EXPECT_EQ(v[d], v_in[d]) << "token " << t << " head " << h << " element " << d;
      } else {
        ExpectNear(k, Stored(in.Rotated(t, in.heads + h), scales.k[h], kv_dtype), kv_dtype);
        ExpectNear(v, Stored(Exactly(v_in), scales.v[h], kv_dtype), kv_dtype);
      }
      for (size_t d = 0; d < in.dim; ++d) k[d] = v[d] = NAN;
    }
  }
  size_t num_touched = 0;
  for (const double x : cache) num_touched += !std::isnan(x);
  EXPECT_EQ(num_touched, 0u) << "cache elements of no token were written";
}

TEST_P(RopeAppendTest, MatchesTheOracleAndTouchesNothingElse) {
  for (const RopeAppendCase& c : kernels::kRopeAppendCases) {
    SCOPED_TRACE(c.name);
    const Input in(c, dtype());
    std::vector<uint32_t> block = in.block, offset = in.offset;
    block.resize(c.max_tokens, 0xffffffffu);
    offset.resize(c.max_tokens, 0xffffffffu);

    GuardedMemory memory(device(), stream());
    RopeAppendArgs args;
    args.qkv = memory.ConstantTensor(dtype(), in.qkv);
    args.q_out = memory.Poisoned(c.max_tokens * in.heads * in.dim * SizeOf(dtype()));
    args.kv_cache = memory.Poisoned(in.num_blocks * 2 * in.kv_heads * in.block_size * in.dim *
                                    SizeOf(kv_dtype()));
    args.rope =
        static_cast<const float*>(memory.ConstantTensor(DType::kF32, in.rope)) + in.table * in.dim;
    args.rope_tables = c.rope_tables;
    args.token_block = memory.Constant(block);
    args.token_offset = memory.Constant(offset);
    args.num_tokens = memory.Constant(std::vector<uint32_t>{c.tokens});
    args.num_heads = c.num_heads;
    args.kv.num_kv_heads = c.num_kv_heads;
    args.kv.head_dim = c.head_dim;
    args.kv.block_size = c.block_size;
    args.kv.dtype = kv_dtype();
    const Scales scales = Scales::Of(in.kv_heads, kv_dtype());
    if (!scales.k.empty()) args.scales = {memory.Constant(scales.k), memory.Constant(scales.v)};
    if (c.norm) {
      args.q_norm = memory.ConstantTensor(dtype(), in.q_norm);
      args.k_norm = memory.ConstantTensor(dtype(), in.k_norm);
      args.norm_eps = static_cast<float>(kNormEps);
      args.norm_offset = c.norm_offset;
      args.whole_norm = c.whole ? 1 : 0;
    }
    ASSERT_OK(RopeAppend(stream(), kernels(), args, c.max_tokens));
    memory.Check();
    ExpectQ(in, memory.ReadTensor(dtype(), args.q_out), dtype());
    ExpectCache(in, memory.ReadTensor(kv_dtype(), args.kv_cache), kv_dtype(), scales);
  }
}

// Both widths of a pack, and heads that are normed and are not: ties go to even, what is too large
// saturates, infinities too, and NaN stays NaN.
TEST_P(RopeAppendTest, EightBitElementsRoundSaturateAndKeepNan) {
  if (!runtime::IsFp8(kv_dtype())) GTEST_SKIP() << "needs KV of 8 bits";
  const double largest = RoundTo(kv_dtype(), INFINITY);
  const double step = 2.0 * HalfUlp(kv_dtype(), 1.0), least = 2.0 * HalfUlp(kv_dtype(), 0.0);
  // Of V, which no rope turns, over a scale of 4; and what is stored.
  const std::vector<std::pair<double, double>> values = {
      {0.0, 0.0},
      {1.0 + 0.5 * step, 1.0},                     // a tie, down to even
      {1.0 + 1.5 * step, 1.0 + 2.0 * step},        // up
      {-(1.0 + 1.5 * step), -(1.0 + 2.0 * step)},  //
      {1.0 + 0.75 * step, 1.0 + step},             //
      {0.5 * least, 0.0},                          // ties among subnormal numbers
      {1.5 * least, 2.0 * least},                  //
      {-0.75 * least, -least},                     //
      {largest, largest},
      {1.05 * largest, largest},
      {-2.0 * largest, -largest},
      {16000.0, RoundTo(kv_dtype(), 16000.0)},  // finite in f16, times 4 too
      {INFINITY, largest},
      {-INFINITY, -largest},
      {NAN, NAN},
      {3.0, 3.0}};
  for (const size_t dim : {size_t{16}, size_t{2}}) {
    SCOPED_TRACE(dim);
    const size_t tokens = values.size() / dim;
    std::vector<double> qkv(tokens * 3 * dim, 1.0);
    for (size_t i = 0; i < values.size(); ++i)
      qkv[i / dim * 3 * dim + 2 * dim + i % dim] = RoundTo(dtype(), 4.0 * values[i].first);
    GuardedMemory memory(device(), stream());
    RopeAppendArgs args;
    std::vector<uint32_t> zeros(tokens, 0), offset(tokens);
    std::iota(offset.begin(), offset.end(), 0u);
    args.qkv = memory.ConstantTensor(dtype(), qkv);
    args.q_out = memory.Poisoned(tokens * dim * SizeOf(dtype()));
    args.kv_cache = memory.Poisoned(2 * tokens * dim);
    args.rope = memory.Constant(std::vector<float>(tokens * dim, 0.5f));
    args.token_block = memory.Constant(zeros);
    args.token_offset = memory.Constant(offset);
    args.num_tokens = memory.Constant(std::vector<uint32_t>{static_cast<uint32_t>(tokens)});
    args.num_heads = 1;
    args.kv = {1, static_cast<int32_t>(dim), static_cast<int32_t>(tokens), kv_dtype()};
    args.scales.v = memory.Constant(std::vector<float>{4.0f});
    ASSERT_OK(RopeAppend(stream(), kernels(), args, static_cast<uint32_t>(tokens)));
    memory.Check();
    const std::vector<double> cache = memory.ReadTensor(kv_dtype(), args.kv_cache);
    for (size_t i = 0; i < values.size(); ++i) {
      const double x = RoundTo(dtype(), 4.0 * values[i].first) / 4.0;
      // Some compute dtypes do not hold a tie.
      const double want = x == values[i].first ? values[i].second : RoundTo(kv_dtype(), x);
      const double got = cache[values.size() + i];
      EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : got == want)
          << "element " << i << ": got " << got << ", want " << want;
      EXPECT_EQ(std::signbit(got), !std::isnan(want) && std::signbit(want)) << i;
    }
    // K: rotated by equal cosine and sine, (0.5 - 0.5, 0.5 + 0.5), and without a scale.
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(cache[i], i % dim < dim / 2 ? 0.0 : 1.0) << i;
  }
}

TEST_P(RopeAppendTest, RefusesImpossibleShapes) {
  RopeAppendArgs good;
  good.num_heads = good.kv.num_kv_heads = good.kv.block_size = 1;
  good.kv.head_dim = 8;
  good.kv.dtype = kv_dtype();
  EXPECT_THAT(RopeAppend(stream(), kernels(), good, 0), StatusIs(kInvalid, "max_tokens is 0"));
  RopeAppendArgs odd = good;
  odd.kv.head_dim = 7;
  EXPECT_THAT(RopeAppend(stream(), kernels(), odd, 1), StatusIs(kInvalid, "head_dim is 7"));
  RopeAppendArgs no_block = good;
  no_block.kv.block_size = 0;
  EXPECT_THAT(RopeAppend(stream(), kernels(), no_block, 1), StatusIs(kInvalid, "block_size is 0"));
  RopeAppendArgs no_table = good;
  no_table.rope_tables = 0;
  EXPECT_THAT(RopeAppend(stream(), kernels(), no_table, 1), StatusIs(kInvalid, "rope_tables is 0"));
  const float weight[8] = {};
  RopeAppendArgs one_norm = good;
  one_norm.k_norm = weight;
  EXPECT_THAT(RopeAppend(stream(), kernels(), one_norm, 1),
              StatusIs(kInvalid, "got k_norm alone; allowed: q_norm and k_norm"));
  RopeAppendArgs other_kv = good;
  other_kv.kv.dtype = dtype() == DType::kF32 ? DType::kBf16 : DType::kF32;
  EXPECT_THAT(RopeAppend(stream(), kernels(), other_kv, 1),
              StatusIs(absl::StatusCode::kUnimplemented,
                       "allowed: " + std::string(runtime::NameOf(dtype())) + ", fp8"));
  RopeAppendArgs scaled = good;
  scaled.kv.dtype = dtype();
  scaled.scales.k = weight;
  EXPECT_THAT(RopeAppend(stream(), kernels(), scaled, 1),
              StatusIs(kInvalid, "rope_append: got scales for KV of " +
                                     std::string(runtime::NameOf(dtype()))));
}

}  // namespace
}  // namespace reprise::testing
