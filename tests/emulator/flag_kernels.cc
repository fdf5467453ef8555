// SPDX-License-Identifier: Apache-2.0
// Threads that wait for a word which others add to; see probe_kernels.h.
#include "tests/emulator/kernel_interface.h"
#include "tests/emulator/probe_kernels.h"

namespace reprise::testing {

using emulator::Self;
using Mistake = FlagArgs::Mistake;

// Places that tests look for by name.
inline void WriteValue(uint32_t* word, uint32_t value) { *word = value; }
inline uint32_t ReadValue(const volatile uint32_t* word) { return *word; }

void WaitForFlag(void* args) {
  const FlagArgs& a = *static_cast<const FlagArgs*>(args);
  const unsigned t = Self().thread, lane = t % 32;
  if (Self().block_x == 0 && t < 32) {
    WriteValue(a.values + lane, 100 + lane);
    if (a.mistake != Mistake::kNotReleased) emulator::SyncWarp();
    if (lane == 0 && a.mistake != Mistake::kNeverAdded) emulator::AtomicAddRelease(a.flag, 1);
    return;
  }
  if (a.mistake != Mistake::kNotWaited) emulator::WaitAtLeast(a.flag, 1);
  a.out[Self().block_x * Self().block_threads + t] = ReadValue(a.values + lane);
}

}  // namespace reprise::testing
