// SPDX-License-Identifier: Apache-2.0
// What belongs to the fibers of one OS thread alone: stacks, indices, what lanes exchange. It lies
// in one range of addresses, so that an access to it is known by one comparison, and not checked.
#ifndef REPRISE_TESTS_EMULATOR_PRIVATE_MEMORY_H_
#define REPRISE_TESTS_EMULATOR_PRIVATE_MEMORY_H_

#include <cstddef>

#include "tests/emulator/emulator.h"
#include "tests/emulator/fiber.h"
#include "tests/emulator/kernel_interface.h"

namespace reprise::emulator {

class PrivateMemory {
 public:
  // Two slots of each warp: [warp][slot][lane].
  static constexpr size_t kExchangedBytes = size_t{kMaxThreads} * 2 * kExchangeBytes;
  static constexpr size_t kIndexBytes = size_t{64} << 10;
  static_assert(kIndexBytes >= kMaxThreads * sizeof(ThreadIndex));
  static constexpr size_t kBytes = kExchangedBytes + kIndexBytes + kMaxThreads * FiberStack::kBytes;

  // Zeros. Throws std::runtime_error when there is no memory to be had.
  PrivateMemory();
  ~PrivateMemory();
  PrivateMemory(const PrivateMemory&) = delete;
  PrivateMemory& operator=(const PrivateMemory&) = delete;

  std::byte* begin() const { return memory_; }
  std::byte* exchanged() const { return memory_; }
  ThreadIndex& index(unsigned thread) const { return indices_[thread]; }
  std::byte* stack(unsigned thread) const {
    return memory_ + kExchangedBytes + kIndexBytes + thread * FiberStack::kBytes;
  }

 private:
  std::byte* memory_ = nullptr;
  ThreadIndex* indices_ = nullptr;
};

}  // namespace reprise::emulator

#endif  // REPRISE_TESTS_EMULATOR_PRIVATE_MEMORY_H_
