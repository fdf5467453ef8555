// SPDX-License-Identifier: Apache-2.0
// Runs one block of an emulated kernel on the calling thread, without a device.
#ifndef REPRISE_TESTS_EMULATOR_RUN_BLOCK_H_
#define REPRISE_TESTS_EMULATOR_RUN_BLOCK_H_

#include <cstddef>
#include <exception>
#include <string>

#include "kernels/device/emulator.h"
#include "runtime/device.h"

namespace reprise::testing {

struct BlockShape {
  unsigned threads = 64;
  unsigned wave_size = 32;
  size_t shared_bytes = 0;
  size_t shared_limit_bytes = 2 << 20;  // dynamic and static memory
};

// What RunBlock throws, or "".
inline std::string ErrorOf(void (*body)(void*), void* args, const BlockShape& shape) {
  const runtime::HostBlockContext context{.block_x = 0,
                                          .block_y = 0,
                                          .grid_x = 1,
                                          .grid_y = 1,
                                          .block_threads = shape.threads,
                                          .shared = nullptr,
                                          .shared_bytes = shape.shared_bytes};
  try {
    kernels::emulator::RunBlock(context, {shape.wave_size, shape.shared_limit_bytes}, body, args);
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_EMULATOR_RUN_BLOCK_H_
