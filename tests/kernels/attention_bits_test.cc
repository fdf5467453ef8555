// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/attention/attention_geometry.h"
#include "tests/kernels/attention_fixture.h"
#include "tests/testing/cases/attention_cases.h"

namespace reprise::testing {
namespace {

using kernels::AttentionCandidate;
using kernels::AttentionCase;

TEST_P(AttentionTest, ARowsBitsDependNeitherOnItsNeighboursNorOnItsBlocks) {
  if (IsLesserFp8()) GTEST_SKIP() << kLesserFp8;
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  for (size_t i = 0; i < std::size(kernels::kAttentionCases); ++i) {
    const AttentionCase& c = kernels::kAttentionCases[i];
    const std::vector<RowData> rows = MakeRows(c, dtype(), kv_dtype());
    for (const AttentionCandidate candidate : Candidates()) {
      if (!IsSampled(i, candidate)) continue;
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

// `count` query tokens of a row, from its `first` on, as a chunk of their own.
RowData ChunkOf(const AttentionCase& c, const RowData& row, uint32_t first, uint32_t count) {
  const size_t token = AttentionBatch::TokenElements(c);
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
  if (IsLesserFp8()) GTEST_SKIP() << kLesserFp8;
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
  if (IsLesserFp8()) GTEST_SKIP() << kLesserFp8;
  REPRISE_SKIP_IF_EMULATED_BUT_FOR_BF16();
  for (size_t i = 0; i < std::size(kernels::kAttentionCases); ++i) {
    const AttentionCase& c = kernels::kAttentionCases[i];
    if (c.window != 0 || !IsSampled(i, AttentionCandidate::kPortable)) continue;
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
  if (IsLesserFp8()) GTEST_SKIP() << kLesserFp8;
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

}  // namespace
}  // namespace reprise::testing
