// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope_append/rope_append.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tests/testing/cases/rope_append_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/oracle.h"
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
  std::vector<double> qkv, rope;
  std::vector<double> q_norm, k_norm;  // empty: heads are not normed
  std::vector<uint32_t> block, offset;

  Input(const RopeAppendCase& c, DType dtype)
      : dim(static_cast<size_t>(c.head_dim)),
        heads(static_cast<size_t>(c.num_heads)),
        kv_heads(static_cast<size_t>(c.num_kv_heads)),
        block_size(static_cast<size_t>(c.block_size)),
        tokens(c.tokens),
        num_blocks((2 * c.max_tokens + block_size - 1) / block_size + 1) {
    Random random(dim * 17 + tokens);
    qkv = random.Tensor(dtype, tokens * (heads + 2 * kv_heads) * dim);
    for (size_t i = 0; i < tokens * dim / 2; ++i) {
      const double angle = 6.3 * random.Uniform();
      rope.push_back(RoundTo(DType::kF32, std::cos(angle)));
      rope.push_back(RoundTo(DType::kF32, std::sin(angle)));
    }
    if (c.norm) {
      q_norm = random.Tensor(dtype, dim);
      k_norm = random.Tensor(dtype, dim);
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
    const std::span<const double> cos_sin = std::span(rope).subspan(t * dim, dim);
    if (q_norm.empty()) return OracleRope(Head(t, index), cos_sin);
    const std::vector<double>& weight = index < heads ? q_norm : k_norm;
    return OracleRope(OracleRmsNorm(Head(t, index), weight, kNormEps), cos_sin);
  }
  // First element of a token's head in the cache: [num_blocks, 2, kv_heads, block_size, dim].
  size_t CacheAt(size_t t, size_t k_or_v, size_t head) const {
    return (((block[t] * 2 + k_or_v) * kv_heads + head) * block_size + offset[t]) * dim;
  }
};

using RopeAppendTest = KernelTest;
REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(RopeAppendTest);

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
void ExpectCache(const Input& in, std::vector<double> cache, DType dtype) {
  for (size_t t = 0; t < in.tokens; ++t) {
    for (size_t h = 0; h < in.kv_heads; ++h) {
      const std::span<double> k = std::span(cache).subspan(in.CacheAt(t, 0, h), in.dim);
      const std::span<double> v = std::span(cache).subspan(in.CacheAt(t, 1, h), in.dim);
      ExpectNear(k, in.Rotated(t, in.heads + h), dtype);
      const std::span<const double> v_in = in.Head(t, in.heads + in.kv_heads + h);
      for (size_t d = 0; d < in.dim; ++d) {
        EXPECT_EQ(v[d], v_in[d]) << "token " << t << " head " << h << " element " << d;
        k[d] = v[d] = NAN;
      }
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
    args.kv_cache =
        memory.Poisoned(in.num_blocks * 2 * in.kv_heads * in.block_size * in.dim * SizeOf(dtype()));
    args.rope = static_cast<const float*>(memory.ConstantTensor(DType::kF32, in.rope));
    args.token_block = memory.Constant(block);
    args.token_offset = memory.Constant(offset);
    args.num_tokens = memory.Constant(std::vector<uint32_t>{c.tokens});
    args.num_heads = c.num_heads;
    args.kv.num_kv_heads = c.num_kv_heads;
    args.kv.head_dim = c.head_dim;
    args.kv.block_size = c.block_size;
    args.kv.dtype = dtype();
    if (c.norm) {
      args.q_norm = memory.ConstantTensor(dtype(), in.q_norm);
      args.k_norm = memory.ConstantTensor(dtype(), in.k_norm);
      args.norm_eps = static_cast<float>(kNormEps);
    }
    ASSERT_OK(RopeAppend(stream(), kernels(), args, c.max_tokens));
    memory.Check();
    ExpectQ(in, memory.ReadTensor(dtype(), args.q_out), dtype());
    ExpectCache(in, memory.ReadTensor(dtype(), args.kv_cache), dtype());
  }
}

TEST_P(RopeAppendTest, RefusesImpossibleShapes) {
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  RopeAppendArgs good;
  good.num_heads = good.kv.num_kv_heads = good.kv.block_size = 1;
  good.kv.head_dim = 8;
  good.kv.dtype = dtype();
  EXPECT_THAT(RopeAppend(stream(), kernels(), good, 0), StatusIs(kInvalid, "max_tokens is 0"));
  RopeAppendArgs odd = good;
  odd.kv.head_dim = 7;
  EXPECT_THAT(RopeAppend(stream(), kernels(), odd, 1), StatusIs(kInvalid, "head_dim is 7"));
  RopeAppendArgs no_block = good;
  no_block.kv.block_size = 0;
  EXPECT_THAT(RopeAppend(stream(), kernels(), no_block, 1), StatusIs(kInvalid, "block_size is 0"));
  const float weight[8] = {};
  RopeAppendArgs one_norm = good;
  one_norm.k_norm = weight;
  EXPECT_THAT(RopeAppend(stream(), kernels(), one_norm, 1),
              StatusIs(kInvalid, "got k_norm alone; allowed: q_norm and k_norm"));
  RopeAppendArgs other_kv = good;
  other_kv.kv.dtype = dtype() == DType::kF32 ? DType::kBf16 : DType::kF32;
  EXPECT_THAT(RopeAppend(stream(), kernels(), other_kv, 1),
              StatusIs(absl::StatusCode::kUnimplemented,
                       "allowed: " + std::string(runtime::NameOf(dtype()))));
}

}  // namespace
}  // namespace reprise::testing
