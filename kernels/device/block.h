// SPDX-License-Identifier: Apache-2.0
// Block style: a kernel body is written from the view of one thread block, as a sequence of phases.
// On a GPU a phase runs on all threads; on the host the same phase is a plain loop, run by one
// worker. The same body, native on both.
//
//   template <typename T>
//   REPRISE_FN void Body(Block& b, const Args& a) {
//     // Every thread gets the sum.
//     const float sum = b.Sum(a.n, [&](int i) { return ToFloat(a.x[i]); });
//     b.For(a.n, [&](int i) { a.y[i] = FromFloat<T>(ToFloat(a.x[i]) / sum); });
//   }
//   REPRISE_BLOCK_KERNEL(normalize_bf16, Threads(256), 0, Body<Bf16>, Args)
//
// REPRISE_BLOCK_KERNEL(name, threads, min_blocks, body, Args) defines a kernel; the product's are
// defined by their op's list (kernels/kernel_instance.h, which explains threads and min_blocks). It
// waits for the kernel before it, and lets the next one begin: then, or first where Args has a
// member kLetsNextBeginFirst (thread.h).
//
// Rules: a value written in one For and read by other threads in the next needs b.Sync() between
// them; locals outside a For must be the same in every thread; every thread of the block reaches
// every Sync, Sum, Max, Scan, Combine. Reductions have one fixed order per (n, threads), so they
// never depend on the rest of the batch.
//
// This page is the contract of Block; gpu/block.h and host/block.h provide it.
//
//   x, y, grid_x, grid_y, threads   which block this is, of how many, and its threads
//   Shared<T>(offset_bytes)         dynamic shared memory from a byte offset on
//   Sync()                          orders accesses of the block's threads
//
//   For(n, f)      f(i) for every i in [0, n), neighbouring i in neighbouring threads
//   Once(f)        f() once
//   Sum(n, f)      the sum of f(i), in every thread
//   Max(n, f)      the largest f(i), in every thread
//   ArgMax(n, f)   the largest f(i), the lowest i among equals; {-inf, 0xffffffff} when all are NaN
//                  or n is 0
//   For<kPerThread>(n, f), Sum<kPerThread>(n, f), Max<kPerThread>(n, f)
//                  the same over Local values: f(LocalIndex), n at most kPerThread * threads(). On
//                  a GPU a warp has kPerThread * its lanes of the indices, side by side
//   ExclusiveScan(n, get, put)
//                  put(i, sum of get(0..i-1)) for every i; returns the sum of all. get must not
//                  depend on put. An i falls to the thread that For gives it to, and a Sync follows
//                  the last put: what a For wrote for an i needs no Sync before the scan reads it
//                  for that i, and what put writes needs none after the scan
//
//   ScanTogether(n, get, put)
//                  the same of several sums at once: get(i) returns a struct whose `counts`, a
//                  Vec<uint32_t, k>, is summed; put(i, what get(i) returned, the sums). Returns the
//                  sums of all
//   Combine(n, none, get, op)
//                  op over get(i) of all i, in every thread; a struct of 32-bit words, op exact and
//                  in any order, none its neutral element
//
//   ArriveIsLast(counter, expected)
//                  called by every block that contributes to one result, after its writes: true in
//                  exactly the last of `expected` arrivals, which then sees all others' writes.
//                  Resets the counter for the next use. Contains Sync (last_arriver.h)
//   AtomicAdd(p, v), AtomicOr(p, v)
//                  integer atomics on memory that only this block touches, shared or global: sums
//                  and unions of integers do not depend on the order. The 32-bit sum returns what
//                  was there before
//   LoadFromHost(p)
//                  16 bytes of memory that the host writes, past every cache
//   PublishToHost(word, value)
//                  makes every earlier write of the block visible to the host, then stores.
//                  Contains Sync
//   ClockNs()      nanoseconds on the device's clock
#ifndef REPRISE_KERNELS_DEVICE_BLOCK_H_
#define REPRISE_KERNELS_DEVICE_BLOCK_H_

#include "kernels/device/platform.h"
#include "kernels/device/thread_count.h"
#include "kernels/device/types.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// A float and where it was found.
struct ValueIndex {
  float value;
  uint32_t index;
};

// The better of two for an arg-max: larger value, then lower index. NaN never wins.
REPRISE_FN ValueIndex Better(ValueIndex a, ValueIndex b) {
  if (b.value > a.value || (b.value == a.value && b.index < a.index)) return b;
  return a;
}

// An index of a phase over Local values, and which of its thread's values belongs to it.
struct LocalIndex {
  int i;
  int value_index;
};

// A T for every index in [0, n), n at most kPerThread * b.threads(), kept from phase to phase by
// the thread that the index falls to: in registers on a GPU, in an array on the host, whose one
// worker keeps the values of all threads. No other thread can see it, so it needs no Sync. Only
// phases with the same kPerThread may use it, whose callbacks get the LocalIndex:
//
//   Local<float, 2> x;
//   const float sum = b.Sum<2>(n, [&](LocalIndex at) { return x[at] = ToFloat(in[at.i]); });
//   b.For<2>(n, [&](LocalIndex at) { out[at.i] = FromFloat<T>(x[at] / sum); });
template <typename T, int kPerThread>
class Local {
 public:
  REPRISE_FN T& operator[](LocalIndex at) { return values_[at.value_index]; }

 private:
#if REPRISE_ON_GPU
  T values_[kPerThread];
#else
  T values_[kPerThread * 1024];
#endif
};

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

// The target's Block, over what stands above.
#if REPRISE_ON_GPU
#include "kernels/device/gpu/block.h"
#else
#include "kernels/device/host/block.h"
#endif

#endif  // REPRISE_KERNELS_DEVICE_BLOCK_H_
