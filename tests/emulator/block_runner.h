// SPDX-License-Identifier: Apache-2.0
// BlockRunner: runs the threads of one block on one OS thread, as fibers, in a pseudo-random order,
// and holds everything that belongs to the block. Everything below is called by the running fiber,
// on its own stack, except for Run. A violation ends the block: its fiber hands over to Run, which
// throws, and the stacks of the others are taken for the next block, since kernels own nothing.
//
// The blocks of a cluster (cluster.h) run as one: their threads are fibers of one OS thread, among
// which the schedule chooses as among those of one block, and one Order knows what came before
// what. Threads have numbers in all of them, `id`; what kernels see is of their own block.
//
// rendezvous.cc: who waits and who goes on. barriers.cc: barriers in shared memory and copies.
// atomics.cc: atomics and fences. cluster.cc: what blocks of a cluster do with each other.
// violations.cc: what is said of accesses. block_runner.cc: the rest.
#ifndef REPRISE_TESTS_EMULATOR_BLOCK_RUNNER_H_
#define REPRISE_TESTS_EMULATOR_BLOCK_RUNNER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
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
  void SyncCluster(Place place);
  void SyncWarp(Place place);
  const std::byte* Exchange(const void* mine, size_t bytes, Place place);

  void CopyAsync(void* shared, const void* global, size_t bytes, Place place);
  void CopyAsyncCommit() { ++current_->num_committed; }
  void CopyAsyncWait(int pending, Place place);

  void BarrierInit(uint64_t* barrier, uint32_t arrivals, Place place);
  void BarrierArrive(uint64_t* barrier, uint32_t bytes, Place place);
  void BarrierArriveAfterCopies(uint64_t* barrier, Place place);
  void BarrierWait(uint64_t* barrier, uint32_t phase, bool for_peers, Place place);
  void BarrierWaitForEither(uint64_t* a, uint64_t* b, uint32_t phase, Place place);
  void CopyBulk(void* shared, const void* global, size_t bytes, uint64_t* barrier, Place place);
  void CopyTile(void* shared, const runtime::TileMap& map, const int32_t* at, int rank,
                uint64_t* barrier, Place place);

  uint32_t PeerAddress(uint32_t address, int block, Place place);
  void StoreAtPeer(uint32_t at_peer, const void* value, uint32_t barrier_at_peer, Place place);
  void FinishSharedReads() { current_->read_at = 0; }
  void BarrierArriveAtPeer(uint32_t barrier_at_peer, Place place);
  // Where an address of the block's shared memory points.
  std::byte* SharedPointer(uint32_t address, Place place) {
    if (address >> 28 == kPeerTag) [[unlikely]]
      FailPeerAddress(address, place);
    // Addresses before dynamic memory wrap around.
    return arena_.dynamic() + static_cast<int32_t>(address);
  }

  // An atomic that releases and acquires has been done, behind a fence.
  void OrderByAtomic(const void* address);
  // One that releases, likewise.
  void ReleaseByAtomic(const void* address);
  void WaitAtLeast(const uint32_t* address, uint32_t value, Place place);
  void Fence();

  // The launch before has ended, as far as the current thread is concerned.
  void WaitForPrevious() { current_->has_waited = true; }
  void LetNextBegin(Place place);
  void LetNextBeginFirst() { global_->LetNextBeginFirst(); }

  // Checks an access to this block's part of the arena before it is done; `offset` may be anywhere
  // in it.
  template <AccessKind kKind>
  void Access(size_t offset, size_t bytes, Place place) {
    if (!arena_.Holds(offset, bytes)) [[unlikely]]
      FailOutOfBounds(kKind, offset, bytes, place);
    const Shadow::Conflict conflict = shadow_.Access<kKind>(offset, bytes, place);
    if (conflict) [[unlikely]]
      FailConflict(kKind, bytes, conflict, place);
    if constexpr (kKind == AccessKind::kRead) current_->read_at = place;
  }
  // The same where checks of accesses are built, for any address.
  template <AccessKind kKind>
  void AccessIfShared(const void* address, size_t bytes, Place place) {
    if (!kChecksAccesses) return;
    const auto offset =
        static_cast<size_t>(static_cast<const std::byte*>(address) - arena_.begin());
    if (offset < Arena::kAllBytes) Access<kKind>(offset, bytes, place);
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
           static_cast<size_t>(p - arena_.begin()) >= Arena::kAllBytes;
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
  enum class Waits : uint8_t {
    kNot,
    kBlock,
    kCluster,
    kWarp,
    kExchange,
    kBarrier,
    kForGood,
    kEnded
  };
  struct AsyncCopy {
    size_t offset = 0;  // in the arena
    const void* from = nullptr;
    size_t bytes = 0;
    uint32_t group = 0;
    Place place = 0;
  };
  struct Thread {
    Thread(const PrivateMemory& memory, unsigned i)
        : stack(memory.stack(i), i), index(memory.index(i)), id(i) {}
    FiberStack stack;
    Suspended point;
    ThreadIndex& index;  // kernels look at it: private memory
    const unsigned id;   // in all blocks
    unsigned block = 0;  // of the cluster
    Waits waits = Waits::kEnded;
    bool in_body = false;
    bool begun = false;  // the fiber stands in its loop
    Place place = 0;     // of what it waits for
    unsigned exchange_slot = 0;
    uint32_t barrier = 0, phase = 0;  // waited for
    bool has_waited = true;           // for the launch before
    bool polls = false;               // it looks at a word again and again
    Place read_at = 0;                // a read of shared memory since FinishSharedReads; 0: none
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
    uint32_t num_sent_phases = 0;       // up to the last that a peer arrived in or stored for
    Order::Released released = {};      // by arrivals
    Order::Vector completed = nullptr;  // what was released when the last phase completed
  };
  // What lands at once, on a barrier: a bulk copy, or a thread's copies.
  struct BulkCopy {
    std::vector<AsyncCopy> copies;
    unsigned thread = 0;
    uint32_t barrier = 0;
  };
  struct PeerStore {
    std::array<std::byte, 16> value;
    size_t offset = 0;  // in the arena
    unsigned thread = 0;
    uint32_t barrier = 0;
    Place place = 0;
  };
  // A thread that had not finished its reads when its warp last met.
  struct UnfinishedRead {
    unsigned thread = 0;
    Place place = 0;  // 0: none
  };
  // What a barrier's word holds, with its index: nobody else may write it.
  static constexpr uint64_t kBarrierMagic = 0x62617272'00000000;
  // The upper bits of addresses that PeerAddress returns. The block's number follows, of 4 bits.
  static constexpr uint32_t kPeerTag = 8;
  static constexpr int kPeerBlockShift = 24;
  static_assert(Arena::kBytes <= size_t{1} << kPeerBlockShift && kMaxClusterBlocks <= 16);

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

  // ---- violations.cc ----
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
  // "thread 33 (warp 1, lane 1)", in a cluster with its block.
  std::string NameOf(unsigned thread) const;
  std::string NameInBlock(unsigned thread) const;
  std::string NameOfBlock(unsigned block) const;

  // ---- rendezvous.cc ----
  // Suspends the current thread, which waits or has ended; returns when it may go on.
  void GoOn();
  void SwitchTo(Thread* next);
  Thread* Pick();
  void MeetAll();
  void MakeReady(unsigned thread) {
    threads_[thread]->waits = Waits::kNot;
    ready_[num_ready_++] = static_cast<uint16_t>(thread);
  }
  void MeetWarp(Waits kind, size_t bytes, Place place);
  void CheckSamePlace(const char* what, Place first, Place place);
  void CheckClocks(bool ok);
  [[noreturn]] void FailStuck();
  std::string DescribeWaiting() const;

  // ---- atomics.cc ----
  Order::Released& ReleasedAt(const void* address);
  // A thread that does not poll goes on.
  void CountStep();
  [[noreturn]] void FailNeverAdded(const uint32_t* address, uint32_t value, Place place);

  // ---- barriers.cc ----
  Barrier& FindBarrier(const uint64_t* barrier, Place place);
  Barrier& BarrierAt(size_t offset, Place place) {
    uint64_t word;
    std::memcpy(&word, arena_.begin() + offset, sizeof(word));
    const uint64_t index = word ^ kBarrierMagic;
    if (index >= barriers_.size() || barriers_[index].offset != offset) [[unlikely]]
      FailNoBarrier(offset, place);
    return barriers_[index];
  }
  [[noreturn]] void FailNoBarrier(size_t offset, Place place);
  void Arrive(Barrier& barrier, uint32_t bytes, Place place);
  void CompleteIfDone(Barrier& barrier);
  void CheckPhase(const Barrier& b, uint32_t phase, Place place);
  [[noreturn]] void FailOvertaken(const Barrier& barrier, uint32_t phase, Place place);
  void AcquirePhase(Barrier& barrier, unsigned thread);
  // Sets pieces_.
  void CutTile(const runtime::TiledMatrix& matrix, const int32_t* at, size_t offset, Place place);
  // Of pieces_.
  void StartBulk(Barrier& barrier);
  void LandBulk(size_t index);
  void LandSomeBulk();
  // Any one of what is in flight.
  void LandOne();
  void MarkInFlight(size_t offset, size_t bytes, Place place);
  void Land(const AsyncCopy& copy, Epoch epoch);

  // ---- cluster.cc ----
  [[noreturn]] void FailPeerAddress(uint32_t address, Place place);
  // The offset in the arena, of `bytes` there that a block may be sent.
  size_t PeerOffset(uint32_t at_peer, size_t bytes, const char* what, Place place);
  Barrier& PeerBarrier(uint32_t at_peer, Place place);
  void LandStore(size_t index);
  void LandSomeStores();
  void NoteUnfinishedReads(unsigned warp);
  void CheckReadsAreFinished(Place place);
  void EndThreadOfCluster();
  std::string FindUnreceived() const;

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

  unsigned num_blocks_ = 1;     // of the cluster
  unsigned num_threads_ = 0;    // of all blocks
  unsigned block_threads_ = 0;  // of each
  unsigned warp_size_ = 1;
  unsigned num_ended_ = 0;
  unsigned num_ready_ = 0;
  std::array<uint16_t, kMaxThreads> ready_;
  std::array<Rendezvous, kMaxClusterBlocks> blocks_;
  std::array<Rendezvous, kMaxThreads> warps_;
  Rendezvous cluster_;
  std::array<unsigned, kMaxClusterBlocks> num_ended_of_block_ = {};  // of clusters alone
  std::array<UnfinishedRead, kMaxThreads> unfinished_;               // by warp, likewise
  // Pairs of places found to be the same source.
  std::array<std::pair<Place, Place>, 16> same_places_ = {};

  std::vector<Barrier> barriers_;
  std::vector<AsyncCopy> pieces_;                   // of the bulk copy that starts; null: zeros
  std::vector<BulkCopy> bulk_copies_;               // in flight
  std::vector<PeerStore> peer_stores_;              // likewise
  std::vector<std::pair<size_t, size_t>> stamped_;  // ranges with marks of copies
  std::vector<std::pair<const void*, Order::Released>> atomics_;

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
