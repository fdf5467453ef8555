// SPDX-License-Identifier: Apache-2.0
// Kernels that a GPU would hang on or read garbage with; see probe_kernels.h.
#include <cstring>
#include <stdexcept>

#include "tests/emulator/kernel_interface.h"
#include "tests/emulator/probe_kernels.h"

namespace reprise::testing {
namespace {

using emulator::Self;
using emulator::SyncBlock;
using emulator::SyncWarp;

uint32_t* Words() { return reinterpret_cast<uint32_t*>(emulator::DynamicShared()); }

}  // namespace

// Places that tests look for by name; addr2line knows names of external linkage.
inline void SyncHere() { SyncBlock(); }
inline void SyncThere() { SyncBlock(); }

void BarrierInBranch(void*) {
  if (Self().thread < Self().block_threads / 2) {
    SyncHere();
  } else {
    SyncThere();
  }
}

void BarrierForSome(void*) {
  if (Self().thread >= Self().block_threads / 2) return;
  SyncHere();
}

void BarrierInLoop(void*) {
  const unsigned rounds = Self().thread == 5 ? 2 : 3;
  for (unsigned i = 0; i < rounds; ++i) SyncHere();
}

void BarrierInUnrolledLoop(void*) {
  // Threads are at different copies of the call.
  const auto sync = [] { SyncBlock(); };
#pragma GCC unroll 4
  for (unsigned i = Self().thread % 4; i < 4; ++i) {
    if (i == 3) sync();
  }
#pragma GCC unroll 3
  for (int i = 0; i < 3; ++i) sync();
}

void ExchangeForSome(void*) {
  const uint32_t x = 1;
  if (Self().thread % 32 < 16) emulator::Exchange(&x, sizeof(x));
}

void ExchangeOfTwoSizes(void*) {
  const uint32_t x[2] = {1, 2};
  emulator::Exchange(x, Self().thread % 2 == 0 ? 4 : 8);
}

void ExchangeAgainstSync(void*) {
  const uint32_t x = 1;
  if (Self().thread % 2 == 0) {
    emulator::Exchange(&x, sizeof(x));
  } else {
    SyncWarp();
  }
}

void ReadBeyondDynamic(void* args) {
  const unsigned t = Self().thread;
  Words()[t] = t;
  SyncBlock();
  static_cast<uint32_t*>(args)[t] = Words()[t + 1];
}

void WriteBeforeDynamic(void*) {
  if (Self().thread == 3) Words()[-2] = 1;
}

void WriteBeyondStatic(void*) {
  static constexpr char kKey = 0;
  auto* const words = static_cast<uint32_t*>(emulator::StaticShared(&kKey, 64, 4));
  if (Self().thread <= 16) words[Self().thread] = 1;
}

void WriteStatic(void*) {
  static constexpr char kKey = 0;
  auto* const words = static_cast<uint32_t*>(emulator::StaticShared(&kKey, 64, 4));
  if (Self().thread < 16) words[Self().thread] = 1;
}

void ReadUninitialised(void* args) {
  const unsigned t = Self().thread;
  if (t != 9) Words()[t] = t;
  SyncBlock();
  static_cast<uint32_t*>(args)[t] = Words()[t];
}

void ReadHalfInitialised(void* args) {
  if (Self().thread == 0) reinterpret_cast<uint16_t*>(Words())[0] = 1;
  SyncBlock();
  static_cast<uint32_t*>(args)[Self().thread] = Words()[0];
}

void Throw(void*) {
  SyncBlock();
  if (Self().thread == 2) throw std::runtime_error("as asked");
  SyncBlock();
}

}  // namespace reprise::testing
