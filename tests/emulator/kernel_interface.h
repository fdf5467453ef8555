// SPDX-License-Identifier: Apache-2.0
// What thread-style kernel code calls when it is compiled for the emulator: GPU threads as fibers
// on the CPU. Declarations alone: the executor is behind them. Kernels do not call this: they call
// the device layer's thread.h and matrix.h, which device/thread.h and device/matrix.h here provide.
//
// A misuse that a GPU would answer with wrong results or a hang (a race on shared or global memory,
// a barrier that part of the block does not reach, an access outside shared memory or before
// anything was written there, an asynchronous copy read before it landed) ends the block with an
// exception, which the host device reports as the launch's error.
#ifndef REPRISE_TESTS_EMULATOR_KERNEL_INTERFACE_H_
#define REPRISE_TESTS_EMULATOR_KERNEL_INTERFACE_H_

#include <cstddef>
#include <cstdint>

#include "runtime/device.h"
#include "runtime/tile_map.h"

namespace reprise::emulator {

// ---- the calling thread ----

struct ThreadIndex {
  unsigned thread = 0;  // in its block
  unsigned block_threads = 0;
  unsigned warp_size = 0;
  unsigned block_x = 0, block_y = 0;
  unsigned grid_x = 0, grid_y = 0;
};
// REQUIRES: called by code that RunBlock runs. So for everything below but RunBlock.
const ThreadIndex& Self();

// ---- synchronisation ----

// All threads of the block; orders their accesses.
void SyncBlock();
// All lanes of the warp; orders their accesses.
void SyncWarp();
// All lanes of the warp: each gives `bytes` (at most kExchangeBytes) and gets everybody's, lane i's
// at offset i * kExchangeBytes. Valid until the lane's next Exchange. Orders no accesses, as a
// shuffle does not.
inline constexpr size_t kExchangeBytes = 64;
const std::byte* Exchange(const void* mine, size_t bytes);

// ---- shared memory ----

// Dynamic shared memory, aligned to 1024 bytes.
std::byte* DynamicShared();
// A variable that the block shares: the same memory for the same key in all its threads. Starts
// uninitialised in every block.
void* StaticShared(const void* key, size_t bytes, size_t alignment);
// Shared memory's own 32-bit addresses: byte offsets, dynamic shared memory at 0.
uint32_t SharedAddress(const void* p);
std::byte* SharedPointer(uint32_t address);

// ---- asynchronous copies (of the calling thread) ----

// Starts a copy of `bytes` to shared memory; zeros where `global` is null. It lands when waited
// for, not before; until then the target holds no defined value.
void CopyAsync(void* shared, const void* global, size_t bytes);
// Closes the thread's group of copies; empty groups count.
void CopyAsyncCommit();
// Lands all but the thread's `pending` newest groups. Other threads see them after a barrier.
void CopyAsyncWait(int pending);

// ---- barriers in shared memory ----

// As mbarrier: a phase completes with `arrivals` arrivals and all announced bytes; phases count
// from 0. Everything written before an arrival is visible to those that waited for its phase.
void BarrierInit(uint64_t* barrier, uint32_t arrivals);
void BarrierArrive(uint64_t* barrier);
// Arrives, and announces bytes of bulk copies that must land too.
void BarrierArriveExpectBytes(uint64_t* barrier, uint32_t bytes);
// Arrives, and announces the calling thread's copies that have not landed: they land at some moment
// before the phase completes, and the thread waits for them no more.
void BarrierArriveAfterCopies(uint64_t* barrier);
// Blocks until phase number `phase` is complete. Nobody may be more than one phase behind.
void BarrierWait(uint64_t* barrier, uint32_t phase);
// Blocks until phase number `phase` of one of two is complete: which, the thread does not learn.
void BarrierWaitForEither(uint64_t* a, uint64_t* b, uint32_t phase);
// One thread starts a copy of `bytes` (a multiple of 16) to shared memory that completes on a
// barrier, and lands at some moment before the phase completes.
void CopyBulk(void* shared, const void* global, size_t bytes, uint64_t* barrier);
// The same for the tile of a matrix, as the host's MapTiles maps it, that begins at `at`, as many
// numbers as the matrix has dimensions; `rank` is what the caller takes it to have. All bytes of
// the tile land, zeros where it lies beyond the matrix.
void CopyTile(void* shared, const runtime::TileMap& map, const int32_t* at, int rank,
              uint64_t* barrier);

// ---- blocks of a cluster ----

// All threads of all blocks of the cluster; orders their accesses.
void SyncCluster();
// Of a shared address, the same place in the shared memory of that block of the cluster, for what
// follows alone.
uint32_t PeerAddress(uint32_t address, int block);
// Starts a store of 16 bytes, which completes on a barrier of the same block and lands at some
// moment before the phase completes.
void StoreAtPeer(uint32_t at_peer, const void* value, uint32_t barrier_at_peer);
// What the thread has read of shared memory is there.
void FinishSharedReads();
// As BarrierArrive. REQUIRES: all lanes that read shared memory since have called FinishSharedReads
// before the warp's last SyncWarp.
void BarrierArriveAtPeer(uint32_t barrier_at_peer);
// As BarrierWait, which is an error where peers arrive or store.
void BarrierWaitForPeers(uint64_t* barrier, uint32_t phase);

// ---- atomics and fences on shared or global memory ----

// Between blocks, and for global memory within one: what comes before a fence that comes before an
// atomic is ordered before what comes after a fence that comes after a later atomic on that word.

uint32_t AtomicAdd(uint32_t* address, uint32_t value);  // relaxed
uint64_t AtomicAdd(uint64_t* address, uint64_t value);  // relaxed
uint32_t AtomicOr(uint32_t* address, uint32_t value);   // relaxed
uint32_t AtomicAddAcquireRelease(uint32_t* address, uint32_t value);
void AtomicAddRelease(uint32_t* address, uint32_t value);
uint32_t AtomicMaxRelease(uint32_t* address, uint32_t value);
// Returns once the word is at least `value`, and acquires. Ends the block where nobody is left who
// could add to it; in a cooperative launch of several blocks, where it takes too long.
void WaitAtLeast(const uint32_t* address, uint32_t value);
void FenceDevice();

// ---- kernels of a stream ----

// Whether kernels overlap is not emulated: what would go wrong is found. A thread of a kernel whose
// limits say waits_for_previous may, until it has waited, touch nothing that the launch before
// touched, where one of the two writes. Nor what the one before that touched, if a thread of the
// launch before said LetNextBeginFirst; and so on.
void WaitForPrevious();
void LetNextBegin();
void LetNextBeginFirst();

// ---- running ----

// What of a GPU bounds its blocks.
struct BlockLimits {
  unsigned warp_size = 0;
  size_t shared_bytes = 0;  // dynamic and static together; static ones count in steps of 1024
  bool waits_for_previous = false;  // runtime::KernelDef's
  unsigned cluster = 1;             // blocks of a cluster, neighbours along x
};

// Runs one block: context.block_threads fibers (a multiple of the warp size), each calling
// body(argument) once. The schedule is pseudo-random, from the seed, the block's index and a count
// of blocks run. argument_bytes: of what lies at `argument` and no block writes, a kernel's
// parameters. Throws std::runtime_error with what went wrong and where.
//
// Blocks of one body and argument are one launch until all of its grid have run, also where one
// throws; they take turns, whatever threads they are on. Thread: any; launches are independent.
// Several blocks of a cooperative launch wait for each other, so these run at once, each on an OS
// thread of its own, and races between them are not looked for.
//
// Blocks of a cluster run as one, when the last of them comes: on its thread, and it throws for all
// of them. The calls for the others return at once; they may be on one thread, one after another.
void RunBlock(const runtime::HostBlockContext& context, const BlockLimits& limits,
              void (*body)(void*), void* argument, size_t argument_bytes = 0);

}  // namespace reprise::emulator

#endif  // REPRISE_TESTS_EMULATOR_KERNEL_INTERFACE_H_
