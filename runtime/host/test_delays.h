// SPDX-License-Identifier: Apache-2.0
// TestDelays: how tests make the host device's kernels start late and their blocks in another
// order, so that bugs of ordering show without a GPU, one kernel slow, so that tools that measure
// have something to find, and blocks run on one thread, where an emulator lets no two run at once.
// CreateHostDevice (host_device.h) takes them; no option of a Device, no flag and no environment
// variable leads here.
#ifndef REPRISE_RUNTIME_HOST_TEST_DELAYS_H_
#define REPRISE_RUNTIME_HOST_TEST_DELAYS_H_

#include <cstdint>
#include <string_view>

namespace reprise::runtime {

struct TestDelays {
  // Before each kernel its stream sleeps a pseudo-random time in [0, this), in microseconds, and
  // the kernel's blocks start in a pseudo-random order. 0: neither. 1: the order alone.
  int max_us = 0;
  uint64_t seed = 1;  // picks both; the streams of a device count on from it
  // Blocks that need not wait for each other run one after another, on the stream's thread.
  bool one_thread = false;
  // Every launch of the kernel of this name takes so much longer, to the microsecond. 0: none does.
  std::string_view slow_kernel = {};  // static storage
  int slow_us = 0;
};

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_HOST_TEST_DELAYS_H_
