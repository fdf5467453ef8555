// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/attention_batch.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/attention/attention_geometry.h"
#include "tests/testing/number.h"
#include "tests/testing/oracle.h"

namespace reprise::testing {

using kernels::AttentionCase;
using kernels::AttentionRow;
using runtime::DType;

namespace {

// The row itself where it is of no group.
uint32_t FirstOfGroup(const std::vector<RowData>& rows, uint32_t e) {
  uint32_t first = 0;
  while (first < e && (rows[e].group == 0 || rows[first].group != rows[e].group)) ++first;
  return first;
}

}  // namespace

std::vector<RowData> MakeRows(const AttentionCase& c, DType dtype, DType kv_dtype,
                              uint64_t number) {
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

AttentionBatch::AttentionBatch(const AttentionCase& c, const std::vector<RowData>& rows,
                               const kernels::KvLayout& kv, int32_t prefill_rows, uint64_t seed)
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

void AttentionBatch::ListMembers(const std::vector<RowData>& rows) {
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

void AttentionBatch::StoreToken(const AttentionCase& c, const RowData& row, uint32_t position,
                                uint32_t block, uint32_t offset) {
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

void AttentionBatch::AddToPlan(const AttentionCase& c, uint32_t e, uint32_t slot,
                               const RowData& row) {
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

}  // namespace reprise::testing
