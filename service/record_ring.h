// SPDX-License-Identifier: Apache-2.0
// RecordRing: records on their way from the threads that answer to the one that writes. Bounded:
// what does not fit is refused. Each place has a number that says whose turn it is: writer n of a
// place waits for n * capacity, its reader for one more (D. Vyukov's bounded queue). A place keeps
// its record from round to round, so that one that owns memory can use it again.
//
// Threads: Push and Fill from any number of threads; Pop and Take from one. None of them locks, or
// allocates beyond what copying a record does.
#ifndef REPRISE_SERVICE_RECORD_RING_H_
#define REPRISE_SERVICE_RECORD_RING_H_

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace reprise::service {

template <typename Record>
class RecordRing {
 public:
  // At least two, rounded up to a power of two.
  explicit RecordRing(size_t capacity) : places_(std::bit_ceil(capacity < 2 ? 2 : capacity)) {
    for (size_t i = 0; i < places_.size(); ++i) places_[i].turn.store(i, std::memory_order_relaxed);
  }

  size_t capacity() const { return places_.size(); }

  // False when the ring is full.
  bool Push(const Record& record) {
    return Fill([&record](Record& place) { place = record; });
  }
  // The same; `fill` writes the place's record, which holds what stood there a round ago. REQUIRES:
  // `fill` does not throw.
  template <typename FillPlace>
  bool Fill(const FillPlace& fill) {
    uint64_t at = next_push_.load(std::memory_order_relaxed);
    while (true) {
      Place& place = PlaceOf(at);
      const uint64_t turn = place.turn.load(std::memory_order_acquire);
      if (turn == at) {
        if (!next_push_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) continue;
        fill(place.record);
        place.turn.store(at + 1, std::memory_order_release);
        return true;
      }
      if (turn < at) return false;  // not read yet, a round later
      at = next_push_.load(std::memory_order_relaxed);
    }
  }

  // False when the ring is empty.
  bool Pop(Record* record) {
    return Take([record](const Record& place) { *record = place; });
  }
  // The same; `take` reads the place's record, and may change it.
  template <typename TakePlace>
  bool Take(const TakePlace& take) {
    Place& place = PlaceOf(next_pop_);
    if (place.turn.load(std::memory_order_acquire) != next_pop_ + 1) return false;
    take(place.record);
    place.turn.store(next_pop_ + places_.size(), std::memory_order_release);
    ++next_pop_;
    return true;
  }

 private:
  struct Place {
    std::atomic<uint64_t> turn = 0;
    Record record;
  };
  Place& PlaceOf(uint64_t at) { return places_[at & (places_.size() - 1)]; }

  std::vector<Place> places_;
  alignas(64) std::atomic<uint64_t> next_push_ = 0;
  alignas(64) uint64_t next_pop_ = 0;  // the reader's
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_RECORD_RING_H_
