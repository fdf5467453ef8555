// SPDX-License-Identifier: Apache-2.0
#include "tests/emulator/private_memory.h"

#include <sys/mman.h>

#include <new>
#include <stdexcept>

namespace reprise::emulator {

PrivateMemory::PrivateMemory() {
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("emulator: no memory for fibers");
  // Stacks are used at their tops alone.
  madvise(memory, kBytes, MADV_NOHUGEPAGE);
  memory_ = static_cast<std::byte*>(memory);
  indices_ = new (memory_ + kExchangedBytes) ThreadIndex[kMaxThreads];
}

PrivateMemory::~PrivateMemory() { munmap(memory_, kBytes); }

}  // namespace reprise::emulator
