// SPDX-License-Identifier: Apache-2.0
// What has been done to every byte of shared memory, by whom and from where: finds accesses that
// conflict with an earlier one and are not ordered after it, and reads of what nobody wrote. It
// decides; block_runner.h tells.
//
// One cell stands for a word of 4 bytes while accesses take whole words; a smaller access splits
// the word into four cells of a byte, and the next write of the whole word joins them. A cell keeps
// its last write, and of the reads since then up to three that are not ordered among themselves:
// enough that a write by any thread that has synchronised with its own warp alone, or with nobody,
// meets one of them.
#ifndef REPRISE_TESTS_EMULATOR_SHADOW_H_
#define REPRISE_TESTS_EMULATOR_SHADOW_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "tests/emulator/order.h"

namespace reprise::emulator {

// Low half of an address in the program: where an access stands in the code.
using Place = uint32_t;

// One access.
struct Mark {
  Epoch epoch = 0;
  Place place = 0;
};

enum class AccessKind : uint8_t { kRead, kWrite, kAtomicRead, kAtomicWrite, kAtomicUpdate };
constexpr bool Reads(AccessKind k) {
  return k != AccessKind::kWrite && k != AccessKind::kAtomicWrite;
}
constexpr bool Writes(AccessKind k) {
  return k != AccessKind::kRead && k != AccessKind::kAtomicRead;
}
constexpr bool IsAtomic(AccessKind k) { return k >= AccessKind::kAtomicRead; }

class Shadow {
 public:
  // What an access conflicts with. kNothing: it is fine.
  struct Conflict {
    enum class Kind : uint8_t { kNothing, kUninitialised, kWrite, kRead } kind = Kind::kNothing;
    Mark earlier;  // of kWrite and kRead
    size_t offset = 0;
    explicit operator bool() const { return kind != Kind::kNothing; }
  };

  // Throws std::runtime_error when there is no memory to be had.
  explicit Shadow(const Order& order);
  ~Shadow();
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  // Forgets everything. Otherwise a new block starts with what Order calls new epochs.
  void Clear();
  // Forgets `bytes` from `offset` on.
  void Clear(size_t offset, size_t bytes);

  // An access of the current thread. Nothing is noted of an access that conflicts.
  template <AccessKind kKind>
  Conflict Access(size_t offset, size_t bytes, Place place) {
    if (((offset | bytes) & 3) == 0) [[likely]] {
      for (size_t word = offset / 4; word < (offset + bytes) / 4; ++word) {
        const Conflict conflict = AccessWord<kKind>(word, place);
        if (conflict) [[unlikely]]
          return conflict;
      }
      return {};
    }
    return AccessBytes<kKind>(offset, bytes, place);
  }

  // Notes the read that an access of the current thread would have been, whatever it conflicts
  // with.
  void NoteRead(size_t offset, Place place);

  // Makes `mark` the last access to all of the range, as a write: a copy that was started, or that
  // has landed.
  void Stamp(size_t offset, size_t bytes, const Mark& mark);

 private:
  static constexpr int kReads = 3;
  struct alignas(32) Cell {
    Mark write;
    std::array<Mark, kReads> reads;
  };
  // In a word's cell: ask the bytes' cells. No code lies at address 1.
  static constexpr Place kSplit = 1;

  template <AccessKind kKind>
  Conflict AccessWord(size_t word, Place place) {
    Cell& cell = words_[word];
    if (cell.write.place == kSplit) [[unlikely]]
      return AccessSplitWord<kKind>(word, place);
    return AccessCell<kKind>(cell, word * 4, place);
  }
  template <AccessKind kKind>
  Conflict AccessCell(Cell& cell, size_t offset, Place place) {
    using enum Conflict::Kind;
    const Mark write = cell.write;
    if (Reads(kKind) && write.epoch < order_.first_epoch()) [[unlikely]] {
      return {kUninitialised, {}, offset};
    }
    if (!order_.IsBefore(write.epoch) && !(IsAtomic(kKind) && emulator::IsAtomic(write.epoch)))
        [[unlikely]] {
      return {kWrite, write, offset};
    }
    const Mark mark = {order_.epoch() | Epoch{IsAtomic(kKind)}, place};
    if (!Writes(kKind)) {
      NoteRead(cell, mark);
      return {};
    }
    for (const Mark& read : cell.reads) {
      if (!order_.IsBefore(read.epoch) && !(IsAtomic(kKind) && emulator::IsAtomic(read.epoch)))
          [[unlikely]] {
        return {kRead, read, offset};
      }
    }
    cell.write = mark;
    cell.reads = {};
    return {};
  }
  void NoteRead(Cell& cell, const Mark& mark) {
    for (Mark& read : cell.reads) {
      if (order_.IsBefore(read.epoch)) {  // a write after `mark` is after `read` too
        read = mark;
        return;
      }
    }
    NoteOneReadMore(cell, mark);
  }
  void NoteOneReadMore(Cell& cell, const Mark& mark);
  template <AccessKind kKind>
  Conflict AccessSplitWord(size_t word, Place place);
  template <AccessKind kKind>
  Conflict AccessBytes(size_t offset, size_t bytes, Place place);
  void Split(size_t word);

  const Order& order_;
  Cell* words_ = nullptr;
  Cell* bytes_ = nullptr;
};

}  // namespace reprise::emulator

#endif  // REPRISE_TESTS_EMULATOR_SHADOW_H_
