// SPDX-License-Identifier: Apache-2.0
// Pipelines of asynchronous copies, right and with one mistake each; see probe_kernels.h.
#include <cstring>

#include "tests/emulator/kernel_interface.h"
#include "tests/emulator/probe_kernels.h"

namespace reprise::testing {
namespace {

using emulator::Self;
using emulator::SyncBlock;
using Mistake = CopyArgs::Mistake;

struct alignas(16) Vector4 {
  float v[4];
};

}  // namespace

// Names of inlined functions are found where linkage is external.
inline void Add(Vector4* sum, const Vector4& x) {
  for (int i = 0; i < 4; ++i) sum->v[i] += x.v[i];
}

inline void Store(float* out, const Vector4& x) { std::memcpy(out, x.v, sizeof(x.v)); }

void CopyAsyncPipeline(void* argument) {
  const auto& args = *static_cast<const CopyArgs*>(argument);
  const unsigned t = Self().thread;
  const unsigned n = Self().block_threads;
  auto* const tiles = reinterpret_cast<Vector4*>(emulator::DynamicShared());
  const auto start = [&](int row) {
    if (row < args.rows) {
      const float* from = args.x + (static_cast<size_t>(row) * n + t) * 4;
      // The last thread copies zeros.
      emulator::CopyAsync(tiles + (row % 2) * n + t, t + 1 == n ? nullptr : from, 16);
    }
    emulator::CopyAsyncCommit();
  };
  Vector4 sum = {};
  start(0);
  for (int row = 0; row < args.rows; ++row) {
    start(row + 1);
    if (args.mistake == Mistake::kWaitTooLittle) {
      emulator::CopyAsyncWait(2);
    } else if (args.mistake != Mistake::kNoWait) {
      emulator::CopyAsyncWait(1);
    }
    if (args.mistake != Mistake::kNoBarrier) SyncBlock();
    Add(&sum, tiles[(row % 2) * n + (t + 1) % n]);
    if (args.mistake != Mistake::kNoBarrierBefore) SyncBlock();
  }
  if (args.mistake == Mistake::kNeverWaited) {
    emulator::CopyAsync(tiles + t, args.x, 16);
    emulator::CopyAsyncCommit();
  }
  Store(args.out + t * 4, sum);
}

void CopyToUnaligned(void* argument) {
  const auto& args = *static_cast<const CopyArgs*>(argument);
  emulator::CopyAsync(emulator::DynamicShared() + Self().thread * 16 + 4, args.x, 16);
}

void CopyBulkPipeline(void* argument) {
  const auto& args = *static_cast<const CopyArgs*>(argument);
  const unsigned t = Self().thread;
  const unsigned warp_size = Self().warp_size;
  const unsigned n = Self().block_threads - warp_size;  // consumers
  auto* const full = reinterpret_cast<uint64_t*>(emulator::DynamicShared());
  uint64_t* const empty = full + 2;
  auto* const tiles = reinterpret_cast<Vector4*>(emulator::DynamicShared() + 64);
  if (t == 0) {
    for (int stage = 0; stage < 2; ++stage) {
      emulator::BarrierInit(full + stage, 1);
      emulator::BarrierInit(empty + stage, n);
    }
  }
  if (args.mistake != Mistake::kNoInitBarrier) SyncBlock();
  if (t < warp_size) {
    if (t != 0) return;
    for (int row = 0; row < args.rows; ++row) {
      const int stage = row % 2;
      if (row >= 2 && args.mistake != Mistake::kNoBarrierBefore) {
        emulator::BarrierWait(empty + stage, static_cast<uint32_t>(row / 2 - 1));
      }
      if (args.mistake != Mistake::kNoExpect) {
        emulator::BarrierArriveExpectBytes(full + stage, n * 16);
      } else {
        emulator::BarrierArrive(full + stage);
      }
      const float* from = args.x + static_cast<size_t>(row) * n * 4;
      // Two halves, in any order.
      emulator::CopyBulk(tiles + stage * n, from, n * 8, full + stage);
      emulator::CopyBulk(tiles + stage * n + n / 2, from + n * 2, n * 8, full + stage);
    }
    return;
  }
  const unsigned consumer = t - warp_size;
  const int num_read = args.rows - (args.mistake == Mistake::kNeverWaited ? 1 : 0);
  Vector4 sum = {};
  for (int row = 0; row < num_read; ++row) {
    const int stage = row % 2;
    if (args.mistake != Mistake::kNoWait) {
      emulator::BarrierWait(full + stage, static_cast<uint32_t>(row / 2));
    }
    if (args.mistake == Mistake::kArriveTooEarly) emulator::BarrierArrive(empty + stage);
    Add(&sum, tiles[stage * n + (consumer + 1) % n]);
    if (args.mistake != Mistake::kArriveTooEarly) emulator::BarrierArrive(empty + stage);
  }
  Store(args.out + consumer * 4, sum);
}

void WaitForEither(void* argument) {
  const auto& args = *static_cast<const EitherArgs*>(argument);
  const unsigned t = Self().thread;
  auto* const there = reinterpret_cast<uint64_t*>(emulator::DynamicShared());
  uint64_t* const gone = there + 1;
  auto* const copied = reinterpret_cast<float*>(emulator::DynamicShared() + 16);
  float* const stored = copied + 4;
  if (t == 0) {
    emulator::BarrierInit(there, 1);
    emulator::BarrierInit(gone, 1);
  }
  SyncBlock();
  if (t == 0 && args.copies) {
    emulator::BarrierArriveExpectBytes(there, 16);
    emulator::CopyBulk(copied, args.x, 16, there);
  }
  if (t == 1 && args.arrives) {
    *stored = -1.0f;
    emulator::BarrierArrive(gone);
  }
  if (t < 2) return;
  emulator::BarrierWaitForEither(there, gone, args.phase);
  args.out[t] = args.reads_copied ? *copied : *stored;
}

void CopyTileOut(void* argument) {
  using TileMistake = TileArgs::Mistake;
  const auto& args = *static_cast<const TileArgs*>(argument);
  const unsigned t = Self().thread, n = Self().block_threads;
  const uint32_t bytes = args.elements * 2;
  std::byte* const tile =
      emulator::DynamicShared() + (args.mistake == TileMistake::kUnaligned ? 64 : 0);
  auto* const barrier = reinterpret_cast<uint64_t*>(emulator::DynamicShared() + bytes + 2048 - 8);
  if (t == 0) emulator::BarrierInit(barrier, 1);
  SyncBlock();
  if (t == 0) {
    const bool few = args.mistake == TileMistake::kTooFewBytes;
    int32_t at[4] = {args.at[0], args.at[1], args.at[2], args.at[3]};
    if (args.mistake == TileMistake::kNegative) at[1] = -1;
    emulator::BarrierArriveExpectBytes(barrier, few ? bytes - 16 : bytes);
    emulator::CopyTile(tile, args.map, at, args.rank, barrier);
    return;
  }
  if (args.mistake != TileMistake::kNoWait) emulator::BarrierWait(barrier, 0);
  for (uint32_t i = t - 1; i < args.elements; i += n - 1)
    args.out[i] = reinterpret_cast<const uint16_t*>(tile)[i];
}

}  // namespace reprise::testing
