// SPDX-License-Identifier: Apache-2.0
// How the rows of one query token are dealt to the blocks of the bulk decode kernel. A row's KV is
// cut into leaves by a SplitRule; a leaf's result does not depend on who computes it,
// and results come together in one fixed order (decode_fold.h). So the deal may follow the whole
// batch: every block gets a contiguous run of the leaves of all rows and KV heads, in the order
// (row, KV head, leaf), of nearly the same weight. Computed once per step, on the device
// (plan_body.h).
#ifndef REPRISE_KERNELS_ATTENTION_DECODE_SHARE_H_
#define REPRISE_KERNELS_ATTENTION_DECODE_SHARE_H_

#include <cstdint>

namespace reprise::kernels {

// Tokens of a leaf are a multiple of this, and leaves begin at multiples of it: four chunks of 16,
// one for each warp that shares a leaf.
inline constexpr uint32_t kLeafMultiple = 64;
// Leaves that are merged first, one after the other; then these, one after the other.
inline constexpr uint32_t kNodeLeaves = 4;

// Blocks that leaves are dealt to.
inline constexpr uint32_t kMaxDecodeShares = 65535;

// A row of one query token. Of one of another number all but `query` is zero.
struct alignas(16) DecodeRow {
  uint32_t row;          // resident row: whose block table
  uint32_t query;        // index of its query token in the step
  uint32_t kv_begin;     // first KV position that it sees
  uint32_t kv_end;       // one behind the last: that of the query token
  uint32_t origin;       // of the first leaf: kv_begin, rounded down to kLeafMultiple
  uint32_t leaf_tokens;  // of every leaf, counted from origin; the last ends at kv_end
  uint32_t num_leaves;
  uint32_t weight;  // of one KV head, see LeafWeight
};
static_assert(sizeof(DecodeRow) == 32);

// What dealing needs of a row.
struct alignas(16) DealtRow {
  uint32_t weight_before;  // of the rows before it
  uint32_t weight;
  uint32_t leaf_tokens;
  uint32_t num_leaves;
};

// A leaf in the order of the deal, or the place behind the last: {number of entries, 0, 0}.
struct alignas(16) DecodePlace {
  uint32_t entry;  // of the step
  uint32_t kv_head;
  uint32_t leaf;
  uint32_t unused;

  constexpr bool operator==(const DecodePlace& other) const {
    return entry == other.entry && kv_head == other.kv_head && leaf == other.leaf;
  }
};

// A block's run of leaves. The first row stands in it, so that a block that begins has one load
// less to wait for.
struct DecodeShare {
  DecodePlace begin, end;  // equal: the block has nothing to do
  DecodeRow row;           // of begin, where there is something to do
};
static_assert(sizeof(DecodeShare) == 64);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_ATTENTION_DECODE_SHARE_H_
