// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/attention_fixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/attention/attention_geometry.h"
#include "kernels/stamp/stamp.h"
#include "tests/kernels/attention_oracle.h"
#include "tests/testing/number.h"
#include "tests/testing/oracle.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/step_oracle.h"

namespace reprise::testing {

using kernels::AttentionArgs;
using kernels::AttentionCandidate;
using kernels::AttentionCase;
using kernels::AttentionPhase;
using runtime::DType;

const char* NameOf(AttentionCandidate c) {
  return c == AttentionCandidate::kBest       ? "best"
         : c == AttentionCandidate::kPortable ? "portable"
                                              : "naive";
}

std::vector<std::vector<std::byte>> AttentionTest::Run(const AttentionCase& c,
                                                       const std::vector<RowData>& rows,
                                                       uint64_t seed,
                                                       AttentionCandidate candidate) {
  kernels::KvLayout layout = LayoutOf(c);
  const uint32_t num_shares = NumDecodeShares(planned_kernels(), c.num_heads, layout);
  layout.swizzled = num_shares != 0;
  AttentionBatch batch(c, rows, layout, NumPrefillRows(planned_kernels(), c.num_heads, layout),
                       seed);
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
  const size_t token_bytes = AttentionBatch::TokenElements(c) * SizeOf(dtype());
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

std::vector<AttentionCandidate> AttentionTest::Candidates() const {
  if (is_emulated() && dtype() == DType::kF32) return {AttentionCandidate::kPortable};
  return {AttentionCandidate::kBest, AttentionCandidate::kPortable};
}

void AttentionTest::ExpectOracles(std::span<const AttentionCase> cases) {
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::vector<RowData> rows = MakeRows(cases[i], dtype(), kv_dtype());
    for (const AttentionCandidate candidate : Candidates())
      if (IsSampled(i, candidate)) ExpectOracle(cases[i], rows, candidate);
  }
}

bool AttentionTest::IsSampled(size_t index, AttentionCandidate candidate) const {
#if defined(__SANITIZE_ADDRESS__)
  constexpr bool kSanitized = true;
#else
  constexpr bool kSanitized = false;
#endif
  if (!is_emulated()) return true;
  if (!kSanitized && dtype() == DType::kBf16 && kv_dtype() == dtype() &&
      candidate == AttentionCandidate::kBest)
    return true;
  return IsOfThisUnit(index);
}

void AttentionTest::LimitMultiprocessors(int count) {
  if (limited_ == nullptr) {
    ASSERT_OK_AND_ASSIGN(limited_, kernels::KernelSet::Load(device(), dtype()));
  }
  limited_->device.num_multiprocessors = count;
}

void AttentionTest::LimitSharedBytes(size_t bytes) {
  ASSERT_OK_AND_ASSIGN(limited_, kernels::KernelSet::Load(device(), dtype()));
  limited_->device.max_shared_bytes = bytes;
}

DType AttentionTest::ProbabilityFormat(AttentionCandidate candidate) const {
  const bool gpu = is_emulated() || GetParam().device == runtime::DeviceKind::kCuda;
  if (!gpu || candidate != AttentionCandidate::kBest || dtype() == DType::kF32) return DType::kF32;
  return runtime::IsFp8(kv_dtype()) ? DType::kF16 : dtype();
}

void AttentionTest::ExpectOracle(const AttentionCase& c, const std::vector<RowData>& rows,
                                 AttentionCandidate candidate) {
  const std::vector<std::vector<std::byte>> got = Run(c, rows, 1, candidate);
  for (size_t r = 0; r < rows.size(); ++r) {
    SCOPED_TRACE(absl::StrCat(c.name, ", ", NameOf(candidate), ", row ", r));
    ExpectNear(Decode(dtype(), got[r]),
               OracleRow(c, rows[r], kv_dtype(), ProbabilityFormat(candidate)), dtype());
  }
}

AttentionArgs AttentionTest::MakeArgs(GuardedMemory& memory, const AttentionCase& c,
                                      const AttentionBatch& batch) {
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
  args.arrivals =
      memory.Variable(std::vector<uint32_t>(batch.max_rows * static_cast<size_t>(c.num_kv_heads)));
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

void AttentionTest::LaunchDealt(GuardedMemory& memory, AttentionArgs args, const AttentionCase& c,
                                uint32_t num_shares, AttentionBatch& batch) {
  const kernels::AttentionPlanRule rule{
      .num_shares = num_shares,
      .num_kv_heads = static_cast<uint32_t>(c.num_kv_heads),
      .tile_members = TileMembers(planned_kernels(), c.num_heads, batch.layout),
      .windows = {c.window}};
  kernels::AttentionTree tree;
  tree.rows.leaves[0].split = {kernels::kLeafMultiple, c.split.max_splits, kernels::kLeafMultiple};
  WalkTree(tree, c.window, batch.num_tokens, batch.plan);
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

void AttentionTest::Launch(GuardedMemory& memory, AttentionArgs args,
                           std::vector<kernels::AttentionWorkItem> items, AttentionPhase phase,
                           AttentionCandidate candidate) {
  args.num_items = memory.Constant(std::vector<uint32_t>{static_cast<uint32_t>(items.size())});
  kernels::AttentionWorkItem impossible;
  impossible.entry = impossible.kv_end = impossible.q_count = AttentionBatch::kNothing;
  items.push_back(impossible);  // beyond the live count
  args.items = memory.Constant(items);
  if (merges_apart_) args.arrivals = nullptr;
  EXPECT_OK(Attention(stream(), planned_kernels(), args, phase, candidate));
  if (merges_apart_) {
    EXPECT_OK(AttentionMerge(stream(), planned_kernels(), args, candidate));
  }
}

}  // namespace reprise::testing
