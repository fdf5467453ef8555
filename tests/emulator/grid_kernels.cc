// SPDX-License-Identifier: Apache-2.0
// Accesses of several blocks to global memory, with and without what orders them; see
// probe_kernels.h.
#include "tests/emulator/kernel_interface.h"
#include "tests/emulator/probe_kernels.h"

namespace reprise::testing {
namespace {

using emulator::AtomicAdd;
using emulator::AtomicAddAcquireRelease;
using emulator::FenceDevice;
using emulator::Self;
using emulator::SyncBlock;

using Fences = GridArgs::Fences;
using Mistake = GridArgs::Mistake;

const GridRaceArgs& RaceArgsOf(void* args) { return *static_cast<const GridRaceArgs*>(args); }

uint32_t* Shared() { return reinterpret_cast<uint32_t*>(emulator::DynamicShared()); }

}  // namespace

// Places that tests look for by name; addr2line knows names of external linkage.
inline void WritePartial(uint32_t* word, uint32_t value) { *word = value; }
inline uint32_t ReadPartial(const volatile uint32_t* word) { return *word; }
inline uint32_t CountPlainly(uint32_t* counter) { return (*counter)++; }
inline void ResetCounter(uint32_t* counter) { *counter = 0; }

// The number of arrivals before this one.
static uint32_t Arrive(const GridArgs& a) {
  if (a.mistake == Mistake::kPlainCounter) return CountPlainly(a.counter);
  if (a.fences == Fences::kInAtomic) return AtomicAddAcquireRelease(a.counter, 1);
  const bool fences = a.fences == Fences::kOneThread;
  if (fences && a.mistake != Mistake::kNoFenceBefore) FenceDevice();
  const uint32_t before = AtomicAdd(a.counter, 1);
  if (fences && a.mistake != Mistake::kNoFenceBehind) FenceDevice();
  return before;
}

void SumOverGrid(void* args) {
  const GridArgs& a = *static_cast<const GridArgs*>(args);
  const unsigned t = Self().thread, threads = Self().block_threads, blocks = Self().grid_x;
  WritePartial(a.partials + Self().block_x * threads + t, Self().block_x + t);
  const bool all_fence = a.fences == Fences::kEveryThread;
  if (all_fence && a.mistake != Mistake::kNoFenceBefore) FenceDevice();
  if (a.mistake != Mistake::kNoBarrierBefore) SyncBlock();
  if (t == 0) {
    const uint32_t before = Arrive(a);
    Shared()[0] = before + 1 == (a.mistake == Mistake::kFirstReads ? 1 : blocks) ? 1 : 0;
    if (before + 1 == (a.mistake == Mistake::kEarlyReset ? 2 : blocks)) ResetCounter(a.counter);
  }
  SyncBlock();
  if (all_fence && a.mistake != Mistake::kNoFenceBehind) FenceDevice();
  if (a.mistake == Mistake::kEarlyRead && t == 1) {
    ReadPartial(a.partials + (Self().block_x + 1) % blocks * threads);
  }
  if (Shared()[0] == 0) return;
  uint32_t sum = 0;
  for (unsigned b = 0; b < blocks; ++b) sum += ReadPartial(a.partials + b * threads + t);
  a.out[t] = sum;
}

void StoreToOneWord(void* args) {
  const GridRaceArgs& a = RaceArgsOf(args);
  if (Self().thread == 3) WritePartial(a.words + (a.conflicting ? 0 : Self().block_x), 1);
}

void StoreToHalfWord(void* args) {
  const GridRaceArgs& a = RaceArgsOf(args);
  if (Self().thread != 0) return;
  if (a.conflicting && Self().block_x == 1) {
    *a.words = 0;
  } else {
    reinterpret_cast<uint16_t*>(a.words)[Self().block_x] = 1;
  }
}

void StoreToByte(void* args) {
  const GridRaceArgs& a = RaceArgsOf(args);
  if (Self().thread != 0) return;
  if (a.conflicting && Self().block_x % 2 == 1) {
    reinterpret_cast<uint16_t*>(a.words)[0] = 1;
  } else {
    reinterpret_cast<uint8_t*>(a.words)[Self().block_x] = 1;
  }
}

void ReadOthersInput(void* args) {
  const GridRaceArgs& a = RaceArgsOf(args);
  const unsigned blocks = Self().grid_x;
  const uint32_t x = ReadPartial(a.words + blocks);
  const bool overwrites = a.conflicting && Self().block_x == 2;
  if (Self().thread == 7) WritePartial(a.words + (overwrites ? blocks : Self().block_x), x);
}

void ShiftInPlace(void* args) {
  const GridRaceArgs& a = RaceArgsOf(args);
  if (Self().thread != 0) return;
  const uint32_t x = ReadPartial(a.words + Self().block_x + (a.conflicting ? 1 : 0));
  WritePartial(a.words + Self().block_x, x);
}

void CopyOthersOutput(void* args) {
  const GridRaceArgs& a = RaceArgsOf(args);
  if (Self().thread != 0) return;
  const unsigned b = Self().block_x;
  WritePartial(a.words + b * 4, b);
  emulator::CopyAsync(Shared(), a.words + (a.conflicting ? (b + 1) % Self().grid_x : b) * 4, 16);
  emulator::CopyAsyncCommit();
  emulator::CopyAsyncWait(0);
}

void PassAlong(void* args) {
  const GridRaceArgs& a = RaceArgsOf(args);
  if (Self().thread != 0) return;
  uint32_t* const arrivals = a.words + Self().grid_x;
  WritePartial(a.words + Self().block_x, 1);
  if (!a.conflicting || Self().block_x != 0) FenceDevice();
  // Each block that comes after the first reads what all before it have written.
  const uint32_t before = AtomicAdd(arrivals, 1u << Self().block_x);
  FenceDevice();
  for (unsigned b = 0; b < Self().grid_x; ++b) {
    if ((before >> b & 1) != 0) ReadPartial(a.words + b);
  }
}

void WriteAfterWaiting(void* args) {
  using Wait = WaitArgs::Mistake;
  const WaitArgs& a = *static_cast<const WaitArgs*>(args);
  const uint32_t* const last = a.words + Self().grid_x;
  if (a.mistake == Wait::kReadsFirst) ReadPartial(last);
  const bool writes = Self().thread == 0;
  if (a.mistake == Wait::kWritesFirst && writes) WritePartial(a.words + Self().block_x, 1);
  if (a.mistake == Wait::kLetsBeginFirst) emulator::LetNextBegin();
  if (a.mistake == Wait::kBeginsFirst) emulator::LetNextBeginFirst();
  if (a.mistake == Wait::kBlock0Leaves && Self().block_x == 0) return;
  emulator::WaitForPrevious();
  emulator::LetNextBegin();
  if (writes) WritePartial(a.words + Self().block_x, 1);
  ReadPartial(last);
}

void ShiftInBlock(void* args) {
  const GridRaceArgs& a = RaceArgsOf(args);
  const unsigned t = Self().thread;
  WritePartial(a.words + t, t);
  if (!a.conflicting) SyncBlock();
  ReadPartial(a.words + (t + 1) % Self().block_threads);
}

void CountInBlock(void* args) {
  const GridRaceArgs& a = RaceArgsOf(args);
  const unsigned t = Self().thread, threads = Self().block_threads;
  WritePartial(a.words + t, t);
  if (!a.conflicting) FenceDevice();
  const uint32_t before = AtomicAdd(a.words + threads, 1);
  if (!a.conflicting) FenceDevice();
  if (before + 1 != threads) return;
  for (unsigned i = 0; i < threads; ++i) ReadPartial(a.words + i);
}

void ReadParameters(void* args) {
  WritePartial(RaceArgsOf(args).words + Self().block_x * Self().block_threads + Self().thread, 1);
}

}  // namespace reprise::testing
