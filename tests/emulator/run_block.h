// SPDX-License-Identifier: Apache-2.0
// Runs one block of an emulated kernel, or a grid of them, on the calling thread, without a device.
#ifndef REPRISE_TESTS_EMULATOR_RUN_BLOCK_H_
#define REPRISE_TESTS_EMULATOR_RUN_BLOCK_H_

#include <algorithm>
#include <cstddef>
#include <exception>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "tests/emulator/kernel_interface.h"

namespace reprise::testing {

struct BlockShape {
  unsigned threads = 64;
  unsigned warp_size = 32;
  size_t shared_bytes = 0;
  size_t shared_limit_bytes = 2 << 20;  // dynamic and static memory
  bool waits_for_previous = false;      // runtime::KernelDef's
  unsigned cluster = 1;                 // blocks of a cluster
};

// What RunBlock throws, or "".
inline std::string ErrorOf(void (*body)(void*), void* args, const BlockShape& shape,
                           unsigned block = 0, unsigned num_blocks = 1) {
  const runtime::HostBlockContext context{.block_x = block,
                                          .block_y = 0,
                                          .grid_x = num_blocks,
                                          .grid_y = 1,
                                          .block_threads = shape.threads,
                                          .shared = nullptr,
                                          .shared_bytes = shape.shared_bytes};
  try {
    emulator::RunBlock(context,
                       {.warp_size = shape.warp_size,
                        .shared_bytes = shape.shared_limit_bytes,
                        .waits_for_previous = shape.waits_for_previous,
                        .cluster = shape.cluster},
                       body, args);
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

// What the first block throws that throws something, or "". All blocks run, in an order of the
// seed.
inline std::string ErrorOfGrid(void (*body)(void*), void* args, const BlockShape& shape,
                               unsigned num_blocks, unsigned seed) {
  std::vector<unsigned> order(num_blocks);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), std::minstd_rand(seed));
  std::string first;
  for (const unsigned block : order) {
    const std::string error = ErrorOf(body, args, shape, block, num_blocks);
    if (first.empty()) first = error;
  }
  return first;
}

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_EMULATOR_RUN_BLOCK_H_
