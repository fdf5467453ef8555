// SPDX-License-Identifier: Apache-2.0
// RowTable: the host's mirror of the rows that are resident on the device: which session's row
// lives in which slot, its block table, its length. Its capacity is fixed; nothing allocates after
// construction. Threads: the caller orders all calls.
#ifndef REPRISE_ENGINE_STATE_ROW_TABLE_H_
#define REPRISE_ENGINE_STATE_ROW_TABLE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/sampling_params.h"
#include "engine/session_info.h"

namespace reprise::engine {

inline constexpr uint32_t kNoSlot = 0xffffffffu;

struct RowState {
  SessionId session = 0;
  uint32_t row = 0;  // the caller's id
  // Tokens in its KV once every submitted step has run. Drafts of steps that were not waited for
  // are counted as if all of them were accepted; num_samples counts none of them.
  uint32_t context_length = 0;
  uint32_t num_drafts_in_flight = 0;
  uint32_t table_length = 0;  // blocks in its table
  bool can_continue = false;  // its last run sampled
  bool needs_reset = true;    // the device does not know its initial state yet
  // Known to have stopped on the device: by a result, or by its length budget.
  bool stopped = false;
  uint64_t last_step = 0;  // the ticket of the latest that it runs in; 0: none
  // A result of the row's was lost, so that context_length is only what it is at most.
  bool lost_result = false;
  // What its state is called in swap space that was copied there since it last ran.
  std::optional<uint32_t> swapped_state = {};
  uint64_t generation = 0;      // differs from that of every row before it in this slot
  uint32_t num_samples = 0;     // sampled once every submitted step has run, if it does not stop
  uint32_t features = 0;        // kernels::RowFeatures
  bool needs_features = false;  // the device does not know its present features yet
  uint32_t prefix_group = 0;    // PrefixGroup; 0: none
  uint32_t prefix_blocks = 0;
  SamplingParams sampling;      // without the arrays that it viewed
  uint32_t previous = kNoSlot;  // neighbours among the session's rows, in the order of adding
  uint32_t next = kNoSlot;

  // What context_length is at least.
  uint32_t settled_length() const { return context_length - num_drafts_in_flight; }
};

// A session's rows in the order in which they were added.
struct RowList {
  uint32_t first = kNoSlot;
  uint32_t last = kNoSlot;
  uint32_t count = 0;
};

class RowTable {
 public:
  RowTable(uint32_t max_rows, uint32_t max_blocks_per_row);

  // kNoSlot when the session has no such row.
  uint32_t Find(SessionId session, uint32_t row) const;
  // Takes a free slot, with fresh state, at the end of `list`. REQUIRES: num_free() > 0, the row is
  // not there.
  uint32_t Add(SessionId session, uint32_t row, RowList& list);
  // REQUIRES: `slot` is in `list`.
  void Remove(uint32_t slot, RowList& list);

  RowState& state(uint32_t slot) { return states_[slot]; }
  const RowState& state(uint32_t slot) const { return states_[slot]; }
  // The slot's table, max_blocks_per_row entries, of which state().table_length count.
  std::span<uint32_t> table(uint32_t slot) {
    return std::span(tables_).subspan(static_cast<size_t>(slot) * max_blocks_per_row_,
                                      max_blocks_per_row_);
  }
  uint32_t max_rows() const { return static_cast<uint32_t>(states_.size()); }
  uint32_t max_blocks_per_row() const { return max_blocks_per_row_; }
  uint32_t num_free() const { return static_cast<uint32_t>(free_.size()); }

 private:
  // Open addressing with linear probing over a power of two, at most a quarter full.
  size_t Home(SessionId session, uint32_t row) const;
  void Erase(SessionId session, uint32_t row);

  const uint32_t max_blocks_per_row_;
  uint64_t next_generation_ = 1;
  std::vector<RowState> states_;
  std::vector<uint32_t> tables_;
  std::vector<uint32_t> free_;   // stack of slots
  std::vector<uint32_t> index_;  // slot, or kNoSlot
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STATE_ROW_TABLE_H_
