// SPDX-License-Identifier: Apache-2.0
// Thread style: a kernel body written from the view of one GPU thread, for kernels that place every
// lane's work themselves. This page is the contract; cuda/thread.h and hip/thread.h provide it, or
// a header that the target names (platform.h). Not compiled for the host device: its native bodies
// are block style.
//
// Indices: ThreadX, BlockThreads, BlockX, BlockY, GridX, GridY, Lane, Warp, kWarpSize.
//
// Synchronisation: SyncBlock, all threads of the block; orders shared and global accesses.
// SyncWarp, all lanes of the warp; orders their accesses. Shuffle(x, lane), ShuffleXor(x, mask),
// ShuffleUp(x, by): 32- and 64-bit x, all lanes of the warp take part; orders nothing. AnyLane(x):
// whether x is true in any lane, likewise.
//
// Kernels of a stream: WaitForPrevious returns once the kernel enqueued before this one has ended,
// and what it wrote can be read. LetNextBegin: blocks of the next kernel may begin where there is
// room for them, once every block of this one has called it, by any thread, or has ended. Where
// kernels begin early, a kernel so begins before the one ahead of it has ended, and what it does
// before it waits hides the other's end. The rules that make this safe:
// - Until it has waited, a thread writes nothing, and reads nothing that the kernel before writes.
//   It waits before its block lets the next begin. What older kernels wrote can be read at once.
// - A short kernel between two long ones may say LetNextBeginFirst in place of LetNextBegin, before
//   it waits, so that the kernel behind it begins while the one ahead of it ends. What that one
//   reads before it waits, neither of the two then writes.
// - Block 0 waits, in some thread, even where it has nothing to do: so no kernel ends before one
//   that is older than it.
// BeginInOrder does both at once, BeginFirst the other way round; block style begins with one of
// them (block.h), a body in thread style calls it first where it does not place the two itself.
//
// Shared memory: REPRISE_SHARED(type, name), REPRISE_SHARED_ARRAY(type, name, count).
// SharedAddress(p) is its own 32-bit address, LoadShared<V> and StoreShared<V> go by it.
//
// Asynchronous copies: CopyAsync16, CopyAsync16OrZero, CopyAsyncCommit, CopyAsyncWait<pending>, of
// 16 bytes from global to shared memory. The bytes are there for the copying thread after its wait,
// for others after a barrier that follows the wait. Where the hardware has no such copies they run
// at once; a correct program cannot tell the difference.
//
// Barriers in shared memory: BarrierInit, BarrierArrive, BarrierArriveTimes (as so many arrivals),
// BarrierArriveExpectBytes, BarrierWait, BarrierWaitForEither (a phase of one of two barriers; the
// thread does not learn of which) and CopyBulk, where kHasSharedBarriers (targets with mma.sync;
// bulk copies, and arrivals but the plain one, where REPRISE_BULK_COPY).
// BarrierArriveAfterCopies: the thread goes on; it arrives once all CopyAsync16 that it began have
// landed, which it does not wait for. Products of a warpgroup read what landed so only with a
// FenceBulkCopies by the threads that multiply, after their BarrierWait.
// SyncThreads(n, barrier, turn): a barrier of the n threads that call it, whole warps, the same
// ones every time; turn counts them, and `barrier` was initialised with n arrivals. One per block.
// CopyBulkOnce is for what is read once: it is the first to leave the cache. Plain stores to shared
// memory, and BarrierInit, come before bulk copies to the same place only with a FenceBulkCopies by
// the thread that stored, before the barrier that orders the two.
//
// Between blocks: AtomicAdd and AtomicOr (relaxed), AtomicAddAcquireRelease, FenceDevice, and
// LoadFresh, a load that sees what other blocks wrote before their fence.
//
// Between blocks that all run at once (LaunchShape::cooperative), and there alone: a word that is
// added to by AtomicAddRelease, and waited for by WaitAtLeast. Who has waited sees what those who
// added to the word had done before, and what warp barriers and barriers in shared memory had
// ordered before that. AtomicMaxRelease and WaitAtLeastInBlock are the same on a word of shared
// memory, within a block. FenceBulkReads, by the thread that waited, comes before its bulk copies
// of what others stored in the same launch. A wait that takes kFlagPatienceNs ends the kernel with
// an error: whoever was to add never will.
//
// Host memory: LoadFromHost (16 bytes past every cache), FenceSystem, StoreToHost (release).
//
// Arithmetic: Exp2 (fast, 2 ulp), Exp, Log, Tanh (4 ulp), Rsqrt, Reciprocal (fast, 1 ulp), SinCos,
// Max, MultiplyAdd, MultiplyHigh, Infinity, QuietNaN, BitsOf, FloatOf, and Pack2<T>: two floats
// rounded to 16 bits each, in one register.
//
// A kernel: REPRISE_THREAD_KERNEL(name, fits, threads, min_blocks, body, Args) defines it over
// body(const Args&, unsigned char* shared); shared memory starts at a multiple of 1024 bytes. Where
// the constant `fits` is false the kernel is empty, and body is not compiled. min_blocks: of a
// multiprocessor; caps registers on CUDA. ReadAgain(args), of the kernel's own, is the same
// arguments, read where they are used: under a branch that is seldom taken, so that nothing of them
// takes a register before it.
// REPRISE_CLUSTER_KERNEL, with the same arguments, defines one whose blocks come in clusters of
// kClusterBlocks neighbours along x, which run at once (matrix_group.h); grids have whole clusters.
#ifndef REPRISE_KERNELS_DEVICE_THREAD_H_
#define REPRISE_KERNELS_DEVICE_THREAD_H_

#include "kernels/device/platform.h"
#include "kernels/device/traits.h"
#include "kernels/device/types.h"

#if !REPRISE_ON_GPU
#error "thread style is compiled for GPUs alone"
#endif
namespace reprise::kernels::REPRISE_DEVICE_NS {
inline constexpr int kClusterBlocks = 2;
}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#include REPRISE_THREAD_HEADER

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Byte offset of 16-byte chunk `chunk` of row `row` in a tile of rows of kChunks chunks (4, or a
// multiple of 8). Eight neighbouring rows of one chunk lie in eight different bank groups, and so
// do eight neighbouring chunks of one row: copies and fragment loads are free of conflicts. The
// tile starts at a multiple of its row size and of 128 bytes.
template <int kChunks>
REPRISE_FN uint32_t SwizzledOffset(uint32_t row, uint32_t chunk) {
  static_assert(kChunks == 4 || kChunks % 8 == 0);
  const uint32_t flip = kChunks == 4 ? (row >> 1) & 3u : row & 7u;
  return (row * kChunks + (chunk ^ flip)) * 16;
}

REPRISE_FN void BeginInOrder() {
  WaitForPrevious();
  LetNextBegin();
}
REPRISE_FN void BeginFirst() {
  LetNextBeginFirst();
  WaitForPrevious();
}
// As a kernel in block style begins.
template <typename Args>
REPRISE_FN void BeginBlock() {
  if constexpr (requires { Args::kLetsNextBeginFirst; }) {
    BeginFirst();
  } else {
    BeginInOrder();
  }
}

// Near 0, where 1 - 2 / (e^2x + 1) cancels, an odd polynomial. Both are computed: no lane waits for
// another's branch. Far from 0 the exponential is 0 or infinite, which its reciprocal takes.
REPRISE_FN float Tanh(float x) {
  const float magnitude = x < 0.0f ? -x : x, square = x * x;
  const float far =
      MultiplyAdd(-2.0f, Reciprocal(Exp2(magnitude * 2.8853900817779268f) + 1.0f), 1.0f);
  float p = -6.610227839e-03f;
  p = MultiplyAdd(p, square, 2.130938867e-02f);
  p = MultiplyAdd(p, square, -5.390942883e-02f);
  p = MultiplyAdd(p, square, 1.333311373e-01f);
  p = MultiplyAdd(p, square, -3.333333201e-01f);
  const float near = MultiplyAdd(x * square, p, x);
  return magnitude < 0.55f ? near : x < 0.0f ? -far : far;
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_DEVICE_THREAD_H_
