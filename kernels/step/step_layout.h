// SPDX-License-Identifier: Apache-2.0
// The step's metadata as host and device share it: what the host writes into the metadata ring,
// what the plan kernel makes of it in device memory, what the device writes into the result ring.
// Plain structs, the same layout for every compiler.
#ifndef REPRISE_KERNELS_STEP_STEP_LAYOUT_H_
#define REPRISE_KERNELS_STEP_STEP_LAYOUT_H_

#include <cstddef>
#include <cstdint>

namespace reprise::kernels {

// ---- metadata ring: host -> device ----

// Opens a ring slot. A replay whose slot does not carry the next sequence (the device's own count +
// 1) is idle: no row runs and nothing is published; warm-up runs and captures rely on it.
struct StepHeader {
  uint64_t sequence = 0;  // 1 for the engine's first step
  uint32_t num_rows = 0;
  uint32_t num_tokens = 0;        // query tokens of all rows
  uint32_t num_given_tokens = 0;  // of these, ids that lie in the slot
  uint32_t num_table_updates = 0;
  uint32_t reserved[10] = {};
};
static_assert(sizeof(StepHeader) == 64);

enum RowEntryFlags : uint32_t {
  kRowReset = 1u << 0,        // the entry carries the row's initial state
  kRowTokensGiven = 1u << 1,  // token ids lie in the slot; otherwise the row's last sampled token
  kRowSample = 1u << 2,       // sample after the last query token
};

// One row that runs in this step.
struct RowEntry {
  uint32_t slot = 0;            // resident row
  uint32_t flags = 0;           // RowEntryFlags
  uint32_t num_tokens = 0;      // query length, >= 1
  uint32_t given_offset = 0;    // of its ids among the slot's given tokens
  uint32_t context_length = 0;  // with kRowReset: tokens already in its KV
  float temperature = 0.0f;     // with kRowReset
  uint64_t seed = 0;            // with kRowReset
};
static_assert(sizeof(RowEntry) == 32);

// Writes block ids into a resident row's table.
struct TableUpdate {
  uint32_t slot = 0;
  uint32_t first = 0;  // index in the table
  uint32_t count = 0;
  uint32_t offset = 0;  // of the ids among the slot's block ids
};
static_assert(sizeof(TableUpdate) == 16);

// Byte offsets of a metadata slot's parts; a function of the engine's limits.
struct StepSlotLayout {
  uint64_t rows = 0;
  uint64_t table_updates = 0;
  uint64_t tokens = 0;
  uint64_t blocks = 0;
  uint64_t bytes = 0;

  static constexpr uint64_t RoundUp(uint64_t x) { return (x + 63) / 64 * 64; }
  static constexpr StepSlotLayout For(uint64_t max_rows, uint64_t max_step_tokens,
                                      uint64_t max_blocks_per_row) {
    StepSlotLayout l;
    l.rows = sizeof(StepHeader);
    l.table_updates = RoundUp(l.rows + max_rows * sizeof(RowEntry));
    // An added row can be appended to in the same step.
    l.tokens = RoundUp(l.table_updates + 2 * max_rows * sizeof(TableUpdate));
    l.blocks = RoundUp(l.tokens + max_step_tokens * sizeof(uint32_t));
    l.bytes = RoundUp(l.blocks + max_rows * max_blocks_per_row * sizeof(uint32_t));
    return l;
  }
};

// ---- result ring: device -> host ----

struct ResultHeader {
  uint64_t sequence = 0;  // stored last, with release order: the slot is complete when it equals
                          // the step's sequence
  uint64_t begin_ns = 0;  // device clock at the first node
  uint64_t end_ns = 0;    // and at the publishing node
  uint32_t num_rows = 0;
  uint32_t reserved[9] = {};
};
static_assert(sizeof(ResultHeader) == 64);

enum RowResultFlags : uint32_t {
  kResultSampled = 1u << 0,
};

struct RowResult {
  uint32_t token = 0;
  float logprob = 0.0f;
  uint32_t context_length = 0;
  uint32_t flags = 0;
};
static_assert(sizeof(RowResult) == 16);

constexpr uint64_t ResultSlotBytes(uint64_t max_rows) {
  return StepSlotLayout::RoundUp(sizeof(ResultHeader) + max_rows * sizeof(RowResult));
}

// ---- device: rows that stay, and the plan of the step in flight ----

// Resident rows, structure of arrays, [max_rows] each.
struct ResidentRows {
  uint32_t* context_length = nullptr;
  uint32_t* last_token = nullptr;
  float* temperature = nullptr;
  uint64_t* seed = nullptr;
  uint32_t* block_table = nullptr;  // [max_rows, max_blocks_per_row]
  uint32_t max_blocks_per_row = 0;
};

// Live counts of the step. Every kernel's blocks compare their index with these and leave.
struct PlanCounts {
  uint64_t sequence;  // 0: idle replay
  uint64_t begin_ns;
  uint32_t num_rows;
  uint32_t num_tokens;
  uint32_t num_sampled;
  uint32_t num_decode_items;
  uint32_t num_prefill_items;
  uint32_t num_table_updates;
};

// One piece of attention work, to be done for every KV head: query tokens [q_begin, q_begin +
// q_count) of entry `entry` against KV positions [kv_begin, kv_end). num_splits > 1: the piece is a
// partial result, merged in index order by the last arriver.
struct AttentionItem {
  uint32_t entry;
  uint32_t q_begin;
  uint32_t q_count;
  uint32_t kv_begin;
  uint32_t kv_end;
  uint32_t split;
  uint32_t num_splits;
  uint32_t reserved;
};
static_assert(sizeof(AttentionItem) == 32);

// What the plan kernel lists, all in device memory. Entries are rows that run, in request order.
struct StepPlan {
  PlanCounts* counts = nullptr;
  RowEntry* entries = nullptr;         // [max_rows] staged from the ring
  uint32_t* given_tokens = nullptr;    // [max_step_tokens] staged from the ring
  uint32_t* query_start = nullptr;     // [max_rows + 1]
  uint32_t* context_before = nullptr;  // [max_rows] KV tokens before this step
  uint32_t* token_id = nullptr;        // [max_step_tokens]
  uint32_t* token_position = nullptr;  // [max_step_tokens]
  uint32_t* token_block = nullptr;     // [max_step_tokens] KV block that the token's K and V go to
  uint32_t* token_offset = nullptr;    // [max_step_tokens] and the place in it
  uint32_t* sampled_entry = nullptr;   // [max_rows]
  uint32_t* sampled_token = nullptr;   // [max_rows] index of the last query token
  AttentionItem* decode_items = nullptr;   // [max_rows * max_splits]
  AttentionItem* prefill_items = nullptr;  // [max_step_tokens / prefill_q_tokens + max_rows]
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_STEP_STEP_LAYOUT_H_
