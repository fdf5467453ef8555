// SPDX-License-Identifier: Apache-2.0
// The contract's functions, each with its caller's place; see kernel_interface.h.
#include <atomic>
#include <string>

#include "tests/emulator/block_runner.h"
#include "tests/emulator/kernel_interface.h"

// In the function that kernels call: inlined elsewhere it would name the wrong caller.
#define REPRISE_CALLER PlaceOf(__builtin_return_address(0))

namespace reprise::emulator {
namespace {

BlockRunner& Runner() { return *running_block.runner; }

}  // namespace

const ThreadIndex& Self() { return Runner().self(); }

void SyncBlock() { Runner().SyncBlock(REPRISE_CALLER); }

void SyncWarp() { Runner().SyncWarp(REPRISE_CALLER); }

const std::byte* Exchange(const void* mine, size_t bytes) {
  return Runner().Exchange(mine, bytes, REPRISE_CALLER);
}

std::byte* DynamicShared() { return Runner().arena().dynamic(); }

void* StaticShared(const void* key, size_t bytes, size_t alignment) {
  return Runner().Static(key, bytes, alignment, REPRISE_CALLER);
}

uint32_t SharedAddress(const void* p) {
  const size_t offset = Runner().SharedOffset(p, "the argument of SharedAddress", REPRISE_CALLER);
  return static_cast<uint32_t>(offset - Runner().arena().own_begin() - Arena::kLeadBytes);
}

std::byte* SharedPointer(uint32_t address) {
  return Runner().SharedPointer(address, REPRISE_CALLER);
}

void CopyAsync(void* shared, const void* global, size_t bytes) {
  Runner().CopyAsync(shared, global, bytes, REPRISE_CALLER);
}

void CopyAsyncCommit() { Runner().CopyAsyncCommit(); }

void CopyAsyncWait(int pending) { Runner().CopyAsyncWait(pending, REPRISE_CALLER); }

void BarrierInit(uint64_t* barrier, uint32_t arrivals) {
  Runner().BarrierInit(barrier, arrivals, REPRISE_CALLER);
}

void BarrierArrive(uint64_t* barrier) { Runner().BarrierArrive(barrier, 0, REPRISE_CALLER); }

void BarrierArriveExpectBytes(uint64_t* barrier, uint32_t bytes) {
  Runner().BarrierArrive(barrier, bytes, REPRISE_CALLER);
}

void BarrierArriveAfterCopies(uint64_t* barrier) {
  Runner().BarrierArriveAfterCopies(barrier, REPRISE_CALLER);
}

void BarrierWait(uint64_t* barrier, uint32_t phase) {
  Runner().BarrierWait(barrier, phase, /*for_peers=*/false, REPRISE_CALLER);
}

void BarrierWaitForEither(uint64_t* a, uint64_t* b, uint32_t phase) {
  Runner().BarrierWaitForEither(a, b, phase, REPRISE_CALLER);
}

void SyncCluster() { Runner().SyncCluster(REPRISE_CALLER); }

uint32_t PeerAddress(uint32_t address, int block) {
  return Runner().PeerAddress(address, block, REPRISE_CALLER);
}

void StoreAtPeer(uint32_t at_peer, const void* value, uint32_t barrier_at_peer) {
  Runner().StoreAtPeer(at_peer, value, barrier_at_peer, REPRISE_CALLER);
}

void FinishSharedReads() { Runner().FinishSharedReads(); }

void BarrierArriveAtPeer(uint32_t barrier_at_peer) {
  Runner().BarrierArriveAtPeer(barrier_at_peer, REPRISE_CALLER);
}

void BarrierWaitForPeers(uint64_t* barrier, uint32_t phase) {
  Runner().BarrierWait(barrier, phase, /*for_peers=*/true, REPRISE_CALLER);
}

void CopyBulk(void* shared, const void* global, size_t bytes, uint64_t* barrier) {
  Runner().CopyBulk(shared, global, bytes, barrier, REPRISE_CALLER);
}

void CopyTile(void* shared, const runtime::TileMap& map, const int32_t* at, int rank,
              uint64_t* barrier) {
  Runner().CopyTile(shared, map, at, rank, barrier, REPRISE_CALLER);
}

uint32_t AtomicAdd(uint32_t* address, uint32_t value) {
  Runner().AccessAny<AccessKind::kAtomicUpdate>(address, sizeof(*address), REPRISE_CALLER);
  return std::atomic_ref(*address).fetch_add(value, std::memory_order_relaxed);
}

uint64_t AtomicAdd(uint64_t* address, uint64_t value) {
  Runner().AccessAny<AccessKind::kAtomicUpdate>(address, sizeof(*address), REPRISE_CALLER);
  return std::atomic_ref(*address).fetch_add(value, std::memory_order_relaxed);
}

uint32_t AtomicOr(uint32_t* address, uint32_t value) {
  Runner().AccessAny<AccessKind::kAtomicUpdate>(address, sizeof(*address), REPRISE_CALLER);
  return std::atomic_ref(*address).fetch_or(value, std::memory_order_relaxed);
}

uint32_t AtomicAddAcquireRelease(uint32_t* address, uint32_t value) {
  Runner().Fence();
  Runner().AccessAny<AccessKind::kAtomicUpdate>(address, sizeof(*address), REPRISE_CALLER);
  const uint32_t before = std::atomic_ref(*address).fetch_add(value, std::memory_order_acq_rel);
  Runner().OrderByAtomic(address);
  return before;
}

void AtomicAddRelease(uint32_t* address, uint32_t value) {
  Runner().Fence();
  Runner().AccessAny<AccessKind::kAtomicUpdate>(address, sizeof(*address), REPRISE_CALLER);
  std::atomic_ref(*address).fetch_add(value, std::memory_order_release);
  Runner().ReleaseByAtomic(address);
}

uint32_t AtomicMaxRelease(uint32_t* address, uint32_t value) {
  Runner().Fence();
  Runner().AccessAny<AccessKind::kAtomicUpdate>(address, sizeof(*address), REPRISE_CALLER);
  std::atomic_ref word(*address);
  uint32_t before = word.load(std::memory_order_relaxed);
  while (before < value && !word.compare_exchange_weak(before, value, std::memory_order_release)) {
  }
  Runner().ReleaseByAtomic(address);
  return before;
}

void WaitAtLeast(const uint32_t* address, uint32_t value) {
  Runner().WaitAtLeast(address, value, REPRISE_CALLER);
}

void FenceDevice() {
  Runner().Fence();
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void WaitForPrevious() { Runner().WaitForPrevious(); }

void LetNextBegin() { Runner().LetNextBegin(REPRISE_CALLER); }
void LetNextBeginFirst() { Runner().LetNextBeginFirst(); }

}  // namespace reprise::emulator
