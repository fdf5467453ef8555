// SPDX-License-Identifier: Apache-2.0
// What the threads of a launch have done to global memory, by whom and from where: finds accesses
// that conflict with an earlier one of the launch and are not ordered after it. Same idea as
// shadow.h, but for memory of any address that many blocks touch: cells lie in pages that are found
// by number, and who read a word is kept less well.
//
// One cell stands for a word of 4 bytes: its last write, one read by an earlier block, and two
// reads by the block that runs, of two warps where there are two. An access to half of the word
// splits it into halves, each with its last write and one read, until the whole is written again.
// An access of one byte is compared with what is there, and is not kept.
#ifndef REPRISE_TESTS_EMULATOR_GLOBAL_SHADOW_H_
#define REPRISE_TESTS_EMULATOR_GLOBAL_SHADOW_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tests/emulator/grid_order.h"
#include "tests/emulator/order.h"
#include "tests/emulator/shadow.h"

namespace reprise::emulator {

class GlobalShadow {
 public:
  // What an access conflicts with; epoch 0: nothing.
  struct Conflict {
    Mark earlier;
    bool earlier_wrote = false;
    uintptr_t address = 0;
    explicit operator bool() const { return earlier.epoch != 0; }
  };

  // `grid` outlives the shadow.
  explicit GlobalShadow(GridOrder& grid) : grid_(grid) {}
  ~GlobalShadow() { Forget(); }
  GlobalShadow(const GlobalShadow&) = delete;
  GlobalShadow& operator=(const GlobalShadow&) = delete;

  // A launch begins: all epochs kept so far are older. Forgets pages where they have become many.
  void BeginLaunch();
  // The next launch may begin while those go on that this one has not waited for.
  void LetNextBeginFirst() { next_begins_first_ = true; }
  // Forgets everything.
  void Forget();
  // Whose accesses follow. `order` outlives the block; its first epoch is its launch's too, or
  // later.
  void BeginBlock(const Order& order) {
    order_ = &order;
    launch_begin_ = grid_.first_epoch();
  }

  // What an access of a thread that has not waited for the launch before conflicts with there.
  // Words are compared whole.
  Conflict CompareWithPrevious(uintptr_t address, size_t bytes, bool writes);

  // An access of the current thread. Nothing is noted of an access that conflicts.
  template <AccessKind kKind>
  Conflict Access(uintptr_t address, size_t bytes, Place place) {
    if (((address | bytes) & 3) == 0) [[likely]] {
      for (uintptr_t word = address / 4; word < (address + bytes) / 4; ++word) {
        const Conflict conflict = AccessWord<kKind>(word, place);
        if (conflict) [[unlikely]]
          return conflict;
      }
      return {};
    }
    if (bytes == 2 && (address & 1) == 0) return AccessHalf<kKind>(address / 2, place);
    return AccessPieces<kKind>(address, bytes, place);
  }

 private:
  static constexpr uintptr_t kPageWords = 1024;
  // A whole word: kWrite, kEarlierRead, then reads of the block that runs. A split one: the write
  // and the read of its lower half, then of its upper half.
  using Cell = std::array<Mark, 4>;
  enum : size_t { kWrite = 0, kEarlierRead = 1, kFirstRead = 2, kSecondRead = 3 };
  struct Page {
    uintptr_t number = 0;
    std::array<uint64_t, kPageWords / 64> split = {};
    std::array<Cell, kPageWords> cells;

    bool IsSplit(size_t i) const { return (split[i / 64] >> (i % 64) & 1) != 0; }
    void SetSplit(size_t i, bool on) {
      const uint64_t bit = uint64_t{1} << (i % 64);
      split[i / 64] = on ? split[i / 64] | bit : split[i / 64] & ~bit;
    }
  };

  Page& PageOf(uintptr_t word) {
    const uintptr_t number = word / kPageWords;
    Page* const page = recent_[number % recent_.size()];
    if (page != nullptr && page->number == number) [[likely]]
      return *page;
    return FindPage(number);
  }
  Page& FindPage(uintptr_t number);

  bool IsStale(Epoch e) const { return e < launch_begin_; }
  bool IsBefore(Epoch e) const {
    if (IsStale(e)) return true;
    if (e >= order_->first_epoch() && order_->IsBeforeOnGlobal(e)) return true;
    return grid_.IsBefore(e);
  }
  template <AccessKind kKind>
  bool MayFollow(const Mark& earlier) const {
    return IsBefore(earlier.epoch) || (IsAtomic(kKind) && emulator::IsAtomic(earlier.epoch));
  }
  template <AccessKind kKind>
  Mark MarkOf(Place place) const {
    return {.epoch = order_->epoch() | Epoch{IsAtomic(kKind)}, .place = place};
  }

  template <AccessKind kKind>
  Conflict AccessWord(uintptr_t word, Place place) {
    Page& page = PageOf(word);
    const size_t i = word % kPageWords;
    Cell& cell = page.cells[i];
    if (page.IsSplit(i)) [[unlikely]]
      return AccessSplitWord<kKind>(page, word, place);
    if (!MayFollow<kKind>(cell[kWrite])) [[unlikely]]
      return {cell[kWrite], true, word * 4};
    if (!Writes(kKind)) {
      NoteRead(cell, MarkOf<kKind>(place));
      return {};
    }
    for (size_t r = kEarlierRead; r < cell.size(); ++r) {
      if (!MayFollow<kKind>(cell[r])) [[unlikely]]
        return {cell[r], false, word * 4};
    }
    cell = {MarkOf<kKind>(place)};
    return {};
  }
  void NoteRead(Cell& cell, const Mark& mark) {
    for (size_t r = kFirstRead; r < cell.size(); ++r) {
      const Epoch e = cell[r].epoch;
      if (e >= order_->first_epoch() && !order_->IsBeforeOnGlobal(e)) continue;
      if (e < order_->first_epoch() && !IsStale(e)) cell[kEarlierRead] = cell[r];
      cell[r] = mark;
      return;
    }
    // Two reads of the block are there that nothing orders: of two warps, if there are two.
    if (IdOf(cell[kFirstRead].epoch) / 32 == IdOf(cell[kSecondRead].epoch) / 32) {
      cell[kSecondRead] = mark;
    }
  }

  template <AccessKind kKind>
  Conflict AccessHalf(uintptr_t half, Place place) {
    Page& page = PageOf(half / 2);
    const size_t i = half / 2 % kPageWords;
    Cell& cell = page.cells[i];
    if (!page.IsSplit(i)) [[unlikely]]
      Split(page, i);
    Mark& write = cell[half % 2 * 2];
    Mark& read = cell[half % 2 * 2 + 1];
    if (!MayFollow<kKind>(write)) [[unlikely]]
      return {write, true, half * 2};
    if (!Writes(kKind)) {
      const bool is_earlier = read.epoch < order_->first_epoch();
      if (is_earlier ? IsStale(read.epoch) : order_->IsBeforeOnGlobal(read.epoch)) {
        read = MarkOf<kKind>(place);
      }
      return {};
    }
    if (!MayFollow<kKind>(read)) [[unlikely]]
      return {read, false, half * 2};
    write = MarkOf<kKind>(place);
    read = {};
    return {};
  }

  void Split(Page& page, size_t i);
  template <AccessKind kKind>
  Conflict AccessSplitWord(Page& page, uintptr_t word, Place place);
  template <AccessKind kKind>
  Conflict AccessPieces(uintptr_t address, size_t bytes, Place place);
  template <AccessKind kKind>
  Conflict CompareByte(uintptr_t address);

  GridOrder& grid_;
  const Order* order_ = nullptr;
  Epoch launch_begin_ = 0;
  Epoch previous_begin_ = 0;  // of all launches that may still go on
  bool next_begins_first_ = false;
  std::array<Page*, 256> recent_ = {};
  absl::flat_hash_map<uintptr_t, Page*> pages_;
  std::vector<void*> chunks_;  // of kChunkPages pages each
  size_t num_used_ = 0;        // pages of the last chunk
};

}  // namespace reprise::emulator

#endif  // REPRISE_TESTS_EMULATOR_GLOBAL_SHADOW_H_
