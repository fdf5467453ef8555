// SPDX-License-Identifier: Apache-2.0
// The host's native attention in every form that this CPU runs, not only the one that it would
// choose, against a reference in double precision. attention_test.cc has what all candidates must
// do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/attention/attention_args.h"
#include "kernels/attention/attention_geometry.h"
#include "kernels/attention/host_native_targets.h"
#include "tests/testing/cases/attention_cases.h"
#include "tests/testing/guarded_memory.h"
#include "tests/testing/kernel_test.h"
#include "tests/testing/number.h"
#include "tests/testing/oracle.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/step_oracle.h"

namespace reprise::testing {
namespace {

using kernels::AttentionArgs;
using kernels::AttentionCase;
using kernels::AttentionRow;
using kernels::SplitRule;
using kernels::on_host::NativeAttentionTarget;
using runtime::DType;

constexpr SplitRule kSplits = {.min_split_tokens = 64, .max_splits = 8, .split_multiple = 16};

// Lengths around blocks of 16, 32, 48 and 544, and around tiles of 64; splits of several sizes.
constexpr AttentionRow kRows[] = {{0, 1},   {14, 1},  {15, 1}, {16, 1}, {31, 1}, {32, 1},
                                  {46, 1},  {47, 1},  {48, 1}, {63, 1}, {64, 1}, {542, 1},
                                  {543, 1}, {544, 1}, {0, 2},  {62, 3}, {0, 66}, {130, 21}};
constexpr AttentionRow kFewRows[] = {{0, 1}, {63, 1}, {200, 1}, {700, 1}, {0, 5}, {60, 18}};

// Head sizes below a vector, whole vectors and between; groups from one head to more than a pass.
constexpr AttentionCase kCases[] = {
    {"mha_64_blocks_of_16", 2, 2, 64, 16, kSplits, kRows},
    {"gqa_80_blocks_of_1", 6, 2, 80, 1, kSplits, kRows},
    {"gqa_96_blocks_of_32", 10, 2, 96, 32, kSplits, kRows},
    {"gqa_128_blocks_of_48", 8, 2, 128, 48, kSplits, kRows},
    {"mqa_192_blocks_of_544", 7, 1, 192, 544, kSplits, kFewRows},
    {"mqa_256_blocks_of_16", 16, 1, 256, 16, kSplits, kFewRows},
    {"gqa_40_blocks_of_32", 12, 1, 40, 32, kSplits, kRows},
    {"gqa_20_blocks_of_48", 18, 2, 20, 48, kSplits, kRows},
    {"mqa_33_blocks_of_16", 11, 1, 33, 16, kSplits, kRows},
    {"mqa_more_heads_than_a_pass", 71, 1, 64, 16, kSplits, kFewRows},
    {"gqa_window_128", 8, 2, 128, 16, kSplits, kRows, 50},
    {"mha_window_80", 2, 2, 80, 48, kSplits, kRows, 65},
};

struct Features {
  const char* name = "none";
  float softcap = 0.0f;
  bool alibi = false;
  bool has_sinks = false;
  float sink = 0.0f;  // of head 0; others differ a little
};

// Sinks far below and far above all scores too.
constexpr Features kFeatures[] = {{"softcap", 5.0f},
                                  {"wide softcap", 1000.0f},
                                  {"ALiBi", 0.0f, true},
                                  {"sinks", 0.0f, false, true, 1.5f},
                                  {"low sinks", 0.0f, false, true, -500.0f},
                                  {"high sinks", 0.0f, false, true, 12.0f},
                                  {"huge sinks", 0.0f, false, true, 500.0f},
                                  {"all", 3.0f, true, true, -0.5f}};

float SlopeOf(int head) { return std::exp2f(-static_cast<float>(head % 8 + 1)); }
float SinkOf(const Features& f, int head) { return f.sink + 0.25f * static_cast<float>(head % 3); }

// One row of a step: its query tokens, and K and V of all its tokens.
struct RowData {
  uint32_t context_before = 0, num_tokens = 0;
  std::vector<double> q;     // [num_tokens, heads, dim]
  std::vector<double> k, v;  // [length, kv_heads, dim]
  uint32_t length() const { return context_before + num_tokens; }
};

std::vector<RowData> MakeRows(const AttentionCase& c, DType dtype) {
  Random random(static_cast<uint64_t>(c.head_dim) * 31 + static_cast<uint64_t>(c.num_heads));
  std::vector<RowData> rows;
  for (const AttentionRow& r : c.rows) {
    RowData row{r.context_before, r.num_tokens, {}, {}, {}};
    const size_t kv = row.length() * static_cast<size_t>(c.num_kv_heads * c.head_dim);
    row.q = random.Tensor(dtype, row.num_tokens * static_cast<size_t>(c.num_heads * c.head_dim), 2);
    row.k = random.Tensor(dtype, kv);
    row.v = random.Tensor(dtype, kv);
    rows.push_back(std::move(row));
  }
  return rows;
}

float ScaleOf(const AttentionCase& c) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim)));
}

// One query head of a row, over the positions that it sees.
void ExpectHead(const AttentionCase& c, const Features& f, const RowData& row, size_t token,
                int head, Expected& out) {
  constexpr double kEps = 0x1p-24;
  const auto dim = static_cast<size_t>(c.head_dim), kv_heads = static_cast<size_t>(c.num_kv_heads);
  const auto kv_head = static_cast<size_t>(head / (c.num_heads / c.num_kv_heads));
  const double* q =
      row.q.data() + (token * static_cast<size_t>(c.num_heads) + static_cast<size_t>(head)) * dim;
  const size_t position = row.context_before + token;
  const size_t first = c.window != 0 && position >= c.window ? position - c.window + 1 : 0;
  std::vector<double> weight, eps;
  double top = f.has_sinks ? SinkOf(f, head) : -INFINITY;
  for (size_t p = first; p <= position; ++p) {
    const double* k = row.k.data() + (p * kv_heads + kv_head) * dim;
    double s = 0, magnitude = 0;
    for (size_t d = 0; d < dim; ++d) {
      s += ScaleOf(c) * q[d] * k[d];
      magnitude += std::fabs(ScaleOf(c) * q[d] * k[d]);
    }
    if (f.softcap != 0) s = f.softcap * std::tanh(s / f.softcap);
    double terms = std::fabs(s);
    if (f.alibi) {
      const double bias = SlopeOf(head) * (static_cast<double>(p) - static_cast<double>(position));
      s += bias;
      terms += std::fabs(bias);
    }
    weight.push_back(s);
    eps.push_back(2 * kEps * ((static_cast<double>(dim) + 4) * magnitude + 8 * terms));
    top = std::max(top, s);
  }
  double sum = f.has_sinks ? std::exp(SinkOf(f, head) - top) : 0.0;
  for (size_t i = 0; i < weight.size(); ++i) {
    const double x = weight[i] - top;
    eps[i] += 8 * kEps * (1 + std::fabs(x));
    sum += weight[i] = std::exp(x);
  }
  double sum_eps = 4 * kEps * (static_cast<double>(weight.size()) + 64);
  if (f.has_sinks) sum_eps += 8 * kEps * (1 + std::fabs(SinkOf(f, head)));
  for (size_t i = 0; i < weight.size(); ++i) sum_eps += (weight[i] /= sum) * eps[i];
  for (size_t d = 0; d < dim; ++d) {
    double value = 0, slack = 0x1p-120;
    for (size_t i = 0; i < weight.size(); ++i) {
      const double term = weight[i] * row.v[((first + i) * kv_heads + kv_head) * dim + d];
      value += term;
      slack += std::fabs(term) * (eps[i] + sum_eps);
    }
    out.Add(value, slack);
  }
}

Expected ExpectRow(const AttentionCase& c, const Features& f, const RowData& row) {
  Expected expected;
  for (size_t t = 0; t < row.num_tokens; ++t)
    for (int h = 0; h < c.num_heads; ++h) ExpectHead(c, f, row, t, h, expected);
  return expected;
}

class HostNativeAttentionTest : public KernelTest {
 protected:
  using Bytes = std::vector<std::byte>;

  // A step over `rows`, whose blocks lie at random; what no row sees is NaN. Result: one output per
  // row. all_prefill: rows of one token too are items of prompts.
  std::vector<Bytes> Run(const NativeAttentionTarget& target, const AttentionCase& c,
                         const std::vector<RowData>& rows, const Features& features, uint64_t seed,
                         bool all_prefill = false) {
    GuardedMemory memory(device(), stream());
    AttentionArgs args;
    args.kv = {c.num_kv_heads, c.head_dim, c.block_size, dtype(), false};
    args.num_heads = c.num_heads;
    args.max_splits = c.split.max_splits;
    args.window = c.window;
    args.scale = ScaleOf(c);
    const std::vector<kernels::AttentionWorkItem> items =
        Place(memory, c, rows, seed, all_prefill, args);
    AddFeatures(memory, features, args);

    const runtime::KernelDef def[] = {{.name = "attention", .host = EntryOf(target)}};
    const auto module = device().Load({.kernels = def, .cuda_fatbins = {}});
    EXPECT_OK(module.status());
    const auto kernel = (*module)->Find("attention");
    EXPECT_OK(kernel.status());
    // Decode items and prefill items, as in a mixed step.
    for (const bool decode : {true, false}) {
      std::vector<kernels::AttentionWorkItem> of_phase;
      for (const kernels::AttentionWorkItem& item : items)
        if ((rows[item.entry].num_tokens == 1 && !all_prefill) == decode) of_phase.push_back(item);
      args.items = memory.Constant(of_phase);
      args.num_items =
          memory.Constant(std::vector<uint32_t>{static_cast<uint32_t>(of_phase.size())});
      EXPECT_OK(stream().Launch(
          *kernel,
          {.grid_x = 7, .shared_bytes = kernels::NativeAttentionLayoutOf(c.head_dim).bytes}, args));
      memory.Check();
    }
    for (const uint32_t arrivals : memory.Read(args.arrivals)) EXPECT_EQ(arrivals, 0u);
    const Bytes out = memory.ReadBytes(args.out);
    std::vector<Bytes> result;
    auto at = out.begin();
    for (const RowData& row : rows) {
      const auto end = at + static_cast<ptrdiff_t>(row.q.size() * SizeOf(dtype()));
      result.emplace_back(at, end);
      at = end;
    }
    return result;
  }

 private:
  runtime::HostKernelFn EntryOf(const NativeAttentionTarget& target) const {
    return dtype() == DType::kF32 ? target.f32 : dtype() == DType::kBf16 ? target.bf16 : target.f16;
  }

  std::vector<kernels::AttentionWorkItem> Place(GuardedMemory& memory, const AttentionCase& c,
                                                const std::vector<RowData>& rows, uint64_t seed,
                                                bool all_prefill, AttentionArgs& args) {
    const auto block_size = static_cast<uint32_t>(c.block_size);
    uint32_t num_blocks = 1, most = 1;
    for (const RowData& row : rows) {
      const uint32_t blocks = (row.length() + block_size - 1) / block_size;
      num_blocks += blocks;
      most = std::max(most, blocks);
    }
    Random random(seed);
    std::vector<uint32_t> free = random.Permutation(num_blocks);
    std::vector<uint32_t> table(rows.size() * most, 0xffffffffu);
    std::vector<double> cache(num_blocks * static_cast<size_t>(args.kv.BlockElements()), NAN), q;
    OraclePlan plan;
    for (uint32_t e = 0; e < rows.size(); ++e) {
      const RowData& row = rows[e];
      for (uint32_t b = 0; b * block_size < row.length(); ++b, free.pop_back())
        table[e * most + b] = free.back();
      const uint32_t unseen =
          c.window != 0 && row.context_before >= c.window ? row.context_before - c.window + 1 : 0;
      auto at = static_cast<size_t>(c.num_kv_heads * c.head_dim) * unseen;
      for (uint32_t p = unseen; p < row.length(); ++p) {
        for (int h = 0; h < c.num_kv_heads; ++h) {
          for (int d = 0; d < c.head_dim; ++d, ++at) {
            const int64_t block = table[e * most + p / block_size];
            const uint32_t slot = p % block_size;
            cache[static_cast<size_t>(args.kv.Offset(block, kernels::kKeys, h, slot, d))] =
                row.k[at];
            cache[static_cast<size_t>(args.kv.Offset(block, kernels::kValues, h, slot, d))] =
                row.v[at];
          }
        }
      }
      plan.query_start.push_back(static_cast<uint32_t>(q.size()) /
                                 static_cast<uint32_t>(c.num_heads * c.head_dim));
      plan.context_before.push_back(row.context_before);
      q.insert(q.end(), row.q.begin(), row.q.end());
      if (all_prefill && row.num_tokens == 1) {
        const uint32_t begin = kernels::FirstSeen(c.window, row.context_before);
        plan.prefill_items.push_back({e, 0, 1, begin, row.length(), 0, 1, e});
      } else {
        AddAttentionItems(e, e, row.context_before, row.num_tokens, c.split,
                          kernels::PrefillQueryTokens(c.num_heads / c.num_kv_heads), c.window,
                          plan);
      }
    }
    q.resize(q.size() + 64, NAN);
    args.q = memory.ConstantTensor(dtype(), q);
    args.kv_cache = memory.ConstantTensor(dtype(), cache);
    args.out = memory.Poisoned(q.size() * SizeOf(dtype()));
    args.query_start = memory.Constant(plan.query_start);
    args.context_before = memory.Constant(plan.context_before);
    args.block_table = memory.Constant(table);
    args.max_blocks_per_row = most;
    const size_t partials = rows.size() * args.max_splits * static_cast<size_t>(c.num_heads);
    args.partial_out = memory.Poisoned<float>(partials * static_cast<size_t>(c.head_dim));
    args.partial_max = memory.Poisoned<float>(partials);
    args.partial_sum = memory.Poisoned<float>(partials);
    args.arrivals =
        memory.Variable(std::vector<uint32_t>(rows.size() * static_cast<size_t>(c.num_kv_heads)));
    std::vector<kernels::AttentionWorkItem> items = plan.decode_items;
    items.insert(items.end(), plan.prefill_items.begin(), plan.prefill_items.end());
    return items;
  }

  static void AddFeatures(GuardedMemory& memory, const Features& f, AttentionArgs& args) {
    args.softcap = f.softcap;
    std::vector<float> slopes, sinks;
    for (int h = 0; h < args.num_heads; ++h) {
      slopes.push_back(SlopeOf(h));
      sinks.push_back(SinkOf(f, h));
    }
    if (f.alibi) args.alibi_slopes = memory.Constant(slopes);
    if (f.has_sinks) args.sinks = memory.Constant(sinks);
  }
};
INSTANTIATE_TEST_SUITE_P(Host, HostNativeAttentionTest,
                         ::testing::Values(KernelTestParam{.dtype = DType::kF32},
                                           KernelTestParam{.dtype = DType::kBf16},
                                           KernelTestParam{.dtype = DType::kF16}),
                         NameOfParam);

TEST_P(HostNativeAttentionTest, MatchesTheReferenceAndReadsNoSlotThatARowDoesNotSee) {
  const auto check = [&](const AttentionCase& c) {
    const std::vector<RowData> rows = MakeRows(c, dtype());
    std::vector<Expected> expected;
    for (const RowData& row : rows) expected.push_back(ExpectRow(c, {}, row));
    for (const NativeAttentionTarget& target : kernels::on_host::NativeAttentionTargets()) {
      const std::vector<Bytes> got = Run(target, c, rows, {}, 1);
      for (size_t r = 0; r < rows.size(); ++r) {
        SCOPED_TRACE(absl::StrCat(target.name, ", ", c.name, ", row ", r));
        ExpectNear(Decode(dtype(), got[r]), expected[r], dtype());
      }
    }
  };
  for (const AttentionCase& c : kCases) check(c);
  for (const AttentionCase& c : kernels::kAttentionCases) check(c);
}

TEST_P(HostNativeAttentionTest, SoftcapAlibiAndSinksMatchTheReference) {
  const AttentionCase cases[] = {{"gqa_64", 8, 2, 64, 16, kSplits, kFewRows},
                                 {"gqa_128_window", 6, 2, 128, 48, kSplits, kFewRows, 100},
                                 {"mha_20", 3, 3, 20, 16, kSplits, kFewRows}};
  for (const AttentionCase& c : cases) {
    const std::vector<RowData> rows = MakeRows(c, dtype());
    for (const Features& f : kFeatures) {
      std::vector<Expected> expected;
      for (const RowData& row : rows) expected.push_back(ExpectRow(c, f, row));
      for (const NativeAttentionTarget& target : kernels::on_host::NativeAttentionTargets()) {
        const std::vector<Bytes> got = Run(target, c, rows, f, 2);
        for (size_t r = 0; r < rows.size(); ++r) {
          SCOPED_TRACE(absl::StrCat(target.name, ", ", c.name, ", ", f.name, ", row ", r));
          ExpectNear(Decode(dtype(), got[r]), expected[r], dtype());
        }
      }
    }
  }
}

// A sink of no weight, and a window that no row outgrows, leave every bit as it is without them.
TEST_P(HostNativeAttentionTest, FeaturesWithoutEffectChangeNoBits) {
  AttentionCase c = {"gqa_128", 8, 2, 128, 16, kSplits, kRows};
  const std::vector<RowData> rows = MakeRows(c, dtype());
  for (const NativeAttentionTarget& target : kernels::on_host::NativeAttentionTargets()) {
    SCOPED_TRACE(target.name);
    c.window = 0;
    const std::vector<Bytes> plain = Run(target, c, rows, {}, 1);
    EXPECT_EQ(Run(target, c, rows, {"", 0.0f, false, true, -1e30f}, 1), plain);
    c.window = 1000;
    EXPECT_EQ(Run(target, c, rows, {}, 1), plain);
  }
}

TEST_P(HostNativeAttentionTest, ARowsBitsDependNeitherOnItsNeighboursNorOnItsBlocks) {
  for (const AttentionCase& c : kCases) {
    const std::vector<RowData> rows = MakeRows(c, dtype());
    for (const NativeAttentionTarget& target : kernels::on_host::NativeAttentionTargets()) {
      const std::vector<Bytes> together = Run(target, c, rows, kFeatures[7], 3);
      for (size_t r = 0; r < rows.size(); r += 3)
        EXPECT_EQ(Run(target, c, {rows[r]}, kFeatures[7], 4 + r)[0], together[r])
            << target.name << ", " << c.name << ", row " << r;
    }
  }
}

// `count` query tokens of a row, from its `first` on, as a row of their own.
RowData ChunkOf(const AttentionCase& c, const RowData& row, uint32_t first, uint32_t count) {
  RowData chunk{row.context_before + first, count, {}, {}, row.v};
  const ptrdiff_t token = ptrdiff_t{c.num_heads} * c.head_dim;
  const size_t kv =
      static_cast<size_t>(c.num_kv_heads) * static_cast<size_t>(c.head_dim) * chunk.length();
  chunk.q.assign(row.q.begin() + first * token, row.q.begin() + (first + count) * token);
  chunk.k.assign(row.k.begin(), row.k.begin() + static_cast<ptrdiff_t>(kv));
  chunk.v.resize(kv);
  return chunk;
}

// Chunks of one token too, and even where they are decoded: in one split each.
TEST_P(HostNativeAttentionTest, AQuerysBitsDoNotDependOnWhereItsPromptIsCut) {
  constexpr AttentionRow kPrompts[] = {{0, 70}, {37, 45}};
  constexpr SplitRule kOneSplit = {.min_split_tokens = 1024, .max_splits = 2, .split_multiple = 64};
  for (AttentionCase c : kCases) {
    c.rows = kPrompts;
    c.split = kOneSplit;
    for (const RowData& row : MakeRows(c, dtype())) {
      std::vector<RowData> chunks;
      constexpr uint32_t kCounts[] = {1, 2, 17, 1, 9, 5};
      for (uint32_t first = 0, i = 0; first < row.num_tokens; ++i) {
        const uint32_t count = std::min(kCounts[i % 6], row.num_tokens - first);
        chunks.push_back(ChunkOf(c, row, first, count));
        first += count;
      }
      for (const NativeAttentionTarget& target : kernels::on_host::NativeAttentionTargets()) {
        const Bytes whole = Run(target, c, {row}, kFeatures[7], 5)[0];
        for (const bool all_prefill : {true, false}) {
          Bytes in_chunks;
          for (const Bytes& out : Run(target, c, chunks, kFeatures[7], 6, all_prefill))
            in_chunks.insert(in_chunks.end(), out.begin(), out.end());
          EXPECT_TRUE(in_chunks == whole) << target.name << ", " << c.name << ", " << all_prefill;
        }
      }
    }
  }
}

}  // namespace
}  // namespace reprise::testing
