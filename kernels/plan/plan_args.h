// SPDX-License-Identifier: Apache-2.0
// Arguments of the plan. See plan.h.
#ifndef REPRISE_KERNELS_PLAN_PLAN_ARGS_H_
#define REPRISE_KERNELS_PLAN_PLAN_ARGS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/attention/plan.h"
#include "kernels/step/rows.h"

namespace reprise::kernels {

struct PlanArgs {
  StepPlan plan;
  ResidentRows rows;
  AttentionPlanRule attention;
  uint32_t block_size = 0;  // tokens of a KV block
  uint32_t max_rows = 0;
};

// What static variables of the plan take of a block's shared memory at most.
inline constexpr size_t kPlanStaticBytes = 4096;

// Byte offsets in the plan's shared memory. Sums over the rows before, of each row, say where its
// entries begin: in lists of tokens, of items of one query token, and of items of several.
struct PlanSharedLayout {
  uint32_t tree = 0;         // AttentionTree
  uint32_t running = 0;      // [max_rows] RunningRow
  uint32_t places = 0;       // [num_shares + 1] DecodePlace, where there is a deal
  uint32_t dealt = 0;        // [2 max_rows] DealtRow, likewise: of rows, then of tiles
  uint32_t tile_tokens = 0;  // [max_rows] likewise: what tiles read of a row
  uint32_t first_token = 0;  // [max_rows]
  uint32_t first_item = 0;   // [max_rows] of prefill_items
  uint32_t first_split = 0;  // [max_rows] of decode_items
  size_t bytes = 0;
};
constexpr PlanSharedLayout PlanSharedLayoutOf(uint32_t max_rows, uint32_t num_shares) {
  const uint32_t words = max_rows * static_cast<uint32_t>(sizeof(uint32_t));
  const bool deals = num_shares != 0;
  PlanSharedLayout l;
  l.places = (sizeof(AttentionTree) + 15) / 16 * 16;
  l.dealt = l.places + (deals ? (num_shares + 1) * static_cast<uint32_t>(sizeof(DecodePlace)) : 0);
  l.running = l.dealt + (deals ? 2 * max_rows * static_cast<uint32_t>(sizeof(DealtRow)) : 0);
  l.tile_tokens = l.running + max_rows * static_cast<uint32_t>(sizeof(RunningRow));
  l.first_token = l.tile_tokens + (deals ? words : 0);
  l.first_item = l.first_token + words;
  l.first_split = l.first_item + words;
  l.bytes = size_t{l.first_split} + words;
  return l;
}

struct SetAttentionTreeArgs {
  AttentionTree tree;
  AttentionTree* to = nullptr;  // in device memory
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_PLAN_PLAN_ARGS_H_
