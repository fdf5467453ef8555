// SPDX-License-Identifier: Apache-2.0
// How many threads the blocks of a kernel have, on a device of any warp size.
#ifndef REPRISE_KERNELS_DEVICE_THREAD_COUNT_H_
#define REPRISE_KERNELS_DEVICE_THREAD_COUNT_H_

#include "kernels/device/traits.h"

namespace reprise::kernels {

struct ThreadCount {
  int threads = 0;
  int warps = 0;
  bool at_most = false;

  constexpr int Max(const DeviceTraits& traits) const {
    return warps != 0 ? warps * traits.warp_size : threads;
  }
  constexpr int Min(const DeviceTraits& traits) const {
    return at_most ? traits.warp_size : Max(traits);
  }
};
constexpr ThreadCount Threads(int n) { return {.threads = n}; }
// Any multiple of the warp size up to n.
constexpr ThreadCount ThreadsUpTo(int n) { return {.threads = n, .at_most = true}; }
constexpr ThreadCount Warps(int n) { return {.warps = n}; }

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_DEVICE_THREAD_COUNT_H_
