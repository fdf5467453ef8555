// SPDX-License-Identifier: Apache-2.0
// The last arriver: several blocks contribute to one result, each writes its part and arrives at a
// counter, and the one that arrives last puts the parts together. No block waits for another. Which
// block is last differs from run to run, so parts are merged in the order of their index.
//
//   StorePart(own);
//   if (!ArriveIsLast(counters, result, num_parts)) return;
//   for (int i = 0; i < num_parts; ++i) Add(LoadFresh(parts + i));
//
// Both forms are called by every thread of a block, after its writes, and contain barriers. They
// return true, in all threads, in exactly the last of `expected` arrivals, which then sees what all
// others wrote; what it reads of theirs it reads with LoadFresh. The counter is 0 before the first
// arrival, and 0 again after the last. On GPUs; on the host Block has its own.
#ifndef REPRISE_KERNELS_DEVICE_LAST_ARRIVER_H_
#define REPRISE_KERNELS_DEVICE_LAST_ARRIVER_H_

#include "kernels/device/thread.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Every thread fences its own accesses. The counter is counters[index]: a pointer to it, computed
// ahead of the fences, would take registers across them.
REPRISE_FN bool ArriveIsLast(uint32_t* counters, uint32_t index, uint32_t expected) {
  REPRISE_SHARED(uint32_t, last);
  FenceDevice();
  SyncBlock();  // also: all threads have read `last` of the arrival before
  if (ThreadX() == 0) {
    last = AtomicAdd(counters + index, 1u) == expected - 1 ? 1u : 0u;
    if (last != 0) counters[index] = 0;
  }
  SyncBlock();
  if (last == 0) return false;
  FenceDevice();
  return true;
}

// One thread fences for the block: the barriers order the others' writes before its first fence and
// their reads after its second. Fewer fences, and no static variable: `flag` is a word of shared
// memory that nothing else uses meanwhile.
REPRISE_FN bool ArriveIsLastFencedOnce(uint32_t* counter, uint32_t expected, uint32_t* flag) {
  SyncBlock();
  if (ThreadX() == 0) {
    FenceDevice();
    const bool last = AtomicAdd(counter, 1u) == expected - 1;
    if (last) *counter = 0;
    FenceDevice();
    *flag = last ? 1u : 0u;
  }
  SyncBlock();
  return *flag != 0;
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_DEVICE_LAST_ARRIVER_H_
