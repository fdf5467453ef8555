// SPDX-License-Identifier: Apache-2.0
// What only shows at size: a KV pool of more than 2^32 elements, and a row of 128k tokens.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/attention/attention.h"
#include "kernels/fill/fill.h"
#include "kernels/rope_append/rope_append.h"
#include "runtime/memory/buffer.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/oracle.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/step_oracle.h"

namespace reprise::testing {
namespace {

using kernels::AttentionArgs;
using kernels::AttentionCandidate;
using kernels::AttentionPhase;
using kernels::KvLayout;
using runtime::DType;

constexpr AttentionCandidate kCandidates[] = {AttentionCandidate::kBest,
                                              AttentionCandidate::kPortable};

// A step over rows of which entry e is resident row e.
struct LargeStep {
  int32_t num_heads = 0;
  std::vector<uint32_t> context_before, num_tokens;
  std::vector<std::vector<uint32_t>> blocks;  // of each row, in order

  uint32_t num_query_tokens() const {
    return std::accumulate(num_tokens.begin(), num_tokens.end(), 0u);
  }
};

class AttentionLargeTest : public KernelTest {
 protected:
  // As an engine's, for `candidate`.
  KvLayout LayoutFor(AttentionCandidate candidate, int32_t num_heads, KvLayout layout) const {
    layout.swizzled = candidate == AttentionCandidate::kBest &&
                      NumDecodeShares(kernels(), num_heads, layout) != 0;
    return layout;
  }

  // Both phases. q: [query tokens, heads, dim]; returns the same of the output, as bytes.
  std::vector<std::byte> Attend(const LargeStep& step, const KvLayout& layout, const void* pool,
                                const void* q, AttentionCandidate candidate) {
    GuardedMemory memory(device(), stream());
    const size_t rows = step.num_tokens.size();
    const size_t heads = static_cast<size_t>(step.num_heads);
    const size_t dim = static_cast<size_t>(layout.head_dim);
    const kernels::AttentionPlanRule rule{
        .num_shares = layout.swizzled ? NumDecodeShares(kernels(), step.num_heads, layout) : 0,
        .num_kv_heads = static_cast<uint32_t>(layout.num_kv_heads),
        .prefill_q_tokens =
            kernels::PrefillQueryTokens(step.num_heads / layout.num_kv_heads,
                                        NumPrefillRows(kernels(), step.num_heads, layout))};
    AttentionArgs args;
    args.q = q;
    args.kv_cache = pool;
    args.out = memory.Poisoned(step.num_query_tokens() * heads * dim * SizeOf(dtype()));
    args.max_splits = rule.max_splits;
    const size_t partials = rows * args.max_splits * heads;
    args.partial_out = memory.Poisoned<float>(partials * dim);
    args.partial_max = memory.Poisoned<float>(partials);
    args.partial_sum = memory.Poisoned<float>(partials);
    args.piece_leaves = memory.Poisoned<uint32_t>(partials);
    args.arrivals =
        memory.Variable(std::vector<uint32_t>(rows * static_cast<size_t>(layout.num_kv_heads)));
    args.num_heads = step.num_heads;
    args.kv = layout;
    args.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
    const OraclePlan plan = MakePlan(step, rule);
    args.query_start = memory.Constant(plan.query_start);
    args.context_before = memory.Constant(plan.context_before);
    args.block_table = memory.Constant(TableOf(step, &args.max_blocks_per_row));
    AttentionArgs decode = args;
    if (rule.num_shares != 0) {
      decode.decode_rows = memory.Constant(plan.decode_rows);
      decode.shares = memory.Constant(plan.decode_shares);
    }
    Launch(memory, decode, plan.decode_items, AttentionPhase::kDecode, candidate);
    Launch(memory, args, plan.prefill_items, AttentionPhase::kPrefill, candidate);
    memory.Check();
    return memory.ReadBytes(args.out);
  }

 private:
  static OraclePlan MakePlan(const LargeStep& step, const kernels::AttentionPlanRule& rule) {
    OraclePlan plan;
    std::vector<uint32_t> slots(step.num_tokens.size());
    std::iota(slots.begin(), slots.end(), 0u);
    uint32_t start = 0;
    for (uint32_t e = 0; e < slots.size(); ++e) {
      plan.query_start.push_back(start);
      plan.context_before.push_back(step.context_before[e]);
      start += step.num_tokens[e];
      AddAttentionItems(e, e, step.context_before[e], step.num_tokens[e], {}, rule.prefill_q_tokens,
                        0, plan);
    }
    const kernels::AttentionTree tree;
    WalkTree(tree, 0, step.num_tokens, plan);
    if (rule.num_shares != 0) AddDecodeDeal(rule, tree, step.num_tokens, slots, {}, plan);
    return plan;
  }

  static std::vector<uint32_t> TableOf(const LargeStep& step, uint32_t* width) {
    *width = 0;
    for (const auto& blocks : step.blocks)
      *width = std::max(*width, static_cast<uint32_t>(blocks.size()));
    std::vector<uint32_t> table;
    for (const auto& blocks : step.blocks) {
      table.insert(table.end(), blocks.begin(), blocks.end());
      table.resize(table.size() + *width - blocks.size(), ~0u);
    }
    return table;
  }

  void Launch(GuardedMemory& memory, AttentionArgs args,
              std::vector<kernels::AttentionWorkItem> items, AttentionPhase phase,
              AttentionCandidate candidate) {
    args.num_items = memory.Constant(std::vector<uint32_t>{static_cast<uint32_t>(items.size())});
    items.emplace_back();  // never empty
    args.items = memory.Constant(items);
    EXPECT_OK(Attention(stream(), kernels(), args, phase, candidate));
  }
};
INSTANTIATE_TEST_SUITE_P(
    EveryDevice, AttentionLargeTest,
    ::testing::Values(KernelTestParam{runtime::DeviceKind::kHost, DType::kBf16},
                      KernelTestParam{runtime::DeviceKind::kCuda, DType::kBf16}),
    NameOfParam);

// The K and V of a step's rows: a token's block and place in it, in the order in which they are
// appended: what lies before the step row by row, then the query tokens.
struct AppendedTokens {
  std::vector<uint32_t> block, offset;

  AppendedTokens(const LargeStep& step, uint32_t block_size) {
    for (const bool queries : {false, true}) {
      for (size_t e = 0; e < step.blocks.size(); ++e) {
        const uint32_t before = step.context_before[e];
        const uint32_t begin = queries ? before : 0;
        const uint32_t end = queries ? before + step.num_tokens[e] : before;
        for (uint32_t p = begin; p < end; ++p) {
          block.push_back(step.blocks[e][p / block_size]);
          offset.push_back(p % block_size);
        }
      }
    }
  }
};

class LargePoolTest : public AttentionLargeTest {
 protected:
  static constexpr KvLayout kLayout = {
      .num_kv_heads = 2, .head_dim = 128, .block_size = 16, .dtype = DType::kBf16};
  static constexpr int32_t kHeads = 4;
  static constexpr uint32_t kPages = 64;  // of the rows

  // The output of a step over rows whose KV rope_append wrote at these pages of a pool.
  std::vector<std::byte> WriteAndAttend(const std::vector<uint32_t>& pages, void* pool,
                                        AttentionCandidate candidate) {
    LargeStep step{
        .num_heads = kHeads,
        .context_before = {700, 150},
        .num_tokens = {1, 20},
        .blocks = {{pages.begin(), pages.begin() + 44}, {pages.begin() + 44, pages.end()}}};
    const KvLayout layout = LayoutFor(candidate, kHeads, kLayout);
    const AppendedTokens tokens(step, static_cast<uint32_t>(kLayout.block_size));
    const size_t n = tokens.block.size(), dim = static_cast<size_t>(kLayout.head_dim);
    GuardedMemory memory(device(), stream());
    Random random(1);
    kernels::RopeAppendArgs args;
    args.qkv = memory.ConstantTensor(
        dtype(),
        random.Tensor(dtype(), n * static_cast<size_t>(kHeads + 2 * kLayout.num_kv_heads) * dim));
    const size_t q_bytes = n * static_cast<size_t>(kHeads) * dim * SizeOf(dtype());
    args.q_out = memory.Poisoned(q_bytes);
    args.kv_cache = pool;
    std::vector<float> rope(n * dim);
    for (size_t i = 0; i < rope.size(); i += 2) rope[i] = 1.0f;  // no rotation
    args.rope = memory.Constant(rope);
    args.token_block = memory.Constant(tokens.block);
    args.token_offset = memory.Constant(tokens.offset);
    args.num_tokens = memory.Constant(std::vector<uint32_t>{static_cast<uint32_t>(n)});
    args.num_heads = kHeads;
    args.kv = layout;
    EXPECT_OK(RopeAppend(stream(), kernels(), args, static_cast<uint32_t>(n)));
    const auto* q =
        static_cast<const std::byte*>(args.q_out) + q_bytes - q_bytes / n * step.num_query_tokens();
    return Attend(step, layout, pool, q, candidate);
  }
};
INSTANTIATE_TEST_SUITE_P(
    EveryDevice, LargePoolTest,
    ::testing::Values(KernelTestParam{runtime::DeviceKind::kHost, DType::kBf16},
                      KernelTestParam{runtime::DeviceKind::kCuda, DType::kBf16}),
    NameOfParam);

// Pages far apart, below and beyond the element that 32 bits can count, hold the same as pages side
// by side. The host gives memory to the pages that are touched alone.
TEST_P(LargePoolTest, PagesBeyond2To32ElementsAreLikeAllOthers) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer takes memory for every byte of a pool";
#endif
  const uint64_t beyond = (uint64_t{1} << 32) / static_cast<uint64_t>(kLayout.BlockElements());
  const uint64_t num_pages = beyond + 3 * kPages;
  const uint64_t page_bytes = static_cast<uint64_t>(kLayout.BlockElements()) * SizeOf(dtype());
  ASSERT_OK_AND_ASSIGN(const size_t free_bytes, device().FreeBytes());
  if (free_bytes < num_pages * page_bytes + (size_t{1} << 30))
    GTEST_SKIP() << "needs " << num_pages * page_bytes << " bytes and one GiB, free are "
                 << free_bytes;
  ASSERT_OK_AND_ASSIGN(const auto large,
                       runtime::DeviceBuffer::Create(device(), num_pages * page_bytes));
  ASSERT_OK_AND_ASSIGN(const auto small,
                       runtime::DeviceBuffer::Create(device(), (kPages + 1) * page_bytes));
  std::vector<uint32_t> near(kPages), far(kPages);
  std::iota(near.begin(), near.end(), 1u);
  for (uint32_t i = 0; i < kPages; ++i)
    far[i] = i % 3 == 0 ? 5 + i : static_cast<uint32_t>(beyond) + 3 * i;
  ASSERT_GT(kLayout.HeadOffset(far[1], kernels::kKeys, 0), int64_t{1} << 32);
  for (const AttentionCandidate candidate : kCandidates)
    EXPECT_EQ(WriteAndAttend(near, small.data(), candidate),
              WriteAndAttend(far, large.data(), candidate));
}

// One row of 131,072 tokens beside one of 100.
TEST_P(AttentionLargeTest, ARowOf128kTokensMatchesTheOracle) {
  constexpr uint32_t kTokens = 128 << 10;
  const KvLayout plain = {
      .num_kv_heads = 1, .head_dim = 64, .block_size = 16, .dtype = DType::kBf16};
  const uint32_t pages = kTokens / 16 + 7;
  ASSERT_OK_AND_ASSIGN(
      const auto pool,
      runtime::DeviceBuffer::Create(
          device(), pages * static_cast<uint64_t>(plain.BlockElements()) * SizeOf(dtype())));
  ASSERT_OK(RandomFill(
      stream(), kernels(),
      {.out = pool.data(), .dtype = dtype(), .count = pages * plain.BlockElements(), .seed = 3}));
  std::vector<std::byte> bytes(pool.bytes());
  ASSERT_OK(stream().CopyToHost(bytes.data(), pool.data(), bytes.size()));
  ASSERT_OK(stream().Synchronize());
  const std::vector<double> cache = Decode(dtype(), bytes);
  Random random(4);
  const std::vector<uint32_t> page = random.Permutation(pages);
  const LargeStep step{.num_heads = 4,
                       .context_before = {kTokens - 1, 99},
                       .num_tokens = {1, 1},
                       .blocks = {{page.begin(), page.end() - 7}, {page.end() - 7, page.end()}}};
  const std::vector<double> q = random.Tensor(dtype(), 2 * 4 * 64, 2.0);
  GuardedMemory memory(device(), stream());
  const void* const q_on_device = memory.ConstantTensor(dtype(), q);
  for (const AttentionCandidate candidate : kCandidates) {
    const KvLayout layout = LayoutFor(candidate, step.num_heads, plain);
    const bool rounds =
        GetParam().device == runtime::DeviceKind::kCuda && candidate == AttentionCandidate::kBest;
    Expected expected;
    for (size_t e = 0; e < 2; ++e) {
      std::vector<double> k, v;
      for (uint32_t p = 0; p <= step.context_before[e]; ++p) {
        for (int d = 0; d < 64; ++d) {
          const auto at = [&](int part) {
            return static_cast<size_t>(layout.Offset(step.blocks[e][p / 16], part, 0, p % 16, d));
          };
          k.push_back(cache[at(kernels::kKeys)]);
          v.push_back(cache[at(kernels::kValues)]);
        }
      }
      for (size_t h = 0; h < 4; ++h)
        OracleAttentionHead(std::span(q).subspan((e * 4 + h) * 64, 64), k, v, {.scale = 0.125},
                            rounds ? dtype() : DType::kF32, expected);
    }
    const auto got = Attend(step, layout, pool.data(), q_on_device, candidate);
    ExpectNear(Decode(dtype(), got), expected, dtype());
  }
}

}  // namespace
}  // namespace reprise::testing
