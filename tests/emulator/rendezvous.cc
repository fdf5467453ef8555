// SPDX-License-Identifier: Apache-2.0
// Who waits and who goes on: the schedule, barriers of block and warp, exchanges, and what is said
// when nobody can go on. See block_runner.h.
#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "tests/emulator/block_runner.h"

namespace reprise::emulator {

void BlockRunner::SwitchTo(Thread* next) {
  Thread* const self = current_;
  current_ = next;
  if (!next->polls) CountStep();
  order_.SetCurrent(next->id);
  if (next->block != self->block) [[unlikely]]
    arena_.Select(next->block);
  Switch(self->point, next->point);
  if (abandoning_) [[unlikely]]
    LeaveForGood(outside_);
}

void BlockRunner::GoOn() {
  Thread* const next = Pick();
  if (next == current_) return;
  if (next != nullptr) return SwitchTo(next);
  Switch(current_->point, outside_);  // all have ended
  if (abandoning_) LeaveForGood(outside_);
}

BlockRunner::Thread* BlockRunner::Pick() {
  if (!bulk_copies_.empty()) LandSomeBulk();
  if (!peer_stores_.empty()) [[unlikely]]
    LandSomeStores();
  while (num_ready_ == 0) {
    if (num_ended_ == num_threads_) return nullptr;
    if (bulk_copies_.empty() && peer_stores_.empty()) FailStuck();
    LandOne();
  }
  const uint32_t i = random_.Below(num_ready_);
  const uint16_t thread = ready_[i];
  ready_[i] = ready_[--num_ready_];
  return threads_[thread].get();
}

void BlockRunner::SyncBlock(Place place) {
  Thread& self = *current_;
  Rendezvous& meeting = blocks_[self.block];
  if (meeting.num_arrived++ == 0) meeting.place = place;
  if (place != meeting.place) CheckSamePlace("block barrier", meeting.place, place);
  self.waits = Waits::kBlock;
  self.place = place;
  if (meeting.num_arrived == block_threads_) {
    meeting = {};
    if (num_blocks_ == 1) {
      MeetAll();
    } else if (kChecksAccesses) {
      CheckClocks(order_.MeetBlockOfCluster(self.block));
    }
    const unsigned first = self.block * block_threads_;
    for (unsigned i = first; i < first + block_threads_; ++i) MakeReady(i);
  }
  GoOn();
}

// All threads, also of a cluster, know all that was done before.
void BlockRunner::MeetAll() {
  if (!kChecksAccesses) return;
  for (Barrier& barrier : barriers_) {
    barrier.released = {};
    barrier.completed = nullptr;
  }
  atomics_.clear();
  grid_->MeetBlock();
  CheckClocks(order_.MeetBlock());
}

void BlockRunner::SyncWarp(Place place) { MeetWarp(Waits::kWarp, 0, place); }

const std::byte* BlockRunner::Exchange(const void* mine, size_t bytes, Place place) {
  if (bytes > kExchangeBytes) {
    Fail([&] {
      return absl::StrCat("Exchange of ", bytes, " bytes; allowed: ", kExchangeBytes, "\n  at ",
                          Describe(place));
    });
  }
  Thread& self = *current_;
  const unsigned lane = self.id & (warp_size_ - 1);
  const size_t slot_bytes = warp_size_ * kExchangeBytes;
  // A lane that is one exchange ahead writes to the other slot; two ahead it cannot be.
  std::byte* const slot = private_.exchanged() + (self.id - lane) * 2 * kExchangeBytes +
                          self.exchange_slot * slot_bytes;
  self.exchange_slot ^= 1;
  std::memcpy(slot + lane * kExchangeBytes, mine, bytes);
  MeetWarp(Waits::kExchange, bytes, place);
  return slot;
}

void BlockRunner::MeetWarp(Waits kind, size_t bytes, Place place) {
  Thread& self = *current_;
  const unsigned first = self.id & ~(warp_size_ - 1);
  const unsigned warp = self.id / warp_size_;
  Rendezvous& meeting = warps_[warp];
  if (meeting.num_arrived++ == 0) {
    meeting.place = place;
    meeting.kind = kind;
    meeting.bytes = bytes;
  }
  if (place != meeting.place) CheckSamePlace("rendezvous of a warp", meeting.place, place);
  if (kind != meeting.kind || bytes != meeting.bytes) {
    Fail([&] {
      return absl::StrCat("divergent rendezvous of a warp: one lane exchanges ", meeting.bytes,
                          " bytes, ", NameOf(self.id), " ", bytes, " (0: SyncWarp)\n  at ",
                          Describe(place));
    });
  }
  self.waits = kind;
  self.place = place;
  if (meeting.num_arrived == warp_size_) {
    meeting = {};
    if (kChecksAccesses && kind == Waits::kWarp) CheckClocks(order_.MeetWarp(warp));
    if (num_blocks_ > 1 && kind == Waits::kWarp) NoteUnfinishedReads(warp);
    for (unsigned i = first; i < first + warp_size_; ++i) MakeReady(i);
  }
  GoOn();
}

// Compilers copy calls, so two addresses may be one place of the source.
void BlockRunner::CheckSamePlace(const char* what, Place first, Place place) {
  std::pair<Place, Place>& known = same_places_[(first ^ (place >> 4)) % same_places_.size()];
  if (known == std::pair(first, place)) return;
  if (!IsSameSource(first, place)) {
    Fail([&] {
      return absl::StrCat("divergent ", what, ": ", NameOf(current_->id), " came to ",
                          Describe(place), "\n  others wait at ", Describe(first));
    });
  }
  known = {first, place};
}

void BlockRunner::CheckClocks(bool ok) {
  if (ok) return;
  Fail([] {
    return absl::StrCat("one block met more often than its clocks can count (at least ",
                        kFirstCopyClock / 2, " times)");
  });
}

void BlockRunner::FailStuck() {
  Fail([&] {
    if (!uninitialised_.empty()) return std::move(uninitialised_);
    const char* what = "divergent threads";
    const auto end = threads_.begin() + num_threads_;
    const auto wait_for = [&](Waits waits) {
      return std::any_of(threads_.begin(), end, [&](const auto& t) { return t->waits == waits; });
    };
    if (wait_for(Waits::kCluster)) what = "divergent cluster barrier";
    if (wait_for(Waits::kBlock)) what = "divergent block barrier";
    return absl::StrCat(what, ": nobody can go on", DescribeWaiting());
  });
}

// One line for each group of threads that wait for the same.
std::string BlockRunner::DescribeWaiting() const {
  using Key = std::tuple<unsigned, Waits, Place, uint32_t, uint32_t>;
  std::map<Key, std::vector<unsigned>> groups;
  for (unsigned i = 0; i < num_threads_; ++i) {
    const Thread& t = *threads_[i];
    const bool ended = t.waits == Waits::kEnded;
    const bool at_barrier = t.waits == Waits::kBarrier;
    groups[Key(t.block, t.waits, ended ? 0 : t.place, at_barrier ? t.barrier : 0,
               at_barrier ? t.phase : 0)]
        .push_back(t.index.thread);
  }
  std::string text;
  for (const auto& [key, threads] : groups) {
    const auto& [block, waits, place, barrier, phase] = key;
    absl::StrAppend(&text, "\n  ", num_blocks_ == 1 ? "" : NameOfBlock(block) + ": ",
                    threads.size(), threads.size() == 1 ? " thread (" : " threads (");
    for (size_t i = 0; i < threads.size(); ++i) {
      size_t last = i;
      while (last + 1 < threads.size() && threads[last + 1] == threads[last] + 1) ++last;
      absl::StrAppend(&text, i == 0 ? "" : ", ", threads[i]);
      if (last > i) absl::StrAppend(&text, "-", threads[last]);
      i = last;
    }
    absl::StrAppend(&text, ") ");
    if (waits == Waits::kEnded) {
      absl::StrAppend(&text, "ended");
      continue;
    }
    if (waits == Waits::kBlock) absl::StrAppend(&text, "wait for the block");
    if (waits == Waits::kCluster) absl::StrAppend(&text, "wait for the cluster");
    if (waits == Waits::kWarp) absl::StrAppend(&text, "wait for their warp");
    if (waits == Waits::kExchange) absl::StrAppend(&text, "exchange with their warp");
    if (waits == Waits::kBarrier) {
      absl::StrAppend(&text, "wait for phase ", phase, " of the barrier at ",
                      arena_.Describe(barriers_[barrier].offset));
    }
    absl::StrAppend(&text, " at ", Describe(place));
  }
  return text;
}

}  // namespace reprise::emulator
