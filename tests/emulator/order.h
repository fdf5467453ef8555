// SPDX-License-Identifier: Apache-2.0
// Which accesses of a block happened before which, as its barriers order them: logical clocks. It
// knows threads, warps and barriers, but no memory: shadow.h asks it about two accesses.
//
// Every thread has a clock, and an access has an epoch: its thread and that thread's clock then.
// What thread t knows of thread u's past is the latest of three clocks:
//
//   - the base: all accesses before all threads last met, at a block barrier, are older;
//
//   - the base of t's warp, where u is of the same warp;
//
//   - an entry in t's vector, which passes through barriers in shared memory and through atomics.
//
// Bases make block and warp barriers cheap. Vectors are immutable and shared; most kernels have
// none. Blocks of a cluster have one order: their own barriers pass on vectors, and all threads
// meet at the barriers of the cluster. Copies that land on a barrier have clocks of their own,
// which no thread's clock covers: only waiting for the phase does.
#ifndef REPRISE_TESTS_EMULATOR_ORDER_H_
#define REPRISE_TESTS_EMULATOR_ORDER_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tests/emulator/emulator.h"

namespace reprise::emulator {

// clock << 12 | id << 1 | atomic. Ordered by clock first, so that a base is one comparison.
using Epoch = uint32_t;

constexpr uint32_t ClockOf(Epoch e) { return e >> 12; }
constexpr uint32_t IdOf(Epoch e) { return (e >> 1) & 0x7ff; }
constexpr bool IsOfOneThread(Epoch a, Epoch b) { return ((a ^ b) & 0xffe) == 0; }
constexpr bool IsAtomic(Epoch e) { return (e & 1) != 0; }
constexpr Epoch MakeEpoch(uint32_t clock, uint32_t id) { return clock << 12 | id << 1; }

// Clocks from here on belong to copies: a barrier's phase number, or a copy that has not landed.
inline constexpr uint32_t kFirstCopyClock = 1u << 19;
inline constexpr uint32_t kMaxPhases = kFirstCopyClock - 2;
// A block or a launch that would begin above this starts clocks anew.
inline constexpr uint32_t kMaxFirstClock = kFirstCopyClock / 2;
inline constexpr uint32_t kFirstCopierId = kMaxThreads;  // plus the barrier's index
inline constexpr uint32_t kInFlightId = 0x7ff;
inline constexpr Epoch kInFlight = MakeEpoch(0xfffff, kInFlightId);

constexpr bool IsCopier(Epoch e) { return IdOf(e) >= kFirstCopierId && IdOf(e) != kInFlightId; }

class Order {
 public:
  // Phases of barriers, then clocks of threads. Immutable, but for what a Released owns.
  using Vector = const uint32_t*;
  // What has been released into a barrier or an atomic.
  struct Released {
    uint32_t* vector = nullptr;
    bool is_shared = false;   // somebody else has it too: it stays as it is
    Vector joined = nullptr;  // the last thread's vector that was added
  };

  // A block of threads, or blocks of block_threads each, none of which has done anything; their
  // clocks are above `clock`. Returns false when clocks have started anew, so that epochs kept from
  // earlier blocks mean nothing any more.
  bool Begin(unsigned num_threads, unsigned block_threads, unsigned warp_size, uint32_t clock);

  // Whose accesses and calls are meant by what follows.
  void SetCurrent(unsigned thread) { current_ = &threads_[thread]; }
  Epoch epoch() const { return current_->epoch; }
  // Epochs below are older than the block: nothing was accessed there.
  Epoch first_epoch() const { return first_epoch_; }
  // The largest clock of any thread so far.
  uint32_t max_clock() const { return max_clock_; }

  // What the current thread knows, for grid_order.h: all below the block's base, of its warp all
  // below the warp's, and of each thread the accesses up to its clock; null: none that say more.
  Epoch block_base() const { return block_base_; }
  Epoch warp_base() const { return warp_base_[current_->warp]; }
  const uint32_t* known_clocks() const {
    return current_->known == nullptr ? nullptr : current_->known + kMaxBarriers;
  }
  unsigned num_threads() const { return num_threads_; }
  unsigned warp_size() const { return warp_size_; }
  // Starts a new epoch of the current thread. Returns false when the clocks are used up.
  bool StepOn();

  // Whether what has epoch `e` happened before what the current thread does next.
  bool IsBefore(Epoch e) const {
    if (e < block_base_ || IsOfOneThread(e, current_->epoch)) return true;
    const uint32_t id = IdOf(e);
    if (id >= kFirstCopierId) [[unlikely]]
      return IsCopyBefore(e);
    const Thread& self = *current_;
    if (threads_[id].warp == self.warp && e < warp_base_[self.warp]) return true;
    return self.known != nullptr && ClockOf(e) <= self.known[kMaxBarriers + id];
  }

  // The same for global memory: of what other blocks of the cluster did, only what came before all
  // threads met. What peers say to each other by barriers in shared memory orders no more.
  bool IsBeforeOnGlobal(Epoch e) const {
    return IsBefore(e) && (block_threads_ == num_threads_ || e < block_base_ ||
                           IdOf(e) / block_threads_ == IdOf(current_->epoch) / block_threads_);
  }

  // All threads meet; `vectors` of barriers and atomics that are kept elsewhere are to be dropped.
  // Calls return false when the clocks are used up.
  bool MeetBlock();
  // The threads of one block of several.
  bool MeetBlockOfCluster(unsigned block);
  bool MeetWarp(unsigned warp);

  // Adds what the current thread has done and knows to `*into`, and starts a new epoch of the
  // thread.
  bool Release(Released* into);
  // Adds the phases that completed on a barrier to `*into`.
  void ReleasePhases(Released* into, unsigned barrier, uint32_t num_completed);
  // What has been released so far.
  static Vector Share(Released* released) {
    released->is_shared = true;
    return released->vector;
  }
  // `thread` learns `from`, which may be null.
  void Acquire(unsigned thread, Vector from);
  static Epoch CopyEpoch(unsigned barrier, uint32_t phase) {
    return MakeEpoch(kFirstCopyClock + phase, kFirstCopierId + barrier);
  }

  // Vectors in use beside the threads' own, asked for when unused ones are to be found.
  std::function<void(std::vector<Vector>*)> list_vectors;

 private:
  static constexpr unsigned kMaxEntries = kMaxBarriers + kMaxThreads;
  struct Thread {
    Epoch epoch = 0;
    uint32_t warp = 0;
    Vector known = nullptr;
  };

  bool IsCopyBefore(Epoch e) const;
  uint32_t* NewVector(Vector copied_from);
  void Own(Released* released);
  unsigned num_entries() const { return kMaxBarriers + num_threads_; }
  // Between operations only: what one has in its hands is in no list.
  void CollectVectors();
  Vector Join(Vector a, Vector b);
  void LearnCopies(Vector known);
  bool Advance(uint32_t* clock);

  unsigned num_threads_ = 0;
  unsigned block_threads_ = 0;
  unsigned warp_size_ = 1;
  uint32_t max_clock_ = 0;  // of any thread
  Epoch first_epoch_ = 0;
  Epoch block_base_ = 0;
  const Thread* current_ = nullptr;
  std::array<Thread, kMaxThreads> threads_;
  std::array<Epoch, kMaxThreads> warp_base_ = {};
  std::array<uint32_t, kMaxBarriers> known_phases_ = {};  // by all threads of the block
  // The last join, which all lanes of a warp tend to repeat.
  Vector join_a_ = nullptr, join_b_ = nullptr, joined_ = nullptr;
  std::vector<std::unique_ptr<uint32_t[]>> vectors_;
  std::vector<uint32_t*> unused_;
};

}  // namespace reprise::emulator

#endif  // REPRISE_TESTS_EMULATOR_ORDER_H_
