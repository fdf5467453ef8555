// SPDX-License-Identifier: Apache-2.0
#include "engine/state/row_table.h"

#include <bit>

#include "runtime/check.h"

namespace reprise::engine {

RowTable::RowTable(uint32_t max_rows, uint32_t max_blocks_per_row)
    : max_blocks_per_row_(max_blocks_per_row),
      states_(max_rows),
      tables_(static_cast<size_t>(max_rows) * max_blocks_per_row, 0),
      index_(std::bit_ceil(static_cast<size_t>(max_rows) * 4), kNoSlot) {
  free_.reserve(max_rows);
  for (uint32_t slot = max_rows; slot-- > 0;) free_.push_back(slot);
}

size_t RowTable::Home(SessionId session, uint32_t row) const {
  uint64_t h = (session << 32 ^ session >> 32 ^ row) * 0x9E3779B97F4A7C15ull;
  h ^= h >> 29;
  return static_cast<size_t>(h) & (index_.size() - 1);
}

uint32_t RowTable::Find(SessionId session, uint32_t row) const {
  for (size_t i = Home(session, row); index_[i] != kNoSlot; i = (i + 1) & (index_.size() - 1)) {
    const RowState& state = states_[index_[i]];
    if (state.session == session && state.row == row) return index_[i];
  }
  return kNoSlot;
}

uint32_t RowTable::Add(SessionId session, uint32_t row, RowList& list) {
  REPRISE_CHECK(!free_.empty());
  const uint32_t slot = free_.back();
  free_.pop_back();
  RowState& state = states_[slot];
  state = RowState{};
  state.session = session;
  state.row = row;
  state.generation = next_generation_++;
  state.previous = list.last;
  (list.last == kNoSlot ? list.first : states_[list.last].next) = slot;
  list.last = slot;
  ++list.count;

  size_t i = Home(session, row);
  while (index_[i] != kNoSlot) i = (i + 1) & (index_.size() - 1);
  index_[i] = slot;
  return slot;
}

void RowTable::Erase(SessionId session, uint32_t row) {
  const size_t mask = index_.size() - 1;
  size_t hole = Home(session, row);
  while (states_[index_[hole]].session != session || states_[index_[hole]].row != row)
    hole = (hole + 1) & mask;
  // Close the gap: move back every later entry of the run whose home does not lie behind the hole.
  for (size_t i = (hole + 1) & mask; index_[i] != kNoSlot; i = (i + 1) & mask) {
    const RowState& state = states_[index_[i]];
    const size_t home = Home(state.session, state.row);
    if (((i - home) & mask) >= ((i - hole) & mask)) {
      index_[hole] = index_[i];
      hole = i;
    }
  }
  index_[hole] = kNoSlot;
}

void RowTable::Remove(uint32_t slot, RowList& list) {
  const RowState& state = states_[slot];
  Erase(state.session, state.row);
  (state.previous == kNoSlot ? list.first : states_[state.previous].next) = state.next;
  (state.next == kNoSlot ? list.last : states_[state.next].previous) = state.previous;
  --list.count;
  free_.push_back(slot);
}

}  // namespace reprise::engine
