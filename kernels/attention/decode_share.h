// SPDX-License-Identifier: Apache-2.0
// How the rows of one query token are dealt to the blocks of the bulk decode kernel. A row's KV is
// cut into leaves by a SplitRule; a leaf's result does not depend on who computes it,
// and results come together in one fixed order (decode_fold.h). So the deal may follow the whole
// batch: every block gets a contiguous run of the leaves of all rows and KV heads, in the order
// (row, KV head, leaf), of nearly the same weight. Computed once per step, on the device
// (plan_body.h).
//
// Rows of a group that share the KV of their first tokens have these read once for a tile of rows
// in place of once for every row. A tile stands in the list of rows behind them, as a row whose
// leaves are those of the prefix; its results are pieces (decode_fold.h) of every member's. The
// members' own leaves begin where the prefix ends, and are numbered behind those of the prefix.
// How a prefix is cut follows from its length alone, so that a row's bits depend on its own lengths
// and on that of its prefix, and not on who shares it.
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

// Of a tile's members: nobody, a row that does not run or goes alone in this step.
inline constexpr uint32_t kNoMember = 0xffffffffu;

// A row of one query token, or a tile. Of a row of another number, and of a tile in which no member
// takes part, all but `query` is zero.
struct alignas(16) DecodeRow {
  uint32_t row;          // resident row: whose block table
  uint32_t query;        // index of its query token in the step; of a tile: of its first member
                         // among AttentionArgs.prefix_members
  uint32_t kv_begin;     // first KV position that it sees
  uint32_t kv_end;       // one behind the last: that of the query token
  uint32_t origin;       // of leaf 0, a multiple of kLeafMultiple: where own leaves begin, less
                         // first_leaf leaves, modulo 2^32
  uint32_t leaf_tokens;  // of every own leaf, counted from origin; the last ends at kv_end
  uint32_t num_leaves;   // of the prefix, and its own
  uint16_t first_leaf;   // the first of its own: how many the prefix has
  uint16_t num_members;  // of a tile; 0: a row

  constexpr bool is_tile() const { return num_members != 0; }
  constexpr uint32_t num_own_leaves() const { return num_leaves - first_leaf; }
};
static_assert(sizeof(DecodeRow) == 32);
// So that leaves are counted in 16 bits.
inline constexpr uint32_t kMaxLeaves = 65535;

// A row that shares the KV of its first tokens. Members of a group follow one another; a row is in
// one group at most.
struct PrefixMember {
  uint32_t entry = 0;   // of the step
  uint32_t tokens = 0;  // that the group shares, whole blocks
  uint32_t index = 0;   // in the group
  uint32_t count = 0;   // of the group's members in the step
};
static_assert(sizeof(PrefixMember) == 16);

// How many of so many shared tokens are read once: whole multiples of what leaves begin at.
constexpr uint32_t TilePrefix(uint32_t tokens) { return tokens / kLeafMultiple * kLeafMultiple; }

// What dealing needs of a row.
struct alignas(16) DealtRow {
  uint32_t weight_before;  // of the rows before it
  uint32_t weight;
  uint32_t leaf_tokens;
  uint32_t num_leaves;  // of its own
};

// A leaf in the order of the deal, or the place behind the last: {number of rows and tiles, 0, 0}.
struct alignas(16) DecodePlace {
  uint32_t entry;  // in the list of rows: an entry of the step or, behind these, a tile
  uint32_t kv_head;
  uint32_t leaf;  // of its own ones
  uint32_t zero;  // in place of padding: places are moved, and compared, as 16 bytes

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
