// SPDX-License-Identifier: Apache-2.0
// Pages of cells, and the rarer accesses; see global_shadow.h.
#include "tests/emulator/global_shadow.h"

#include <sys/mman.h>

#include "runtime/check.h"

namespace reprise::emulator {
namespace {

// A page of cells is 33 KB for 4 KiB of memory.
constexpr size_t kChunkPages = 32;
// 128 MB of cells: more are given back when the next launch begins.
constexpr size_t kMaxPagesKept = 4096;

}  // namespace

void GlobalShadow::BeginLaunch() {
  if (!next_begins_first_) previous_begin_ = launch_begin_;
  next_begins_first_ = false;
  if (pages_.size() > kMaxPagesKept) Forget();
}

void GlobalShadow::Forget() {
  recent_ = {};
  pages_.clear();
  for (void* chunk : chunks_) munmap(chunk, kChunkPages * sizeof(Page));
  chunks_.clear();
}

GlobalShadow::Page& GlobalShadow::FindPage(uintptr_t number) {
  Page*& page = pages_[number];
  if (page == nullptr) {
    if (chunks_.empty() || num_used_ == kChunkPages) {
      void* const chunk = mmap(nullptr, kChunkPages * sizeof(Page), PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      REPRISE_CHECK(chunk != MAP_FAILED);  // nothing may be thrown through an instrumented access
      chunks_.push_back(chunk);
      num_used_ = 0;
    }
    page = static_cast<Page*>(chunks_.back()) + num_used_++;  // all zeros, and nothing else in it
    page->number = number;
  }
  return *(recent_[number % recent_.size()] = page);
}

GlobalShadow::Conflict GlobalShadow::CompareWithPrevious(uintptr_t address, size_t bytes,
                                                         bool writes) {
  for (uintptr_t word = address / 4; word <= (address + bytes - 1) / 4; ++word) {
    Page& page = PageOf(word);
    const size_t i = word % kPageWords;
    for (size_t m = 0; m < page.cells[i].size(); ++m) {
      const Mark& mark = page.cells[i][m];
      const bool wrote = m == kWrite || (page.IsSplit(i) && m % 2 == 0);
      if (mark.epoch != 0 && mark.epoch >= previous_begin_ && IsStale(mark.epoch) &&
          (wrote || writes))
        return {mark, wrote, word * 4};
    }
  }
  return {};
}

void GlobalShadow::Split(Page& page, size_t i) {
  Cell& cell = page.cells[i];
  Mark read = cell[kEarlierRead];
  for (size_t r = kFirstRead; r < cell.size() && IsStale(read.epoch); ++r) read = cell[r];
  cell = {cell[kWrite], read, cell[kWrite], read};
  page.SetSplit(i, true);
}

template <AccessKind kKind>
GlobalShadow::Conflict GlobalShadow::AccessSplitWord(Page& page, uintptr_t word, Place place) {
  const size_t i = word % kPageWords;
  Cell& cell = page.cells[i];
  bool is_stale = true;
  for (const Mark& mark : cell) is_stale &= IsStale(mark.epoch);
  if (is_stale) {
    cell = {};
    page.SetSplit(i, false);
    return AccessWord<kKind>(word, place);
  }
  for (uintptr_t half = word * 2; half < word * 2 + 2; ++half) {
    const Conflict conflict = AccessHalf<kKind>(half, place);
    if (conflict) return conflict;
  }
  if (Writes(kKind)) {
    cell = {MarkOf<kKind>(place)};
    page.SetSplit(i, false);
  }
  return {};
}

template <AccessKind kKind>
GlobalShadow::Conflict GlobalShadow::AccessPieces(uintptr_t address, size_t bytes, Place place) {
  for (uintptr_t at = address; at < address + bytes;) {
    const size_t left = address + bytes - at;
    Conflict conflict;
    if (at % 4 == 0 && left >= 4) {
      conflict = AccessWord<kKind>(at / 4, place);
      at += 4;
    } else if (at % 2 == 0 && left >= 2) {
      conflict = AccessHalf<kKind>(at / 2, place);
      at += 2;
    } else {
      conflict = CompareByte<kKind>(at);
      at += 1;
    }
    if (conflict) return conflict;
  }
  return {};
}

template <AccessKind kKind>
GlobalShadow::Conflict GlobalShadow::CompareByte(uintptr_t address) {
  Page& page = PageOf(address / 4);
  const size_t i = address / 4 % kPageWords;
  const Cell& cell = page.cells[i];
  const bool is_split = page.IsSplit(i);
  const size_t write = is_split ? address / 2 % 2 * 2 : size_t{kWrite};
  if (!MayFollow<kKind>(cell[write])) return {cell[write], true, address};
  if (!Writes(kKind)) return {};
  const size_t end = is_split ? write + 2 : cell.size();
  for (size_t r = write + 1; r < end; ++r) {
    if (!MayFollow<kKind>(cell[r])) return {cell[r], false, address};
  }
  return {};
}

#define REPRISE_INSTANTIATE(kind)                                                  \
  template GlobalShadow::Conflict GlobalShadow::AccessSplitWord<AccessKind::kind>( \
      Page & page, uintptr_t word, Place place);                                   \
  template GlobalShadow::Conflict GlobalShadow::AccessPieces<AccessKind::kind>(    \
      uintptr_t address, size_t bytes, Place place);
REPRISE_INSTANTIATE(kRead)
REPRISE_INSTANTIATE(kWrite)
REPRISE_INSTANTIATE(kAtomicRead)
REPRISE_INSTANTIATE(kAtomicWrite)
REPRISE_INSTANTIATE(kAtomicUpdate)
#undef REPRISE_INSTANTIATE

}  // namespace reprise::emulator
