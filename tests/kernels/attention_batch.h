// SPDX-License-Identifier: Apache-2.0
// Rows for attention, and a step over some of them as it lies in memory.
#ifndef REPRISE_TESTS_KERNELS_ATTENTION_BATCH_H_
#define REPRISE_TESTS_KERNELS_ATTENTION_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention/attention_args.h"
#include "kernels/attention/kv_layout.h"
#include "runtime/dtype.h"
#include "tests/testing/cases/attention_cases.h"
#include "tests/testing/step_oracle.h"

namespace reprise::testing {

// What a row computes with, wherever it lies: its query tokens, and K and V of all its tokens, this
// step's included, as they are stored.
struct RowData {
  uint32_t context_before = 0, num_tokens = 0;
  std::vector<double> q;                  // [num_tokens, heads, dim]
  std::vector<double> k, v;               // [length, kv_heads, dim]
  uint32_t group = 0, shared_tokens = 0;  // see AttentionRow
  uint32_t length() const { return context_before + num_tokens; }
};

// The rows of a case, drawn from it and from `number`; members of a group share their first tokens.
std::vector<RowData> MakeRows(const kernels::AttentionCase& c, runtime::DType dtype,
                              runtime::DType kv_dtype, uint64_t number = 0);

// A step over some rows: where each lies in the cache and in the tables is random, every slot that
// no token of theirs fills is NaN, and so is every token before the windows of all their queries.
struct AttentionBatch {
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
  AttentionBatch(const kernels::AttentionCase& c, const std::vector<RowData>& rows,
                 const kernels::KvLayout& kv, int32_t prefill_rows, uint64_t seed);

  static size_t TokenElements(const kernels::AttentionCase& c) {
    return static_cast<size_t>(c.num_heads) * static_cast<size_t>(c.head_dim);
  }
  static size_t BlockElements(const kernels::AttentionCase& c) {
    return 2 * static_cast<size_t>(c.num_kv_heads) * static_cast<size_t>(c.block_size) *
           static_cast<size_t>(c.head_dim);
  }

 private:
  void ListMembers(const std::vector<RowData>& rows);
  void StoreToken(const kernels::AttentionCase& c, const RowData& row, uint32_t position,
                  uint32_t block, uint32_t offset);
  void AddToPlan(const kernels::AttentionCase& c, uint32_t e, uint32_t slot, const RowData& row);
};

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_KERNELS_ATTENTION_BATCH_H_
