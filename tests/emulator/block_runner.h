// SPDX-License-Identifier: Apache-2.0
// BlockRunner: runs the threads of one block on one OS thread, as fibers, in a pseudo-random order,
// and holds everything that belongs to the block. Everything below is called by the running fiber,
// on its own stack, except for Run. A violation ends the block: its fiber hands over to Run, which
// throws, and the stacks of the others are taken for the next block, since kernels own nothing.
//
// rendezvous.cc: who waits and who goes on. barriers.cc: barriers in shared memory and copies.
// block_runner.cc: the rest.
#ifndef REPRISE_TESTS_EMULATOR_BLOCK_RUNNER_H_
#define REPRISE_TESTS_EMULATOR_BLOCK_RUNNER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device.h"
#include "runtime/tile_map.h"
#include "tests/emulator/arena.h"
#include "tests/emulator/fiber.h"
#include "tests/emulator/kernel_interface.h"
#include "tests/emulator/launch.h"
#include "tests/emulator/order.h"
#include "tests/emulator/places.h"
#include "tests/emulator/private_memory.h"
#include "tests/emulator/shadow.h"

namespace reprise::emulator {

class Random {
 public:
  explicit Random(uint64_t seed = 0) : state_(seed) {}
  // In [0, n).
  uint32_t Below(uint32_t n) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(((state_ >> 32) * n) >> 32);
  }

 private:
  uint64_t state_;
};

class BlockRunner {
 public:
  // This OS thread's.
  static BlockRunner& OfThisThread();
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  void Run(const runtime::HostBlockContext& context, const BlockLimits& limits, void (*body)(void*),
           void* argument, size_t argument_bytes);

  const ThreadIndex& self() const { return current_->index; }
  Arena& arena() { return arena_; }
  void* Static(const void* key, size_t bytes, size_t alignment, Place place);

  void SyncBlock(Place place);
  void SyncWarp(Place place);
  const std::byte* Exchange(const void* mine, size_t bytes, Place place);

  void CopyAsync(void* shared, const void* global, size_t bytes, Place place);
  void CopyAsyncCommit() { ++current_->num_committed; }
  void CopyAsyncWait(int pending, Place place);

  void BarrierInit(uint64_t* barrier, uint32_t arrivals, Place place);
  void BarrierArrive(uint64_t* barrier, uint32_t bytes, Place place);
  void BarrierArriveAfterCopies(uint64_t* barrier, Place place);
  void BarrierWait(uint64_t* barrier, uint32_t phase, Place place);
  void CopyBulk(void* shared, const void* global, size_t bytes, uint64_t* barrier, Place place);
  void CopyTile(void* shared, const runtime::TileMap& map, const int32_t* at, int rank,
                uint64_t* barrier, Place place);

  // An atomic that releases and acquires has been done, behind a fence.
  void OrderByAtomic(const void* address);
  // One that releases, likewise.
  void ReleaseByAtomic(const void* address);
  void WaitAtLeast(const uint32_t* address, uint32_t value, Place place);
  void Fence();

  // The launch before has ended, as far as the current thread is concerned.
  void WaitForPrevious() { current_->has_waited = has_waited_ = true; }
  void LetNextBegin(Place place);
  void LetNextBeginFirst() { global_->LetNextBeginFirst(); }

  // Checks an access to this block's arena before it is done; `offset` may be anywhere in it.
  template <AccessKind kKind>
  void Access(size_t offset, size_t bytes, Place place) {
    if (!arena_.Holds(offset, bytes)) [[unlikely]]
      FailOutOfBounds(kKind, offset, bytes, place);
    const Shadow::Conflict conflict = shadow_.Access<kKind>(offset, bytes, place);
    if (conflict) [[unlikely]]
      FailConflict(kKind, bytes, conflict, place);
  }
  // The same where checks of accesses are built, for any address.
  template <AccessKind kKind>
  void AccessIfShared(const void* address, size_t bytes, Place place) {
    if (!kChecksAccesses) return;
    const auto offset =
        static_cast<size_t>(static_cast<const std::byte*>(address) - arena_.begin());
    if (offset < Arena::kBytes) Access<kKind>(offset, bytes, place);
  }
  // Checks an access to what is neither shared nor private memory.
  template <AccessKind kKind>
  void AccessGlobal(const void* address, size_t bytes, Place place) {
    const auto at = reinterpret_cast<uintptr_t>(address);
    // What orders blocks that wait for each other passes through blocks that this one knows
    // nothing of.
    if (at - argument_begin_ < argument_bytes_ || runs_beside_others_) return;
    if (!current_->has_waited) [[unlikely]] {
      const GlobalShadow::Conflict early = global_->CompareWithPrevious(at, bytes, Writes(kKind));
      if (early) FailTooEarly(kKind, bytes, early, place);
    }
    const GlobalShadow::Conflict conflict = global_->Access<kKind>(at, bytes, place);
    if (conflict) [[unlikely]]
      FailGlobalConflict(kKind, bytes, conflict, place);
    if constexpr (IsAtomic(kKind)) grid_->Atomic(address, Reads(kKind), Writes(kKind));
  }
  // An access to memory of any kind, where checks of accesses are built.
  template <AccessKind kKind>
  void AccessAny(const void* address, size_t bytes, Place place) {
    if (!kChecksAccesses) return;
    if (IsGlobal(address)) return AccessGlobal<kKind>(address, bytes, place);
    AccessIfShared<kKind>(address, bytes, place);
  }
  bool IsGlobal(const void* address) const {
    const auto* const p = static_cast<const std::byte*>(address);
    return static_cast<size_t>(p - private_.begin()) >= PrivateMemory::kBytes &&
           static_cast<size_t>(p - arena_.begin()) >= Arena::kBytes;
  }
  // The offset in the arena of what must be shared memory.
  size_t SharedOffset(const void* p, const char* what, Place place);

  // Ends the block with what `compose` returns. Nothing of the caller's is destroyed, so what owns
  // memory must live in `compose`.
  template <typename Compose>
  [[noreturn]] void Fail(const Compose& compose) {
    failure_ = compose();
    HandOver();
  }

 private:
  enum class Waits : uint8_t { kNot, kBlock, kWarp, kExchange, kBarrier, kForGood, kEnded };
  struct AsyncCopy {
    size_t offset = 0;  // in the arena
    const void* from = nullptr;
    size_t bytes = 0;
    uint32_t group = 0;
    Place place = 0;
  };
  struct Thread {
    Thread(const PrivateMemory& memory, unsigned i)
        : stack(memory.stack(i), i), index(memory.index(i)) {}
    FiberStack stack;
    Suspended point;
    ThreadIndex& index;  // kernels look at it: private memory
    Waits waits = Waits::kEnded;
    bool in_body = false;
    bool begun = false;  // the fiber stands in its loop
    Place place = 0;     // of what it waits for
    unsigned exchange_slot = 0;
    uint32_t barrier = 0, phase = 0;  // waited for
    bool has_waited = true;           // for the launch before
    bool polls = false;               // it looks at a word again and again
    uint32_t num_committed = 0;       // groups of copies
    std::vector<AsyncCopy> copies;    // not landed, in the order of their issue
  };
  struct Rendezvous {
    unsigned num_arrived = 0;
    Place place = 0;  // of the first
    Waits kind = Waits::kNot;
    size_t bytes = 0;
  };
  struct Barrier {
    size_t offset = 0;
    uint32_t expected = 0;
    uint32_t missing = 0;       // arrivals
    int64_t bytes = 0;          // announced and not landed
    uint32_t num_complete = 0;  // phases
    uint32_t num_waited = 0;    // phases that somebody waited for
    uint32_t num_copies = 0;
    Order::Released released = {};      // by arrivals
    Order::Vector completed = nullptr;  // what was released when the last phase completed
  };
  // What lands at once, on a barrier: a bulk copy, or a thread's copies.
  struct BulkCopy {
    std::vector<AsyncCopy> copies;
    unsigned thread = 0;
    uint32_t barrier = 0;
  };

  BlockRunner();
  static void FiberMain();

  // ---- block_runner.cc ----
  [[noreturn]] void HandOver();
  void CheckShape(const runtime::HostBlockContext& context, const BlockLimits& limits) const;
  void Begin(const runtime::HostBlockContext& context, const BlockLimits& limits, Launch* launch);
  void ForgetCopies();
  void AbandonFibers();
  std::string FindUnlanded() const;
  void WaitForGood(AccessKind kind, size_t bytes, const Shadow::Conflict& conflict, Place place);
  [[noreturn]] void FailOutOfBounds(AccessKind kind, size_t offset, size_t bytes, Place place);
  [[noreturn]] void FailConflict(AccessKind kind, size_t bytes, const Shadow::Conflict& conflict,
                                 Place place);
  [[noreturn]] void FailTooEarly(AccessKind kind, size_t bytes,
                                 const GlobalShadow::Conflict& conflict, Place place);
  [[noreturn]] void FailGlobalConflict(AccessKind kind, size_t bytes,
                                       const GlobalShadow::Conflict& conflict, Place place);
  std::string DescribeConflict(AccessKind kind, size_t bytes, const Shadow::Conflict& conflict,
                               Place place) const;
  std::string DescribeEarlier(const Shadow::Conflict& conflict) const;
  std::string DescribeSelf(AccessKind kind, size_t bytes, Place place) const;
  unsigned FindIssuer(size_t offset) const;
  std::string NameOf(unsigned thread) const;

  // ---- rendezvous.cc ----
  // Suspends the current thread, which waits or has ended; returns when it may go on.
  void GoOn();
  void SwitchTo(Thread* next);
  Thread* Pick();
  void MakeReady(unsigned thread) {
    threads_[thread]->waits = Waits::kNot;
    ready_[num_ready_++] = static_cast<uint16_t>(thread);
  }
  void MeetWarp(Waits kind, size_t bytes, Place place);
  void CheckSamePlace(const char* what, Place first, Place place);
  void CheckClocks(bool ok);
  [[noreturn]] void FailStuck();
  std::string DescribeWaiting() const;

  // ---- barriers.cc ----
  Order::Released& ReleasedAt(const void* address);
  // A thread that does not poll goes on.
  void CountStep();
  [[noreturn]] void FailNeverAdded(const uint32_t* address, uint32_t value, Place place);
  Barrier& FindBarrier(const uint64_t* barrier, Place place);
  void CompleteIfDone(Barrier& barrier);
  [[noreturn]] void FailOvertaken(const Barrier& barrier, uint32_t phase, Place place);
  void AcquirePhase(Barrier& barrier, unsigned thread);
  // Sets pieces_.
  void CutTile(const runtime::TiledMatrix& matrix, const int32_t* at, size_t offset, Place place);
  // Of pieces_.
  void StartBulk(Barrier& barrier);
  void LandBulk(size_t index);
  void LandSomeBulk();
  void Land(const AsyncCopy& copy, Epoch epoch);

  PrivateMemory private_;
  Arena arena_;
  Order order_;
  Shadow shadow_;
  Random random_;
  std::vector<std::unique_ptr<Thread>> threads_;
  Suspended outside_;  // Run
  Thread* current_ = nullptr;
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  // The kernel's parameters, which a GPU keeps in constant memory.
  uintptr_t argument_begin_ = 0;
  size_t argument_bytes_ = 0;
  // The launch's, while the block has its turn; its own in a cooperative launch of several blocks.
  GridOrder* grid_ = nullptr;
  GlobalShadow* global_ = nullptr;
  std::unique_ptr<Launch> own_launch_;
  bool runs_beside_others_ = false;  // such a launch's
  uint32_t idle_looks_ = 0;          // of threads that poll, since another went on

  unsigned num_threads_ = 0;
  unsigned warp_size_ = 1;
  unsigned num_ended_ = 0;
  unsigned num_ready_ = 0;
  std::array<uint16_t, kMaxThreads> ready_;
  Rendezvous block_;
  std::array<Rendezvous, kMaxThreads> warps_;
  // Pairs of places found to be the same source.
  std::array<std::pair<Place, Place>, 16> same_places_ = {};

  std::vector<Barrier> barriers_;
  std::vector<AsyncCopy> pieces_;                   // of the bulk copy that starts; null: zeros
  std::vector<BulkCopy> bulk_copies_;               // in flight
  std::vector<std::pair<size_t, size_t>> stamped_;  // ranges with marks of copies
  std::vector<std::pair<const void*, Order::Released>> atomics_;

  bool has_waited_ = true;  // any thread, for the launch before
  bool abandoning_ = false;
  std::string uninitialised_;  // the first such read, of a thread that waits for good; "": none
  std::string failure_;        // "": none
};

// What the hooks of instrumented code look at first.
struct RunningBlock {
  uintptr_t private_begin = 0;
  uintptr_t shared_begin = 0;
  BlockRunner* runner = nullptr;  // null: no block runs
};
extern constinit thread_local RunningBlock running_block __attribute__((tls_model("initial-exec")));

}  // namespace reprise::emulator

#endif  // REPRISE_TESTS_EMULATOR_BLOCK_RUNNER_H_
