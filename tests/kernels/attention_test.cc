// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/attention/attention_geometry.h"
#include "kernels/device/traits.h"
#include "kernels/stamp/stamp.h"
#include "tests/testing/cases/attention_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/oracle.h"
#include "tests/testing/random_attention.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/step_oracle.h"

namespace reprise::testing {
namespace {

using kernels::AttentionArgs;
using kernels::AttentionCandidate;
using kernels::AttentionCase;
using kernels::AttentionPhase;
using kernels::AttentionRow;
using runtime::DType;

const char* NameOf(AttentionCandidate c) {
  return c == AttentionCandidate::kBest       ? "best"
         : c == AttentionCandidate::kPortable ? "portable"
                                              : "naive";
}

// What a row computes with, wherever it lies: its query tokens, and K and V of all its tokens, this
// step's included, as they are stored.
struct RowData {
  uint32_t context_before = 0, num_tokens = 0;
  std::vector<double> q;                  // [num_tokens, heads, dim]
  std::vector<double> k, v;               // [length, kv_heads, dim]
  uint32_t group = 0, shared_tokens = 0;  // see AttentionRow
  uint32_t length() const { return context_before + num_tokens; }
};

std::vector<RowData> MakeRows(const AttentionCase& c, DType dtype, DType kv_dtype,
                              uint64_t number = 0) {
  Random random(number * 65521 + static_cast<uint64_t>(c.head_dim) * 131 +
                static_cast<uint64_t>(c.num_heads));
  const size_t dim = static_cast<size_t>(c.head_dim);
  std::vector<RowData> rows;
  for (const AttentionRow& r : c.rows) {
    RowData row{r.context_before, r.num_tokens, {}, {}, {}, r.group, r.shared_tokens};
    const size_t kv = row.length() * static_cast<size_t>(c.num_kv_heads) * dim;
    row.q = random.Tensor(dtype, row.num_tokens * static_cast<size_t>(c.num_heads) * dim, 2.0);
    row.k = random.Tensor(kv_dtype, kv);
    row.v = random.Tensor(kv_dtype, kv);
    const auto first = std::find_if(rows.begin(), rows.end(), [&](const RowData& other) {
      return r.group != 0 && other.group == r.group;
    });
    if (first != rows.end()) {
      const auto shared = static_cast<ptrdiff_t>(kv / row.length() * r.shared_tokens);
      std::copy_n(first->k.begin(), shared, row.k.begin());
      std::copy_n(first->v.begin(), shared, row.v.begin());
    }
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
  std::vector<kernels::PrefixMember> members;

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
      const uint32_t first_of_group = FirstOfGroup(rows, e);
      std::copy_n(block_table.data() + size_t{slot[first_of_group]} * max_blocks_per_row,
                  rows[e].shared_tokens / block_size, table);
      for (uint32_t i = first_of_group == e ? 0 : rows[e].shared_tokens / block_size;
           i * block_size < rows[e].length(); ++i) {
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
    ListMembers(rows);
  }

  static size_t TokenElements(const AttentionCase& c) {
    return static_cast<size_t>(c.num_heads) * static_cast<size_t>(c.head_dim);
  }
  static size_t BlockElements(const AttentionCase& c) {
    return 2 * static_cast<size_t>(c.num_kv_heads) * static_cast<size_t>(c.block_size) *
           static_cast<size_t>(c.head_dim);
  }

 private:
  // The row itself where it is of no group.
  static uint32_t FirstOfGroup(const std::vector<RowData>& rows, uint32_t e) {
    uint32_t first = 0;
    while (first < e && (rows[e].group == 0 || rows[first].group != rows[e].group)) ++first;
    return first;
  }
  void ListMembers(const std::vector<RowData>& rows) {
    for (uint32_t first = 0; first < rows.size(); ++first) {
      if (rows[first].group == 0 || FirstOfGroup(rows, first) != first) continue;
      const size_t begin = members.size();
      for (uint32_t e = first; e < rows.size(); ++e) {
        if (rows[e].group == rows[first].group)
          members.push_back({.entry = e,
                             .tokens = rows[e].shared_tokens,
                             .index = static_cast<uint32_t>(members.size() - begin)});
      }
      for (size_t m = begin; m < members.size(); ++m)
        members[m].count = static_cast<uint32_t>(members.size() - begin);
    }
  }
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
std::vector<float> SlopesOf(const AttentionCase& c) {
  std::vector<float> slopes;
  for (int h = 0; h < c.num_heads; ++h)
    slopes.push_back(static_cast<float>(std::exp2(-8.0 * (h + 1) / c.num_heads)));
  slopes[static_cast<size_t>(c.head_dim) % slopes.size()] *= -0.25f;
  return slopes;
}

// A sink for every head: near the scores, and so far above and below them that one of the two sums
// vanishes, or would overflow.
std::vector<float> SinksOf(const AttentionCase& c) {
  constexpr float kSinks[] = {0.7f, -0.4f, 3.5f, 25.0f, 2.0f, -20.0f, 900.0f, -900.0f, 6.0f};
  std::vector<float> sinks;
  for (int h = 0; h < c.num_heads; ++h)
    sinks.push_back(kSinks[static_cast<size_t>(h + c.head_dim / 16) % std::size(kSinks)]);
  return sinks;
}

// What a stored element of K or V is worth, by KV head: all different, far from 1 and from each
// other. Of other caches than those of 8 bits: 1.
std::vector<float> ScalesOf(const AttentionCase& c, DType kv_dtype, int part) {
  constexpr float kScales[] = {0.83f, 0.061f, 1.37f, 0.0029f, 1.0f, 2.6f};
  std::vector<float> scales(static_cast<size_t>(c.num_kv_heads), 1.0f);
  if (!runtime::IsFp8(kv_dtype)) return scales;
  for (size_t h = 0; h < scales.size(); ++h)
    scales[h] = kScales[(h + static_cast<size_t>(c.head_dim + 3 * part)) % std::size(kScales)];
  return scales;
}

std::vector<double> Times(std::vector<double> x, double factor) {
  for (double& value : x) value *= factor;
  return x;
}

// The elements of all tokens of one head among `heads`.
std::vector<double> HeadOf(const std::vector<double>& all, size_t heads, size_t head, size_t dim,
                           size_t num_tokens) {
  std::vector<double> out;
  for (size_t t = 0; t < num_tokens; ++t) {
    const auto begin = all.begin() + static_cast<ptrdiff_t>((t * heads + head) * dim);
    out.insert(out.end(), begin, begin + static_cast<ptrdiff_t>(dim));
  }
  return out;
}

Expected OracleRow(const AttentionCase& c, const RowData& row, DType kv_dtype,
                   DType probabilities) {
  const size_t dim = static_cast<size_t>(c.head_dim);
  const size_t heads = static_cast<size_t>(c.num_heads);
  const size_t kv_heads = static_cast<size_t>(c.num_kv_heads);
  const std::vector<float> slopes = SlopesOf(c), sinks = SinksOf(c);
  const std::vector<float> k_scales = ScalesOf(c, kv_dtype, kernels::kKeys);
  const std::vector<float> v_scales = ScalesOf(c, kv_dtype, kernels::kValues);
  std::vector<std::vector<double>> k, v;
  for (size_t h = 0; h < kv_heads; ++h) {
    k.push_back(Times(HeadOf(row.k, kv_heads, h, dim, row.length()), k_scales[h]));
    v.push_back(Times(HeadOf(row.v, kv_heads, h, dim, row.length()), v_scales[h]));
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
    kernels::KvLayout layout = LayoutOf(c);
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

  kernels::KvLayout LayoutOf(const AttentionCase& c) const {
    return {.num_kv_heads = c.num_kv_heads,
            .head_dim = c.head_dim,
            .block_size = c.block_size,
            .dtype = kv_dtype()};
  }

  // Those that engines run and that may differ: an emulated GPU has the portable kernel alone for
  // f32.
  std::vector<AttentionCandidate> Candidates() const {
    if (is_emulated() && dtype() == DType::kF32) return {AttentionCandidate::kPortable};
    return {AttentionCandidate::kBest, AttentionCandidate::kPortable};
  }

  // From here on splits are merged in a launch of their own.
  void MergeApart() { merges_apart_ = true; }

  // Of the emulated combinations with KV of 8 bits those that differ from others in nothing but the
  // type of queries, or run the portable kernel: emulation is slow.
  bool IsLesserFp8() const {
    return is_emulated() && kv_dtype() != dtype() &&
           (dtype() != DType::kBf16 || kv_dtype() != DType::kE4m3);
  }
  static constexpr char kLesserFp8[] = "other combinations cover what differs";

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

  // Tensor cores take probabilities in the storage format, and beside V of 8 bits in f16.
  DType ProbabilityFormat(AttentionCandidate candidate) const {
    const bool gpu = is_emulated() || GetParam().device == runtime::DeviceKind::kCuda;
    if (!gpu || candidate != AttentionCandidate::kBest || dtype() == DType::kF32)
      return DType::kF32;
    return runtime::IsFp8(kv_dtype()) ? DType::kF16 : dtype();
  }

  void ExpectOracle(const AttentionCase& c, const std::vector<RowData>& rows,
                    AttentionCandidate candidate) {
    const std::vector<std::vector<std::byte>> got = Run(c, rows, 1, candidate);
    for (size_t r = 0; r < rows.size(); ++r) {
      SCOPED_TRACE(absl::StrCat(c.name, ", ", NameOf(candidate), ", row ", r));
      ExpectNear(Decode(dtype(), got[r]),
                 OracleRow(c, rows[r], kv_dtype(), ProbabilityFormat(candidate)), dtype());
    }
  }

 private:
  AttentionArgs MakeArgs(GuardedMemory& memory, const AttentionCase& c, const Batch& batch) {
    AttentionArgs args;
    args.q = memory.ConstantTensor(dtype(), batch.q);
    args.kv_cache = memory.ConstantTensor(kv_dtype(), batch.cache);
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
    if (runtime::IsFp8(kv_dtype()))
      args.scales = {memory.Constant(ScalesOf(c, kv_dtype(), kernels::kKeys)),
                     memory.Constant(ScalesOf(c, kv_dtype(), kernels::kValues))};
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
    const kernels::AttentionPlanRule rule{
        .num_shares = num_shares,
        .num_kv_heads = static_cast<uint32_t>(c.num_kv_heads),
        .tile_members = TileMembers(planned_kernels(), c.num_heads, batch.layout),
        .window = c.window};
    kernels::AttentionTree tree;
    tree.rows.leaves[0].split = {kernels::kLeafMultiple, c.split.max_splits,
                                 kernels::kLeafMultiple};
    WalkTree(tree, rule.window, batch.num_tokens, batch.plan);
    AddDecodeDeal(rule, tree, batch.num_tokens, batch.slots, batch.members, batch.plan);
    args.decode_rows = memory.Constant(batch.plan.decode_rows);
    if (!batch.members.empty()) args.prefix_members = memory.Constant(batch.plan.prefix_members);
    for (const kernels::DecodeRow& row : batch.plan.decode_rows) num_tiles_ += row.is_tile();
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

 protected:
  size_t num_tiles_ = 0;  // of all launches
};
REPRISE_FOR_EVERY_DEVICE_DTYPE_AND_KV(AttentionTest);

TEST_P(AttentionTest, MatchesTheOracleAndReadsNoSlotBeyondARowsLength) {
  if (IsLesserFp8()) GTEST_SKIP() << kLesserFp8;
  for (const AttentionCase& c : kernels::kAttentionCases) {
    const std::vector<RowData> rows = MakeRows(c, dtype(), kv_dtype());
    for (const AttentionCandidate candidate : Candidates()) ExpectOracle(c, rows, candidate);
  }
}

TEST_P(AttentionTest, CapsSlopesAndSinksMatchTheOracle) {
  for (const AttentionCase& c : kernels::kAttentionSwitchCases) {
    const std::vector<RowData> rows = MakeRows(c, dtype(), kv_dtype());
    for (const AttentionCandidate candidate : Candidates()) ExpectOracle(c, rows, candidate);
  }
}

// Of all cases those that `names` has or, where that is empty, every one.
std::vector<AttentionCase> CasesOf(const std::set<std::string_view>& names) {
  std::vector<AttentionCase> found;
  for (const std::span<const AttentionCase> cases :
       {std::span<const AttentionCase>(kernels::kAttentionCases),
        std::span<const AttentionCase>(kernels::kAttentionSwitchCases)})
    for (const AttentionCase& c : cases)
      if (names.empty() || names.contains(c.name)) found.push_back(c);
  return found;
}

// Blocks of many threads are slow to emulate, one query row at a time slower still.
TEST_P(AttentionTest, TheNaiveCandidateMatchesTheOracle) {
  if (kv_dtype() != dtype()) GTEST_SKIP() << "the ladder's kernels read KV of the queries' type";
  const std::set<std::string_view> few = {"mha_decode_8", "gqa_decode_odd_dim", "mha_64_sinks"};
  for (const AttentionCase& c : CasesOf(is_emulated() ? few : std::set<std::string_view>()))
    ExpectOracle(c, MakeRows(c, dtype(), kv_dtype()), AttentionCandidate::kNaive);
}

// Of decode rows and of chunks.
TEST_P(AttentionTest, SplitsMergedInALaunchOfTheirOwnMatchTheOracle) {
  if (kv_dtype() != dtype()) GTEST_SKIP() << "the ladder's kernels read KV of the queries' type";
  MergeApart();
  const std::set<std::string_view> few = {"gqa_decode_64", "gqa_long_decode_128", "gqa_verify_64",
                                          "mha_64_sinks"};
  for (const AttentionCase& c : CasesOf(is_emulated() ? few : std::set<std::string_view>())) {
    const std::vector<RowData> rows = MakeRows(c, dtype(), kv_dtype());
    for (const AttentionCandidate candidate : Candidates()) ExpectOracle(c, rows, candidate);
  }
}

// REPRISE_ATTENTION_CASES=<first number>[:<how many>] runs these cases in place of the usual ones:
// a failure names its number, and the test that it is for. No two devices and dtypes draw the same.
TEST_P(AttentionTest, RandomCasesMatchTheOracle) {
  const bool gpu = !is_emulated() && GetParam().device != runtime::DeviceKind::kHost;
  const RandomAttentionLimits limits = gpu ? RandomAttentionLimits{5, 1500, 130, 20'000'000}
                                       : is_emulated() ? RandomAttentionLimits{}
                                                       : RandomAttentionLimits{3, 150, 20, 200'000};
  uint64_t first = 1'000'000 * static_cast<uint64_t>(GetParam().emulated) +
                   100'000 * static_cast<uint64_t>(GetParam().device) +
                   10'000 * static_cast<uint64_t>(dtype()) +
                   2'000 * static_cast<uint64_t>(GetParam().kv.value_or(DType::kF32));
  uint64_t count = gpu ? 1000 : is_emulated() ? 60 : 100;
  if (const char* const asked = std::getenv("REPRISE_ATTENTION_CASES"); asked != nullptr) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(asked, absl::MaxSplits(':', 1));
    count = 1;
    ASSERT_TRUE(absl::SimpleAtoi(parts.first, &first)) << asked;
    ASSERT_TRUE(parts.second.empty() || absl::SimpleAtoi(parts.second, &count)) << asked;
  }
  for (uint64_t number = first; number < first + count && !HasFailure(); ++number) {
    const RandomAttention random(number, limits);
    SCOPED_TRACE(absl::StrCat("REPRISE_ATTENTION_CASES=", number, ": ", random.Text()));
    LimitMultiprocessors(random.multiprocessors);
    const std::vector<RowData> rows = MakeRows(random.shape, dtype(), kv_dtype(), number);
    for (const AttentionCandidate candidate : Candidates())
      ExpectOracle(random.shape, rows, candidate);
  }
}

TEST_P(AttentionTest, ARowsBitsDependNeitherOnItsNeighboursNorOnItsBlocks) {
  if (IsLesserFp8()) GTEST_SKIP() << kLesserFp8;
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  for (const AttentionCase& c : kernels::kAttentionCases) {
    const std::vector<RowData> rows = MakeRows(c, dtype(), kv_dtype());
    for (const AttentionCandidate candidate : Candidates()) {
      const std::vector<std::vector<std::byte>> together = Run(c, rows, 2, candidate);
      // Emulation is slow: every third row there.
      for (size_t r = 0; r < rows.size(); r += is_emulated() ? 3 : 1) {
        SCOPED_TRACE(std::string(c.name) + ", " + NameOf(candidate) + ", row " + std::to_string(r));
        EXPECT_EQ(Run(c, {rows[r]}, 3 + r, candidate)[0], together[r]);
      }
    }
  }
}

// A block may have any part of a row: whole rows, nodes of leaves, the first leaves of one, or one.
TEST_P(AttentionTest, ARowsBitsDoNotDependOnHowItsLeavesAreDealt) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  for (const AttentionCase& c : kernels::kAttentionCases) {
    if (NumDecodeShares(kernels(), c.num_heads, LayoutOf(c)) == 0) continue;
    const std::vector<RowData> rows = MakeRows(c, dtype(), kv_dtype());
    std::vector<std::vector<std::byte>> first;
    for (const int multiprocessors : {1, 2, 3, 5, 29}) {
      SCOPED_TRACE(absl::StrCat(c.name, ", ", multiprocessors, " multiprocessors"));
      LimitMultiprocessors(multiprocessors);
      const auto got = Run(c, rows, 1, AttentionCandidate::kBest);
      if (first.empty()) first = got;
      EXPECT_TRUE(got == first);
    }
  }
}

// Where there is no kernel that reads shared tokens once, rows are attended alone.
TEST_P(AttentionTest, RowsThatShareTheirFirstTokensMatchTheOracle) {
  if (IsLesserFp8()) GTEST_SKIP() << kLesserFp8;
  for (const AttentionCase& c : kernels::kAttentionPrefixCases) {
    const std::vector<RowData> rows = MakeRows(c, dtype(), kv_dtype());
    for (const int multiprocessors : {1, 3}) {
      LimitMultiprocessors(multiprocessors);
      num_tiles_ = 0;
      ExpectOracle(c, rows, AttentionCandidate::kBest);
      const bool dealt = NumDecodeShares(planned_kernels(), c.num_heads, LayoutOf(c)) != 0;
      EXPECT_EQ(num_tiles_ != 0, dealt);
    }
  }
}

// Neither on who shares its first tokens, nor whether anybody does; nor on the blocks that compute.
TEST_P(AttentionTest, ASharingRowsBitsDependOnItsOwnLengthsAlone) {
  if (kv_dtype() != dtype()) GTEST_SKIP() << "KV of 8 bits is not read for several rows at once";
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  for (const AttentionCase& c : kernels::kAttentionPrefixCases) {
    const std::vector<RowData> rows = MakeRows(c, dtype(), kv_dtype());
    LimitMultiprocessors(2);
    const auto together = Run(c, rows, 2, AttentionCandidate::kBest);
    for (const int multiprocessors : {1, 5}) {
      LimitMultiprocessors(multiprocessors);
      EXPECT_TRUE(Run(c, rows, 3, AttentionCandidate::kBest) == together)
          << c.name << ", " << multiprocessors << " multiprocessors";
    }
    for (size_t r = 0; r < rows.size(); r += is_emulated() ? 3 : 1) {
      SCOPED_TRACE(absl::StrCat(c.name, ", row ", r));
      EXPECT_EQ(Run(c, {rows[r]}, 3 + r, AttentionCandidate::kBest)[0], together[r]);
      // Among some of the others, in another place of its group.
      std::vector<RowData> some;
      for (size_t other = 0; other < rows.size(); other += 2)
        if (other != r) some.push_back(rows[other]);
      some.push_back(rows[r]);
      EXPECT_EQ(Run(c, some, 5 + r, AttentionCandidate::kBest).back(), together[r]);
    }
  }
}

// Where there are products of warpgroups, heads of whole panels in a swizzled cache go there.
TEST_P(AttentionTest, PrefillItemsHaveTheRowsOfTheKernelThatRuns) {
  const bool has = kernels().traits().group_products && dtype() != DType::kF32;
  for (const int head_dim : {64, 96, 128, 256}) {
    for (const int block_size : {8, 16, 48}) {
      for (const bool swizzled : {false, true}) {
        const kernels::KvLayout layout{.num_kv_heads = 2,
                                       .head_dim = head_dim,
                                       .block_size = block_size,
                                       .dtype = dtype(),
                                       .swizzled = swizzled};
        const bool fits = has && swizzled && block_size != 8 && head_dim != 96 && head_dim != 256;
        EXPECT_EQ(NumPrefillRows(kernels(), 8, layout),
                  fits ? kernels::kPrefillGroupRows : kernels::kPrefillRows)
            << head_dim << " in blocks of " << block_size;
        EXPECT_EQ(NumPrefillRows(kernels(), 2 * 17, layout), kernels::kPrefillRows);
      }
    }
  }
}

// `count` query tokens of a row, from its `first` on, as a chunk of their own.
RowData ChunkOf(const AttentionCase& c, const RowData& row, uint32_t first, uint32_t count) {
  const size_t token = Batch::TokenElements(c);
  RowData chunk{row.context_before + first, count, {}, {}, {}};
  const auto q = row.q.begin() + static_cast<ptrdiff_t>(first * token);
  chunk.q.assign(q, q + static_cast<ptrdiff_t>(count * token));
  const auto kv = static_cast<ptrdiff_t>(chunk.length() * static_cast<size_t>(c.num_kv_heads) *
                                         static_cast<size_t>(c.head_dim));
  chunk.k.assign(row.k.begin(), row.k.begin() + kv);
  chunk.v.assign(row.v.begin(), row.v.begin() + kv);
  return chunk;
}

// A chunk of one token goes the way of decoding, so that none here is that short; and where the KV
// of short chunks is cut, they are not what the whole is.
TEST_P(AttentionTest, AQuerysBitsDoNotDependOnWhereItsPromptIsCut) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  for (const AttentionCase& c : kernels::kAttentionCases) {
    if (c.prompt_splits > 1) continue;
    for (const RowData& row : MakeRows(c, dtype(), kv_dtype())) {
      if (row.num_tokens < 8 || (is_emulated() && c.window == 0)) continue;
      for (const AttentionCandidate candidate : Candidates()) {
        SCOPED_TRACE(std::string(c.name) + ", " + NameOf(candidate) + ", " +
                     std::to_string(row.num_tokens) + " tokens");
        const std::vector<std::byte> whole = Run(c, {row}, 1, candidate)[0];
        std::vector<RowData> chunks;
        for (uint32_t first = 0; first < row.num_tokens;) {
          uint32_t count = 2 + row.num_tokens / 3;
          if (row.num_tokens - first < count + 2) count = row.num_tokens - first;
          chunks.push_back(ChunkOf(c, row, first, count));
          first += count;
        }
        std::vector<std::byte> in_chunks;
        for (const std::vector<std::byte>& out : Run(c, chunks, 2, candidate))
          in_chunks.insert(in_chunks.end(), out.begin(), out.end());
        EXPECT_TRUE(in_chunks == whole);
      }
    }
  }
}

// A window that no row outgrows leaves every bit as it is without one.
TEST_P(AttentionTest, AWindowAtLeastAsLongAsARowChangesNothing) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  for (const AttentionCase& c : kernels::kAttentionCases) {
    if (c.window != 0) continue;
    const std::vector<RowData> rows = MakeRows(c, dtype(), kv_dtype());
    AttentionCase wide = c;
    for (const RowData& row : rows) wide.window = std::max(wide.window, row.length());
    EXPECT_EQ(Run(wide, rows, 1, AttentionCandidate::kPortable),
              Run(c, rows, 1, AttentionCandidate::kPortable))
        << c.name;
  }
}

// One query row at a time, and three: what a device with little shared memory does.
TEST_P(AttentionTest, PassesChangeNoBits) {
  for (const AttentionCase& c : kernels::kAttentionCases) {
    const std::string_view name = c.name;
    if (is_emulated() && name != "mqa_decode_24_wide_group" && name != "gqa_prefill_odd_dim")
      continue;
    LimitSharedBytes(device().properties().max_shared_bytes);
    const std::vector<RowData> rows = MakeRows(c, dtype(), kv_dtype());
    const auto whole = Run(c, rows, 1, AttentionCandidate::kPortable);
    for (const size_t pass_rows : {1, 3}) {
      LimitSharedBytes(kernels::kPortableStaticBytes +
                       pass_rows * kernels::PortableAttentionRowBytes(c.head_dim));
      EXPECT_EQ(Run(c, rows, 1, AttentionCandidate::kPortable), whole)
          << c.name << ", " << pass_rows;
    }
  }
}

TEST(PortableAttention, PassesOfEveryHeadSizeFitEveryUnit) {
  using runtime::MatrixUnit;
  for (const MatrixUnit unit : {MatrixUnit::kMma, MatrixUnit::kMfma, MatrixUnit::kWmma}) {
    const auto shared = static_cast<size_t>(kernels::TraitsOf(unit).shared_bytes);
    for (int head_dim = 1; head_dim <= 256; ++head_dim) {
      for (const int rows : {1, 7, 64, 100}) {
        const int of_pass = kernels::PortableAttentionPassRows(rows, head_dim, shared);
        ASSERT_GE(of_pass, 1);
        ASSERT_LE(of_pass, rows);
        ASSERT_LE(static_cast<size_t>(of_pass) * kernels::PortableAttentionRowBytes(head_dim) +
                      kernels::kPortableStaticBytes,
                  shared)
            << head_dim;
      }
    }
  }
  // 64 KB hold 55 rows of head size 128 and 29 of 256; passes are filled evenly.
  EXPECT_EQ(kernels::PortableAttentionPassRows(64, 96, 64 << 10), 64);
  EXPECT_EQ(kernels::PortableAttentionPassRows(64, 128, 64 << 10), 32);
  EXPECT_EQ(kernels::PortableAttentionPassRows(64, 256, 64 << 10), 22);
  EXPECT_EQ(kernels::PortableAttentionPassRows(20, 256, 64 << 10), 20);
}

TEST_P(AttentionTest, RefusesDevicesWithoutRoomForARow) {
  AttentionArgs args;
  args.num_heads = args.kv.num_kv_heads = args.kv.block_size = args.max_splits = 1;
  args.kv.head_dim = 64;
  args.kv.dtype = kv_dtype();
  for (const AttentionPhase phase : {AttentionPhase::kDecode, AttentionPhase::kPrefill}) {
    for (const size_t bytes : {0, 1023, 1675}) {
      LimitSharedBytes(bytes);
      EXPECT_THAT(
          Attention(stream(), planned_kernels(), args, phase, AttentionCandidate::kPortable),
          StatusIs(absl::StatusCode::kFailedPrecondition,
                   "one query row of head_dim 64 takes 1676 bytes of shared memory"));
    }
  }
}

TEST_P(AttentionTest, NaiveRefusesDevicesWithoutRoomForARow) {
  AttentionArgs args;
  args.num_heads = args.kv.num_kv_heads = args.kv.block_size = args.max_splits = 1;
  args.kv.head_dim = 64;
  args.kv.dtype = dtype();
  LimitSharedBytes(9471);
  EXPECT_THAT(Attention(stream(), planned_kernels(), args, AttentionPhase::kDecode,
                        AttentionCandidate::kNaive),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "one query row of head_dim 64 takes 9472 bytes of shared memory"));
}

TEST_P(AttentionTest, RefusesToMergeWhatLeavesNoPartialResults) {
  AttentionArgs args;
  args.num_heads = args.kv.num_kv_heads = args.kv.block_size = args.max_splits = 1;
  args.kv.head_dim = 64;
  args.kv.dtype = dtype();
  EXPECT_THAT(AttentionMerge(stream(), kernels(), args, AttentionCandidate::kNaive),
              StatusIs(absl::StatusCode::kFailedPrecondition, "a merge for the naive candidate"));
  const kernels::DecodeShare share{};
  args.shares = &share;
  EXPECT_THAT(AttentionMerge(stream(), kernels(), args),
              StatusIs(absl::StatusCode::kFailedPrecondition, "a merge for decode shares"));
}

TEST_P(AttentionTest, RefusesADealWithoutAKernelForIt) {
  const kernels::DecodeShare share{};
  AttentionArgs args;
  args.num_heads = 9;
  args.max_splits = 1;
  args.shares = &share;
  args.kv = {.num_kv_heads = 1, .head_dim = 128, .block_size = 16, .dtype = kv_dtype()};
  EXPECT_EQ(NumDecodeShares(kernels(), args.num_heads, args.kv), 0u);  // a group of 9
  EXPECT_THAT(Attention(stream(), kernels(), args, AttentionPhase::kDecode),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "decode shares for 9 heads over 1 of dimension 128"));
}

TEST_P(AttentionTest, RefusesImpossibleShapes) {
  AttentionArgs good;
  good.num_heads = 4;
  good.kv.num_kv_heads = 2;
  good.kv.head_dim = 64;
  good.kv.block_size = 16;
  good.kv.dtype = kv_dtype();
  good.max_splits = 1;
  const auto launch = [&](const AttentionArgs& args) {
    return Attention(stream(), kernels(), args, AttentionPhase::kDecode);
  };
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  AttentionArgs args = good;
  args.num_heads = 5;
  EXPECT_THAT(launch(args), StatusIs(kInvalid, "num_heads is 5"));
  args = good;
  args.kv.num_kv_heads = 0;
  EXPECT_THAT(launch(args), StatusIs(kInvalid, "num_kv_heads is 0"));
  args = good;
  args.kv.block_size = 0;
  EXPECT_THAT(launch(args), StatusIs(kInvalid, "block_size is 0"));
  for (const float softcap : {-1.0f, INFINITY, NAN}) {
    args = good;
    args.softcap = softcap;
    EXPECT_THAT(launch(args), StatusIs(kInvalid, absl::StrCat("softcap is ", softcap,
                                                              "; allowed: 0 (none) and")));
  }
  args = good;
  args.kv.head_dim = 264;
  EXPECT_THAT(launch(args), StatusIs(absl::StatusCode::kUnimplemented, "head_dim is 264"));
  for (const DType other : {DType::kF32, DType::kBf16, DType::kF16}) {
    if (other == dtype()) continue;
    args = good;
    args.kv.dtype = other;
    const std::string got(runtime::NameOf(other)), allowed(runtime::NameOf(dtype()));
    EXPECT_THAT(launch(args),
                StatusIs(absl::StatusCode::kUnimplemented,
                         absl::StrCat("attention: KV is ", got, " with activations of ", allowed,
                                      "; allowed: ", allowed, ", fp8")));
  }
  if (runtime::IsFp8(kv_dtype())) return;
  const float scale = 1.0f;
  args = good;
  args.scales.v = &scale;
  EXPECT_THAT(launch(args),
              StatusIs(kInvalid, absl::StrCat("attention: got scales for KV of ",
                                              std::string(runtime::NameOf(dtype())))));
}

}  // namespace
}  // namespace reprise::testing
