// SPDX-License-Identifier: Apache-2.0
// Pairs of accesses to shared memory, with and without what orders them; see probe_kernels.h.
#include <cstring>

#include "tests/emulator/kernel_interface.h"
#include "tests/emulator/probe_kernels.h"

namespace reprise::testing {
namespace {

using emulator::Self;
using emulator::SyncBlock;
using emulator::SyncWarp;

uint32_t* Words() { return reinterpret_cast<uint32_t*>(emulator::DynamicShared()); }

const RaceArgs& Args(void* args) { return *static_cast<const RaceArgs*>(args); }

}  // namespace

// Places that tests look for by name; addr2line knows names of external linkage.
inline void StoreWord(uint32_t* word, uint32_t value) { *word = value; }
inline uint32_t LoadWord(const uint32_t* word) { return *word; }
inline void StoreOver(uint32_t* word, uint32_t value) { *word = value; }

static unsigned Neighbour() { return (Self().thread + 1) % Self().block_threads; }

void ReadNeighbour(void* args) {
  StoreWord(Words() + Self().thread, Self().thread + 1);
  if (Args(args).synchronised) SyncBlock();
  Args(args).out[Self().thread] = LoadWord(Words() + Neighbour());
}

void OverwriteNeighbour(void* args) {
  StoreWord(Words() + Self().thread, Self().thread + 1);
  SyncBlock();
  const uint32_t before = LoadWord(Words() + Self().thread);
  if (Args(args).synchronised) SyncBlock();
  StoreOver(Words() + Neighbour(), before);
  SyncBlock();
  Args(args).out[Self().thread] = Words()[Self().thread];
}

void WriteSameWord(void* args) {
  if (Self().thread == 0) StoreWord(Words(), 1);
  if (Args(args).synchronised) SyncBlock();
  if (Self().thread == 33) StoreOver(Words(), 2);
  SyncBlock();
  Args(args).out[Self().thread] = Words()[0];
}

void ReadNeighbourInWarp(void* args) {
  const unsigned lane = Self().thread % Self().warp_size;
  const unsigned neighbour = Self().thread - lane + (lane + 1) % Self().warp_size;
  for (uint32_t round = 1; round <= 3; ++round) {
    StoreWord(Words() + Self().thread, Self().thread + round);
    if (Args(args).synchronised) SyncWarp();
    Args(args).out[Self().thread] = LoadWord(Words() + neighbour);
    if (Args(args).synchronised) SyncWarp();
  }
}

void ReadOtherWarp(void* args) {
  StoreWord(Words() + Self().thread, Self().thread + 1);
  SyncWarp();
  if (Args(args).synchronised) SyncBlock();
  const unsigned other = (Self().thread + Self().warp_size) % Self().block_threads;
  Args(args).out[Self().thread] = LoadWord(Words() + other);
}

void StoreHalves(void* args) {
  auto* const halves = reinterpret_cast<uint16_t*>(Words());
  const unsigned t = Self().thread;
  halves[t] = static_cast<uint16_t>(t);
  if (Args(args).synchronised) SyncBlock();
  Args(args).out[t] = Words()[t / 2];
}

void StoreOverlappingHalves(void* args) {
  auto* const halves = reinterpret_cast<uint16_t*>(Words());
  if (Self().thread == 0) Words()[0] = 0;
  if (Args(args).synchronised) SyncBlock();
  if (Self().thread == 40) halves[1] = 7;
  SyncBlock();
  Args(args).out[Self().thread] = Words()[0];
}

void CountTogether(void* args) {
  if (Self().thread == 0) StoreWord(Words(), 0);
  if (Args(args).synchronised) SyncBlock();
  emulator::AtomicAdd(Words(), 2);
  SyncBlock();
  Args(args).out[Self().thread] = LoadWord(Words());
}

void ReadCountTooEarly(void* args) {
  if (Self().thread == 0) StoreWord(Words(), 0);
  SyncBlock();
  emulator::AtomicAdd(Words(), 1);
  if (Args(args).synchronised) SyncBlock();
  Args(args).out[Self().thread] = LoadWord(Words());
}

void BroadcastThenOverwrite(void* args) {
  for (uint32_t round = 0; round < 3; ++round) {
    if (Self().thread == 0) StoreOver(Words(), round);
    SyncBlock();
    Args(args).out[Self().thread] = LoadWord(Words());
    if (Args(args).synchronised) {
      SyncBlock();
    } else {
      SyncWarp();
    }
  }
}

void CopyStruct(void* args) {
  struct Row {
    uint32_t words[64];
  };
  auto* const rows = reinterpret_cast<Row*>(Words());
  const unsigned t = Self().thread;
  if (t < 64) Words()[t] = t;
  if (Args(args).synchronised) SyncBlock();
  if (t == 64) std::memcpy(rows + 1, rows, sizeof(Row));
  SyncBlock();
  Args(args).out[t] = rows[1].words[t % 64];
}

void ShareStatics(void* args) {
  static constexpr char kFirst = 0;
  static constexpr char kSecond = 0;
  auto* const first = static_cast<uint32_t*>(emulator::StaticShared(&kFirst, 4, 4));
  auto* const second = static_cast<uint32_t*>(emulator::StaticShared(&kSecond, 24, 8));
  if (Self().thread == 0) StoreWord(first, 11);
  if (Self().thread == 1) StoreWord(second + 5, 22);
  if (Args(args).synchronised) SyncBlock();
  Args(args).out[Self().thread] = LoadWord(first) + LoadWord(second + 5);
}

void LastArriver(void* args) {
  if (Self().thread == 0) Words()[Self().block_threads - 1] = 0;
  SyncBlock();
  uint32_t* const count = Words() + Self().block_threads - 1;
  const unsigned last = Self().block_threads - 1;
  if (Self().thread != last) StoreWord(Words() + Self().thread, 1);
  const uint32_t before = Args(args).synchronised ? emulator::AtomicAddAcquireRelease(count, 1)
                                                  : emulator::AtomicAdd(count, 1);
  if (before + 1 != Self().block_threads) return;
  uint32_t sum = 0;
  for (unsigned i = 0; i < last; ++i) sum += LoadWord(Words() + i);
  Args(args).out[0] = sum;
}

}  // namespace reprise::testing
