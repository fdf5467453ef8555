// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/attention/attention_geometry.h"
#include "tests/kernels/attention_fixture.h"
#include "tests/testing/cases/attention_cases.h"

namespace reprise::testing {
namespace {

using kernels::AttentionCandidate;
using kernels::AttentionCase;
using runtime::DType;

REPRISE_FOR_EVERY_DEVICE_DTYPE_AND_KV(AttentionTest);

TEST_P(AttentionTest, MatchesTheOracleAndReadsNoSlotBeyondARowsLength) {
  if (IsLesserFp8()) GTEST_SKIP() << kLesserFp8;
  ExpectOracles(kernels::kAttentionCases);
}

TEST_P(AttentionTest, CapsSlopesAndSinksMatchTheOracle) {
  ExpectOracles(kernels::kAttentionSwitchCases);
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

}  // namespace
}  // namespace reprise::testing
