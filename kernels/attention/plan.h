// SPDX-License-Identifier: Apache-2.0
// Attention's plan: once per step the rows that run are cut into work items, which every layer's
// attention follows; layers whose sliding windows differ follow lists of their own. Here are the
// items, and how many there can be; decision_tree.h says what is decided, plan_body.h decides and
// lists on the device, as part of the plan kernel (kernels/plan/).
#ifndef REPRISE_KERNELS_ATTENTION_PLAN_H_
#define REPRISE_KERNELS_ATTENTION_PLAN_H_

#include <cstdint>

#include "kernels/attention/decision_tree.h"
#include "kernels/attention/decode_share.h"

namespace reprise::kernels {

// A work item: query tokens [q_begin, q_begin + q_count) of one row against KV positions [kv_begin,
// kv_end), for every KV head. num_splits > 1: it has all query tokens of its row, its result is
// partial, and the last of the row's splits to arrive merges them in the order of their index.
struct alignas(16) AttentionWorkItem {
  uint32_t entry;    // of the step: which of the rows that run
  uint32_t q_begin;  // query tokens are counted from the row's first
  uint32_t q_count;
  uint32_t kv_begin;
  uint32_t kv_end;
  uint32_t split;
  uint32_t num_splits;
  uint32_t row;  // resident row: whose block table
};
static_assert(sizeof(AttentionWorkItem) == 32);

// Sliding windows of a model's layers that differ, at most. Each has lists of its own.
inline constexpr uint32_t kMaxAttentionWindows = 2;

// What the plan lists for the layers of one window, all in device memory.
struct AttentionLists {
  AttentionWorkItem* decode_items = nullptr;   // [MaxDecodeItems]; not with a deal
  DecodeRow* decode_rows = nullptr;            // [2 max_rows] with a deal (AttentionPlanRule)
  uint32_t* prefix_members = nullptr;          // [max_rows] likewise, see AttentionArgs
  DecodeShare* decode_shares = nullptr;        // [num_shares] likewise
  AttentionWorkItem* prefill_items = nullptr;  // [MaxPrefillItems]
};

// How the rows of a step become work: a row of more than one query token gives a prefill item per
// group of them; rows of one are cut into leaves and dealt to num_shares blocks (decode_share.h)
// or, where that is 0, give a decode item per split. A row of a few query tokens may give an item
// per split, too. The tree says how rows are cut and dealt.
struct AttentionPlanRule {
  const AttentionTree* tree = nullptr;  // in device memory; one that CheckAttentionTree passes
  // Splits of a row that there is room for, times its query tokens.
  uint32_t max_splits = SplitRule{}.max_splits;
  uint32_t num_shares = 0;    // blocks of the bulk decode kernel's grid, see NumDecodeShares
  uint32_t num_kv_heads = 0;  // for the deal
  // Rows of a tile, BulkTileMembers; 0: every row is attended alone, whatever it shares.
  uint32_t tile_members = 0;
  uint32_t min_tile_tokens = 0;   // of a group that goes in tiles: what it shares at least
  uint32_t prefill_q_tokens = 0;  // query tokens of one prefill item at most, PrefillQueryTokens
  // Sliding windows in tokens, of all layers; 0: none. Window w makes StepPlan.attention[w]. The
  // first is the one whose leaves of the tree are reported.
  uint32_t num_windows = 1;
  uint32_t windows[kMaxAttentionWindows] = {};

  bool operator==(const AttentionPlanRule&) const = default;
};

// Query rows, that is query tokens x heads of a group, that one prefill item holds at most where a
// group has no more heads than that.
constexpr int32_t kPrefillRows = 64;
// The same of the prefill kernel on products of warpgroups, see NumPrefillRows.
constexpr int32_t kPrefillGroupRows = 128;

// The tile rule: query tokens of one prefill item. group: query heads of one KV head.
constexpr uint32_t PrefillQueryTokens(int64_t group, int32_t rows = kPrefillRows) {
  return group >= rows ? 1u : static_cast<uint32_t>(rows / group);
}

// Work items of a step at most, whatever the tree.
constexpr uint64_t MaxDecodeItems(uint64_t max_rows, uint32_t max_splits) {
  return max_rows * max_splits;
}
// An item per query token or, of a row that is cut, max_splits / 2.
constexpr uint64_t MaxPrefillItems(uint64_t max_rows, uint64_t max_step_tokens,
                                   uint32_t max_splits) {
  return max_step_tokens + max_rows * (max_splits / 2);
}

// The first KV position that a query token at `position` sees.
constexpr uint32_t FirstSeen(uint32_t window, uint32_t position) {
  return window != 0 && position >= window ? position - window + 1 : 0u;
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_ATTENTION_PLAN_H_
