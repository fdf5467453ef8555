// SPDX-License-Identifier: Apache-2.0
// The rarer cases of the shadow memory; see shadow.h.
#include "tests/emulator/shadow.h"

#include <sys/mman.h>

#include <algorithm>
#include <stdexcept>

#include "tests/emulator/arena.h"

namespace reprise::emulator {
namespace {

// Zero-filled, and costs nothing where it is not touched.
void* Reserve(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("emulator: no memory for shadow cells");
  return memory;
}

}  // namespace

Shadow::Shadow(const Order& order)
    : order_(order),
      words_(static_cast<Cell*>(Reserve(Arena::kAllBytes / 4 * sizeof(Cell)))),
      bytes_(static_cast<Cell*>(Reserve(Arena::kAllBytes * sizeof(Cell)))) {}

Shadow::~Shadow() {
  munmap(words_, Arena::kAllBytes / 4 * sizeof(Cell));
  munmap(bytes_, Arena::kAllBytes * sizeof(Cell));
}

void Shadow::Clear() {
  madvise(words_, Arena::kAllBytes / 4 * sizeof(Cell), MADV_DONTNEED);
  madvise(bytes_, Arena::kAllBytes * sizeof(Cell), MADV_DONTNEED);
}

void Shadow::Clear(size_t offset, size_t bytes) {
  const size_t begin = offset / 4;
  const size_t end = (offset + bytes + 3) / 4;
  std::fill(words_ + begin, words_ + end, Cell{});
  std::fill(bytes_ + begin * 4, bytes_ + end * 4, Cell{});
}

void Shadow::Stamp(size_t offset, size_t bytes, const Mark& mark) {
  for (size_t i = offset; i < offset + bytes;) {
    if (i % 4 == 0 && i + 4 <= offset + bytes) {
      words_[i / 4] = {.write = mark, .reads = {}};
      i += 4;
      continue;
    }
    Split(i / 4);
    bytes_[i] = {.write = mark, .reads = {}};
    ++i;
  }
}

void Shadow::NoteRead(size_t offset, Place place) {
  Cell& word = words_[offset / 4];
  const bool is_split = word.write.place == kSplit && word.write.epoch >= order_.first_epoch();
  NoteRead(is_split ? bytes_[offset] : word, {.epoch = order_.epoch(), .place = place});
}

void Shadow::NoteOneReadMore(Cell& cell, const Mark& mark) {
  // Three reads that nothing orders are there already. Two of one warp are as good as three.
  const uint32_t warp = IdOf(mark.epoch) / 32;
  int of_warp = 0;
  for (const Mark& read : cell.reads) of_warp += IdOf(read.epoch) / 32 == warp ? 1 : 0;
  if (of_warp >= 2) return;
  for (int i = 0; i < kReads; ++i) {
    for (int j = 0; j < i; ++j) {
      if (IdOf(cell.reads[i].epoch) / 32 == IdOf(cell.reads[j].epoch) / 32) {
        cell.reads[i] = mark;
        return;
      }
    }
  }
  cell.reads[warp % kReads] = mark;
}

void Shadow::Split(size_t word) {
  Cell& cell = words_[word];
  if (cell.write.place == kSplit && cell.write.epoch >= order_.first_epoch()) return;
  Cell whole = cell;
  if (whole.write.place == kSplit) whole = {};  // of an earlier block
  std::fill_n(bytes_ + word * 4, 4, whole);
  cell = {.write = {.epoch = order_.epoch(), .place = kSplit}, .reads = {}};
}

template <AccessKind kKind>
Shadow::Conflict Shadow::AccessSplitWord(size_t word, Place place) {
  Cell& cell = words_[word];
  if (cell.write.epoch < order_.first_epoch()) {  // of an earlier block
    cell = {};
    return AccessCell<kKind>(cell, word * 4, place);
  }
  for (size_t i = word * 4; i < word * 4 + 4; ++i) {
    const Conflict conflict = AccessCell<kKind>(bytes_[i], i, place);
    if (conflict) return conflict;
  }
  if (Writes(kKind)) cell = bytes_[word * 4];
  return {};
}

template <AccessKind kKind>
Shadow::Conflict Shadow::AccessBytes(size_t offset, size_t bytes, Place place) {
  for (size_t i = offset; i < offset + bytes;) {
    if (i % 4 == 0 && i + 4 <= offset + bytes) {
      const Conflict conflict = AccessWord<kKind>(i / 4, place);
      if (conflict) return conflict;
      i += 4;
      continue;
    }
    Split(i / 4);
    const Conflict conflict = AccessCell<kKind>(bytes_[i], i, place);
    if (conflict) return conflict;
    ++i;
  }
  return {};
}

#define REPRISE_INSTANTIATE(kind)                                                                \
  template Shadow::Conflict Shadow::AccessSplitWord<AccessKind::kind>(size_t word, Place place); \
  template Shadow::Conflict Shadow::AccessBytes<AccessKind::kind>(size_t offset, size_t bytes,   \
                                                                  Place place);
REPRISE_INSTANTIATE(kRead)
REPRISE_INSTANTIATE(kWrite)
REPRISE_INSTANTIATE(kAtomicRead)
REPRISE_INSTANTIATE(kAtomicWrite)
REPRISE_INSTANTIATE(kAtomicUpdate)
#undef REPRISE_INSTANTIATE

}  // namespace reprise::emulator
