// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/kernels/attention_fixture.h"

namespace reprise::testing {
namespace {

REPRISE_FOR_EVERY_DEVICE_AND_DTYPE(AttentionTest);

TEST_P(AttentionTest, MatchesTheOracleAndReadsNoSlotBeyondARowsLength) {
  for (const AttentionCase& c : kernels::kAttentionCases) {
    const std::vector<RowData> rows = MakeRows(c, dtype());
    for (const AttentionCandidate candidate : Candidates()) ExpectOracle(c, rows, candidate);
  }
}

TEST_P(AttentionTest, CapsSlopesAndSinksMatchTheOracle) {
  for (const AttentionCase& c : kernels::kAttentionSwitchCases) {
    const std::vector<RowData> rows = MakeRows(c, dtype());
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
  const std::set<std::string_view> few = {"mha_decode_8", "gqa_decode_odd_dim", "mha_64_sinks"};
  for (const AttentionCase& c : CasesOf(is_emulated() ? few : std::set<std::string_view>()))
    ExpectOracle(c, MakeRows(c, dtype()), AttentionCandidate::kNaive);
}

// Of decode rows and of chunks.
TEST_P(AttentionTest, SplitsMergedInALaunchOfTheirOwnMatchTheOracle) {
  MergeApart();
  const std::set<std::string_view> few = {"gqa_decode_64", "gqa_long_decode_128", "gqa_verify_64",
                                          "mha_64_sinks"};
  for (const AttentionCase& c : CasesOf(is_emulated() ? few : std::set<std::string_view>())) {
    const std::vector<RowData> rows = MakeRows(c, dtype());
    for (const AttentionCandidate candidate : Candidates()) ExpectOracle(c, rows, candidate);
  }
}

TEST_P(AttentionTest, ARowsBitsDependNeitherOnItsNeighboursNorOnItsBlocks) {
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  for (const AttentionCase& c : kernels::kAttentionCases) {
    const std::vector<RowData> rows = MakeRows(c, dtype());
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
    const kernels::KvLayout layout{.num_kv_heads = c.num_kv_heads,
                                   .head_dim = c.head_dim,
                                   .block_size = c.block_size,
                                   .dtype = dtype()};
    if (NumDecodeShares(kernels(), c.num_heads, layout) == 0) continue;
    const std::vector<RowData> rows = MakeRows(c, dtype());
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
    for (const RowData& row : MakeRows(c, dtype())) {
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
    const std::vector<RowData> rows = MakeRows(c, dtype());
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
    const std::vector<RowData> rows = MakeRows(c, dtype());
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

}  // namespace
}  // namespace reprise::testing
