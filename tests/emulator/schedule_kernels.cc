// SPDX-License-Identifier: Apache-2.0
// Kernels that show their schedule, and what switches and checks cost; see probe_kernels.h.
#include "tests/emulator/kernel_interface.h"
#include "tests/emulator/probe_kernels.h"

namespace reprise::testing {

using emulator::Self;
using emulator::SyncBlock;

void RecordOrder(void* argument) {
  const auto& args = *static_cast<const OrderArgs*>(argument);
  for (unsigned round = 0; round < 2; ++round) {
    args.order[emulator::AtomicAdd(args.count, 1)] = Self().thread;
    SyncBlock();
  }
}

void MeetOften(void* argument) {
  const int rounds = *static_cast<const int*>(argument);
  for (int i = 0; i < rounds; ++i) SyncBlock();
}

void MeetInWarpsOften(void* argument) {
  const int rounds = *static_cast<const int*>(argument);
  for (int i = 0; i < rounds; ++i) emulator::SyncWarp();
}

void AccessOften(void* argument) {
  const int rounds = *static_cast<const int*>(argument);
  auto* const words = reinterpret_cast<uint32_t*>(emulator::DynamicShared());
  const unsigned t = Self().thread;
  const unsigned n = Self().block_threads;
  for (int i = 0; i < 8; ++i) words[i * n + t] = t;
  SyncBlock();
  uint32_t sum = 0;
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < 8; ++i) sum += words[i * n + (t + static_cast<unsigned>(round)) % n];
  }
  SyncBlock();
  words[t] = sum;
}

void AccessGlobalOften(void* argument) {
  const int rounds = *static_cast<const int*>(argument);
  static uint32_t words[8 * 256];
  const unsigned t = Self().thread;
  uint32_t sum = 0;
  for (int round = 0; round < rounds; ++round) {
    for (unsigned i = 0; i < 8; ++i)
      sum += words[i * 256 + (t + static_cast<unsigned>(round)) % 256];
  }
  SyncBlock();
  words[t % 256] = sum;
}

void MeetOnABarrierOften(void* argument) {
  const auto rounds = static_cast<uint32_t>(*static_cast<const int*>(argument));
  auto* const barrier = reinterpret_cast<uint64_t*>(emulator::DynamicShared());
  if (Self().thread == 0) emulator::BarrierInit(barrier, Self().block_threads);
  SyncBlock();
  for (uint32_t phase = 0; phase < rounds; ++phase) {
    emulator::BarrierArrive(barrier);
    emulator::BarrierWait(barrier, phase);
  }
}

}  // namespace reprise::testing
