// SPDX-License-Identifier: Apache-2.0
// Logical clocks of a block; see order.h.
#include "tests/emulator/order.h"

#include <algorithm>
#include <cstring>

namespace reprise::emulator {
namespace {

// Vectors that may pile up before unused ones are looked for: 4 KiB each.
constexpr size_t kVectorsKept = 4096;

}  // namespace

bool Order::Begin(unsigned num_threads, unsigned block_threads, unsigned warp_size,
                  uint32_t clock) {
  const bool anew = max_clock_ > kMaxFirstClock;
  if (anew) {
    max_clock_ = 0;
    warp_base_.fill(0);
  }
  max_clock_ = std::max(max_clock_, clock);
  num_threads_ = num_threads;
  block_threads_ = block_threads;
  warp_size_ = warp_size;
  for (unsigned i = 0; i < num_threads; ++i) {
    threads_[i].warp = i / warp_size;
    threads_[i].known = nullptr;
  }
  known_phases_.fill(0);
  MeetBlock();
  first_epoch_ = block_base_;
  return !anew;
}

bool Order::Advance(uint32_t* clock) {
  *clock += 1;
  max_clock_ = std::max(max_clock_, *clock);
  return max_clock_ < kFirstCopyClock;
}

bool Order::StepOn() {
  Thread& self = threads_[IdOf(current_->epoch)];
  uint32_t clock = ClockOf(self.epoch);
  const bool ok = Advance(&clock);
  self.epoch = MakeEpoch(clock, IdOf(self.epoch));
  return ok;
}

bool Order::IsCopyBefore(Epoch e) const {
  const uint32_t id = IdOf(e);
  if (id == kInFlightId) return false;
  const Vector known = current_->known;
  const uint32_t phase = ClockOf(e) - kFirstCopyClock;
  const uint32_t barrier = id - kFirstCopierId;
  return phase < known_phases_[barrier] || (known != nullptr && phase < known[barrier]);
}

void Order::LearnCopies(Vector known) {
  for (unsigned b = 0; b < kMaxBarriers; ++b) {
    known_phases_[b] = std::max(known_phases_[b], known[b]);
  }
}

bool Order::MeetBlock() {
  uint32_t clock = max_clock_;
  const bool ok = Advance(&clock);
  block_base_ = MakeEpoch(clock, 0);
  Vector last = nullptr;
  for (unsigned i = 0; i < num_threads_; ++i) {
    Thread& thread = threads_[i];
    if (thread.known != last && thread.known != nullptr) LearnCopies(last = thread.known);
    thread.known = nullptr;
    thread.epoch = MakeEpoch(clock, i);
  }
  join_a_ = join_b_ = joined_ = nullptr;
  if (unused_.size() < vectors_.size()) {
    unused_.clear();
    for (const auto& vector : vectors_) unused_.push_back(vector.get());
  }
  return ok;
}

bool Order::MeetBlockOfCluster(unsigned block) {
  CollectVectors();
  uint32_t clock = max_clock_;
  const bool ok = Advance(&clock);
  const unsigned begin = block * block_threads_, end = begin + block_threads_;
  uint32_t* const known = NewVector(nullptr);
  Vector last = nullptr;
  for (unsigned i = begin; i < end; ++i) {
    const Vector more = threads_[i].known;
    if (more == last || more == nullptr) continue;
    last = more;
    for (unsigned j = 0; j < num_entries(); ++j) known[j] = std::max(known[j], more[j]);
  }
  for (unsigned i = begin; i < end; ++i) {
    known[kMaxBarriers + i] = ClockOf(threads_[i].epoch);
    threads_[i].known = known;
    threads_[i].epoch = MakeEpoch(clock, i);
    warp_base_[threads_[i].warp] = MakeEpoch(clock, 0);
  }
  return ok;
}

bool Order::MeetWarp(unsigned warp) {
  CollectVectors();
  uint32_t clock = max_clock_;
  const bool ok = Advance(&clock);
  const unsigned begin = warp * warp_size_;
  warp_base_[warp] = MakeEpoch(clock, 0);
  Vector known = threads_[begin].known;
  for (unsigned i = begin; i < begin + warp_size_; ++i) known = Join(known, threads_[i].known);
  for (unsigned i = begin; i < begin + warp_size_; ++i) {
    threads_[i].known = known;
    threads_[i].epoch = MakeEpoch(clock, i);
  }
  return ok;
}

void Order::Own(Released* released) {
  if (released->vector == nullptr || released->is_shared) {
    *released = {.vector = NewVector(released->vector), .is_shared = false, .joined = nullptr};
  }
}

bool Order::Release(Released* into) {
  CollectVectors();
  Own(into);
  Thread& self = threads_[IdOf(current_->epoch)];
  const unsigned id = IdOf(self.epoch);
  const uint32_t clock = ClockOf(self.epoch);
  uint32_t* const vector = into->vector;
  if (self.known != nullptr && self.known != into->joined) {
    for (unsigned i = 0; i < num_entries(); ++i) vector[i] = std::max(vector[i], self.known[i]);
    into->joined = self.known;
  }
  uint32_t* const clocks = vector + kMaxBarriers;
  if (warp_base_[self.warp] > block_base_) {
    const uint32_t known = ClockOf(warp_base_[self.warp]) - 1;
    const unsigned begin = self.warp * warp_size_;
    for (unsigned i = begin; i < begin + warp_size_; ++i) clocks[i] = std::max(clocks[i], known);
  }
  clocks[id] = std::max(clocks[id], clock);
  return StepOn();
}

void Order::ReleasePhases(Released* into, unsigned barrier, uint32_t num_completed) {
  CollectVectors();
  Own(into);
  into->vector[barrier] = num_completed;
}

void Order::Acquire(unsigned thread, Vector from) {
  CollectVectors();
  Thread& self = threads_[thread];
  self.known = Join(self.known, from);
}

Order::Vector Order::Join(Vector a, Vector b) {
  if (a == b || b == nullptr) return a;
  if (a == nullptr) return b;
  if (a == join_a_ && b == join_b_) return joined_;
  bool a_covers = true, b_covers = true;
  for (unsigned i = 0; i < num_entries(); ++i) {
    a_covers &= a[i] >= b[i];
    b_covers &= b[i] >= a[i];
  }
  Vector joined = a_covers ? a : b;
  if (!a_covers && !b_covers) {
    uint32_t* both = NewVector(a);
    for (unsigned i = 0; i < num_entries(); ++i) both[i] = std::max(both[i], b[i]);
    joined = both;
  }
  join_a_ = a;
  join_b_ = b;
  return joined_ = joined;
}

uint32_t* Order::NewVector(Vector copied_from) {
  if (unused_.empty()) {
    vectors_.push_back(std::make_unique<uint32_t[]>(kMaxEntries));
    unused_.push_back(vectors_.back().get());
  }
  uint32_t* vector = unused_.back();
  unused_.pop_back();
  if (copied_from != nullptr) {
    std::memcpy(vector, copied_from, num_entries() * sizeof(uint32_t));
  } else {
    std::memset(vector, 0, num_entries() * sizeof(uint32_t));
  }
  return vector;
}

void Order::CollectVectors() {
  if (!unused_.empty() || vectors_.size() < kVectorsKept) return;
  join_a_ = join_b_ = joined_ = nullptr;
  std::vector<Vector> used;
  list_vectors(&used);
  for (unsigned i = 0; i < num_threads_; ++i) used.push_back(threads_[i].known);
  std::sort(used.begin(), used.end());
  for (const auto& vector : vectors_) {
    if (!std::binary_search(used.begin(), used.end(), vector.get())) {
      unused_.push_back(vector.get());
    }
  }
}

}  // namespace reprise::emulator
