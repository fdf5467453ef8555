// SPDX-License-Identifier: Apache-2.0
// AttentionTest: runs both phases of attention over the rows of a case, at random places of a cache
// whose other slots are NaN, and compares with the oracle. Its tests, instantiated in
// attention_test.cc: the cases of the list and what must not change a row's bits (there), random
// cases (attention_random_test.cc), what is refused (attention_refusals_test.cc).
#ifndef REPRISE_TESTS_KERNELS_ATTENTION_FIXTURE_H_
#define REPRISE_TESTS_KERNELS_ATTENTION_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_geometry.h"
#include "kernels/device/traits.h"
#include "kernels/stamp/stamp.h"
#include "tests/testing/cases/attention_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/oracle.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/step_oracle.h"

namespace reprise::testing {

using kernels::AttentionArgs;
using kernels::AttentionCandidate;
using kernels::AttentionCase;
using kernels::AttentionPhase;
using kernels::AttentionRow;
using runtime::DType;

inline const char* NameOf(AttentionCandidate c) {
  return c == AttentionCandidate::kBest       ? "best"
         : c == AttentionCandidate::kPortable ? "portable"
                                              : "naive";
}

// What a row computes with, wherever it lies: its query tokens, and K and V of all its tokens, this
// step's included.
struct RowData {
  uint32_t context_before = 0, num_tokens = 0;
  std::vector<double> q;     // [num_tokens, heads, dim]
  std::vector<double> k, v;  // [length, kv_heads, dim]
  uint32_t length() const { return context_before + num_tokens; }
};

inline std::vector<RowData> MakeRows(const AttentionCase& c, DType dtype, uint64_t number = 0) {
  Random random(number * 65521 + static_cast<uint64_t>(c.head_dim) * 131 +
                static_cast<uint64_t>(c.num_heads));
  const size_t dim = static_cast<size_t>(c.head_dim);
  std::vector<RowData> rows;
  for (const AttentionRow& r : c.rows) {
    RowData row{r.context_before, r.num_tokens, {}, {}, {}};
    const size_t kv = row.length() * static_cast<size_t>(c.num_kv_heads) * dim;
    row.q = random.Tensor(dtype, row.num_tokens * static_cast<size_t>(c.num_heads) * dim, 2.0);
    row.k = random.Tensor(dtype, kv);
    row.v = random.Tensor(dtype, kv);
    rows.push_back(std::move(row));
  }
  return rows;
}

// A step over some rows: where each lies in the cache and in the tables is random, every slot that
// no token of theirs fills is NaN, and so is every token before the windows of all their queries.
struct Batch {
  static constexpr uint32_t kSpareRows = 3;
  static constexpr uint32_t kSpareTokens = 5;
  static constexpr uint32_t kNothing = 0xffffffffu;

  size_t max_rows = 0;
  uint32_t max_blocks_per_row = 0;
  std::vector<uint32_t> block_table;
  std::vector<double> q, cache;
  kernels::KvLayout layout;
  uint32_t q_tokens;                        // of a prefill item
  OraclePlan plan;                          // query_start, context_before, items
  std::vector<uint32_t> num_tokens, slots;  // of the rows

  // prefill_rows: query rows of a prefill item at most, NumPrefillRows.
  Batch(const AttentionCase& c, const std::vector<RowData>& rows, const kernels::KvLayout& kv,
        int32_t prefill_rows, uint64_t seed)
      : q_tokens(kernels::PrefillQueryTokens(c.num_heads / c.num_kv_heads, prefill_rows)) {
    Random random(seed);
    max_rows = rows.size() + kSpareRows;
    const uint32_t block_size = static_cast<uint32_t>(c.block_size);
    uint32_t num_blocks = 1;  // the scratch block
    for (const RowData& row : rows) {
      const uint32_t n = (row.length() + block_size - 1) / block_size;
      max_blocks_per_row = std::max(max_blocks_per_row, n + 1);
      num_blocks += n + 1;
    }
    block_table.assign(max_rows * max_blocks_per_row, kNothing);
    cache.assign(num_blocks * BlockElements(c), NAN);
    layout = kv;
    const std::vector<uint32_t> slot = random.Permutation(static_cast<uint32_t>(max_rows));
    std::vector<uint32_t> block = random.Permutation(num_blocks);
    for (uint32_t e = 0; e < rows.size(); ++e) {
      uint32_t* table = block_table.data() + size_t{slot[e]} * max_blocks_per_row;
      for (uint32_t i = 0; i * block_size < rows[e].length(); ++i) {
        table[i] = block.back();
        block.pop_back();
      }
      const uint32_t first = c.window != 0 && rows[e].context_before >= c.window
                                 ? rows[e].context_before - c.window + 1
                                 : 0;
      for (uint32_t p = first; p < rows[e].length(); ++p)
        StoreToken(c, rows[e], p, table[p / block_size], p % block_size);
      AddToPlan(c, e, slot[e], rows[e]);
    }
    q.resize(q.size() + kSpareTokens * TokenElements(c), NAN);
  }

  static size_t TokenElements(const AttentionCase& c) {
    return static_cast<size_t>(c.num_heads) * static_cast<size_t>(c.head_dim);
  }
  static size_t BlockElements(const AttentionCase& c) {
    return 2 * static_cast<size_t>(c.num_kv_heads) * static_cast<size_t>(c.block_size) *
           static_cast<size_t>(c.head_dim);
  }

 private:
  void StoreToken(const AttentionCase& c, const RowData& row, uint32_t position, uint32_t block,
                  uint32_t offset) {
    for (int h = 0; h < c.num_kv_heads; ++h) {
      for (int d = 0; d < c.head_dim; ++d) {
        const size_t from =
            static_cast<size_t>((int64_t{position} * c.num_kv_heads + h) * c.head_dim + d);
        const auto to = [&](int part) {
          return static_cast<size_t>(layout.Offset(block, part, h, offset, d));
        };
        cache[to(kernels::kKeys)] = row.k[from];
        cache[to(kernels::kValues)] = row.v[from];
      }
    }
  }
  void AddToPlan(const AttentionCase& c, uint32_t e, uint32_t slot, const RowData& row) {
    plan.query_start.push_back(static_cast<uint32_t>(q.size() / TokenElements(c)));
    plan.context_before.push_back(row.context_before);
    num_tokens.push_back(row.num_tokens);
    slots.push_back(slot);
    q.insert(q.end(), row.q.begin(), row.q.end());
    const uint32_t splits = std::min(c.prompt_splits, c.split.max_splits / row.num_tokens);
    if (row.num_tokens > 1 && row.num_tokens <= q_tokens && splits > 1) {
      AddPromptSplits(e, slot, row.context_before, row.num_tokens, c.split, splits, c.window, plan);
    } else {
      AddAttentionItems(e, slot, row.context_before, row.num_tokens, c.split, q_tokens, c.window,
                        plan);
    }
  }
};

// A slope for every head, falling by powers of two as models have them, and one that rises with the
// distance.
inline std::vector<float> SlopesOf(const AttentionCase& c) {
  std::vector<float> slopes;
  for (int h = 0; h < c.num_heads; ++h)
    slopes.push_back(static_cast<float>(std::exp2(-8.0 * (h + 1) / c.num_heads)));
  slopes[static_cast<size_t>(c.head_dim) % slopes.size()] *= -0.25f;
  return slopes;
}

// A sink for every head: near the scores, and so far above and below them that one of the two sums
// vanishes, or would overflow.
inline std::vector<float> SinksOf(const AttentionCase& c) {
  constexpr float kSinks[] = {0.7f, -0.4f, 3.5f, 25.0f, 2.0f, -20.0f, 900.0f, -900.0f, 6.0f};
  std::vector<float> sinks;
  for (int h = 0; h < c.num_heads; ++h)
    sinks.push_back(kSinks[static_cast<size_t>(h + c.head_dim / 16) % std::size(kSinks)]);
  return sinks;
}

// The elements of all tokens of one head among `heads`.
inline std::vector<double> HeadOf(const std::vector<double>& all, size_t heads, size_t head,
                                  size_t dim, size_t num_tokens) {
  std::vector<double> out;
  for (size_t t = 0; t < num_tokens; ++t) {
    const auto begin = all.begin() + static_cast<ptrdiff_t>((t * heads + head) * dim);
    out.insert(out.end(), begin, begin + static_cast<ptrdiff_t>(dim));
  }
  return out;
}

inline Expected OracleRow(const AttentionCase& c, const RowData& row, DType probabilities) {
  const size_t dim = static_cast<size_t>(c.head_dim);
  const size_t heads = static_cast<size_t>(c.num_heads);
  const size_t kv_heads = static_cast<size_t>(c.num_kv_heads);
  const std::vector<float> slopes = SlopesOf(c), sinks = SinksOf(c);
  std::vector<std::vector<double>> k, v;
  for (size_t h = 0; h < kv_heads; ++h) {
    k.push_back(HeadOf(row.k, kv_heads, h, dim, row.length()));
    v.push_back(HeadOf(row.v, kv_heads, h, dim, row.length()));
  }
  Expected expected;
  for (size_t t = 0; t < row.num_tokens; ++t) {
    const size_t length = row.context_before + t + 1;
    const size_t visible = c.window == 0 ? length : std::min<size_t>(length, c.window);
    for (size_t h = 0; h < heads; ++h) {
      const size_t kv = h / (heads / kv_heads);
      OracleScores scores{.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim))),
                          .softcap = c.softcap,
                          .slope = c.alibi ? slopes[h] : 0.0};
      if (c.sinks) scores.sink = sinks[h];
      OracleAttentionHead(std::span(row.q).subspan((t * heads + h) * dim, dim),
                          std::span(k[kv]).first(length * dim).last(visible * dim),
                          std::span(v[kv]).first(length * dim).last(visible * dim), scores,
                          probabilities, expected);
    }
  }
  return expected;
}

class AttentionTest : public KernelTest {
 protected:
  // Both phases of a step over `rows`. Result: one output per row, as bytes.
  std::vector<std::vector<std::byte>> Run(const AttentionCase& c, const std::vector<RowData>& rows,
                                          uint64_t seed, AttentionCandidate candidate) {
    kernels::KvLayout layout{.num_kv_heads = c.num_kv_heads,
                             .head_dim = c.head_dim,
                             .block_size = c.block_size,
                             .dtype = dtype()};
    const uint32_t num_shares = NumDecodeShares(planned_kernels(), c.num_heads, layout);
    layout.swizzled = num_shares != 0;
    Batch batch(c, rows, layout, NumPrefillRows(planned_kernels(), c.num_heads, layout), seed);
    GuardedMemory memory(device(), stream());
    AttentionArgs args = MakeArgs(memory, c, batch);
    if (num_shares != 0 && candidate == AttentionCandidate::kBest && !merges_apart_) {
      LaunchDealt(memory, args, c, num_shares, batch);
    } else {
      Launch(memory, args, batch.plan.decode_items, AttentionPhase::kDecode, candidate);
    }
    Launch(memory, args, batch.plan.prefill_items, AttentionPhase::kPrefill, candidate);
    memory.Check();
    for (const uint32_t arrivals : memory.Read(args.arrivals)) EXPECT_EQ(arrivals, 0u);

    const std::vector<std::byte> out = memory.ReadBytes(args.out);
    const size_t token_bytes = Batch::TokenElements(c) * SizeOf(dtype());
    std::vector<std::vector<std::byte>> result;
    auto at = out.begin();
    for (const RowData& row : rows) {
      const auto end = at + static_cast<ptrdiff_t>(row.num_tokens * token_bytes);
      result.emplace_back(at, end);
      at = end;
    }
    EXPECT_TRUE(std::all_of(at, out.end(), [](std::byte b) { return b == std::byte{0xff}; }))
        << "output beyond the live tokens was written";
    return result;
  }

  // Those that engines run and that may differ: an emulated GPU has the portable kernel alone for
  // f32.
  std::vector<AttentionCandidate> Candidates() const {
    if (is_emulated() && dtype() == DType::kF32) return {AttentionCandidate::kPortable};
    return {AttentionCandidate::kBest, AttentionCandidate::kPortable};
  }

  // From here on splits are merged in a launch of their own.
  void MergeApart() { merges_apart_ = true; }

  // From here on launches plan for a device of so many multiprocessors.
  void LimitMultiprocessors(int count) {
    if (limited_ == nullptr) {
      ASSERT_OK_AND_ASSIGN(limited_, kernels::KernelSet::Load(device(), dtype()));
    }
    limited_->device.num_multiprocessors = count;
  }
  // From here on launches plan for a block with so much shared memory.
  void LimitSharedBytes(size_t bytes) {
    ASSERT_OK_AND_ASSIGN(limited_, kernels::KernelSet::Load(device(), dtype()));
    limited_->device.max_shared_bytes = bytes;
  }
  const kernels::KernelSet& planned_kernels() const {
    return limited_ != nullptr ? *limited_ : kernels();
  }

  // Tensor cores take probabilities in the storage format.
  DType ProbabilityFormat(AttentionCandidate candidate) const {
    const bool gpu = is_emulated() || GetParam().device == runtime::DeviceKind::kCuda;
    return gpu && candidate == AttentionCandidate::kBest ? dtype() : DType::kF32;
  }

  void ExpectOracle(const AttentionCase& c, const std::vector<RowData>& rows,
                    AttentionCandidate candidate) {
    const std::vector<std::vector<std::byte>> got = Run(c, rows, 1, candidate);
    for (size_t r = 0; r < rows.size(); ++r) {
      SCOPED_TRACE(absl::StrCat(c.name, ", ", NameOf(candidate), ", row ", r));
      ExpectNear(Decode(dtype(), got[r]), OracleRow(c, rows[r], ProbabilityFormat(candidate)),
                 dtype());
    }
  }

 private:
  AttentionArgs MakeArgs(GuardedMemory& memory, const AttentionCase& c, const Batch& batch) {
    AttentionArgs args;
    args.q = memory.ConstantTensor(dtype(), batch.q);
    args.kv_cache = memory.ConstantTensor(dtype(), batch.cache);
    args.out = memory.Poisoned(batch.q.size() * SizeOf(dtype()));
    args.query_start = memory.Constant(batch.plan.query_start);
    args.context_before = memory.Constant(batch.plan.context_before);
    args.block_table = memory.Constant(batch.block_table);
    args.max_blocks_per_row = batch.max_blocks_per_row;
    args.max_splits = c.split.max_splits;
    const size_t partials = batch.max_rows * args.max_splits * static_cast<size_t>(c.num_heads);
    args.partial_out = memory.Poisoned<float>(partials * static_cast<size_t>(c.head_dim));
    args.partial_max = memory.Poisoned<float>(partials);
    args.partial_sum = memory.Poisoned<float>(partials);
    args.arrivals = memory.Variable(
        std::vector<uint32_t>(batch.max_rows * static_cast<size_t>(c.num_kv_heads)));
    args.num_heads = c.num_heads;
    args.piece_leaves = memory.Poisoned<uint32_t>(partials / static_cast<size_t>(c.num_heads) *
                                                  static_cast<size_t>(c.num_kv_heads));
    args.kv = batch.layout;
    args.window = c.window;
    args.softcap = c.softcap;
    if (c.alibi) args.alibi_slopes = memory.Constant(SlopesOf(c));
    if (c.sinks) args.sinks = memory.Constant(SinksOf(c));
    args.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim)));
    return args;
  }

  // The decode rows as a deal, of leaves so short that rows of the cases have several.
  void LaunchDealt(GuardedMemory& memory, AttentionArgs args, const AttentionCase& c,
                   uint32_t num_shares, Batch& batch) {
    const kernels::AttentionPlanRule rule{.num_shares = num_shares,
                                          .num_kv_heads = static_cast<uint32_t>(c.num_kv_heads),
                                          .window = c.window};
    kernels::AttentionTree tree;
    tree.rows.leaves[0].split = {kernels::kLeafMultiple, c.split.max_splits,
                                 kernels::kLeafMultiple};
    WalkTree(tree, rule.window, batch.num_tokens, batch.plan);
    AddDecodeDeal(rule, tree, batch.num_tokens, batch.slots, batch.plan);
    args.decode_rows = memory.Constant(batch.plan.decode_rows);
    args.shares = memory.Constant(batch.plan.decode_shares);
    // As in a model, where another kernel comes behind the plan.
    auto* const stamp = memory.Poisoned<uint64_t>(1);
    EXPECT_OK(kernels::Stamp(stream(), kernels(), {.out = stamp}));
    args.reads_ahead = reads_ahead_ = !reads_ahead_;
    EXPECT_OK(Attention(stream(), planned_kernels(), args, AttentionPhase::kDecode));
  }

  void Launch(GuardedMemory& memory, AttentionArgs args,
              std::vector<kernels::AttentionWorkItem> items, AttentionPhase phase,
              AttentionCandidate candidate) {
    args.num_items = memory.Constant(std::vector<uint32_t>{static_cast<uint32_t>(items.size())});
    kernels::AttentionWorkItem impossible;
    impossible.entry = impossible.kv_end = impossible.q_count = Batch::kNothing;
    items.push_back(impossible);  // beyond the live count
    args.items = memory.Constant(items);
    if (merges_apart_) args.arrivals = nullptr;
    EXPECT_OK(Attention(stream(), planned_kernels(), args, phase, candidate));
    if (merges_apart_) {
      EXPECT_OK(AttentionMerge(stream(), planned_kernels(), args, candidate));
    }
  }

  std::unique_ptr<kernels::KernelSet> limited_;
  bool merges_apart_ = false;
  bool reads_ahead_ = false;  // of the last launch of a deal: by turns
};

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_KERNELS_ATTENTION_FIXTURE_H_
