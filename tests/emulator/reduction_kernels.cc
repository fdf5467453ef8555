// SPDX-License-Identifier: Apache-2.0
// Right kernels with shuffles and barriers; see probe_kernels.h.
#include <cstring>

#include "tests/emulator/kernel_interface.h"
#include "tests/emulator/probe_kernels.h"

namespace reprise::testing {
namespace {

using emulator::Self;

template <typename T>
T ReadLane(T mine, unsigned lane) {
  const std::byte* all = emulator::Exchange(&mine, sizeof(mine));
  T theirs;
  std::memcpy(&theirs, all + lane * emulator::kExchangeBytes, sizeof(theirs));
  return theirs;
}

float WarpSum(float x) {
  const unsigned lane = Self().thread % Self().warp_size;
  for (unsigned distance = Self().warp_size / 2; distance > 0; distance /= 2) {
    x += ReadLane(x, lane ^ distance);
  }
  return x;
}

void TreeSumBody(const ReductionArgs& args, bool with_barrier) {
  auto* const partial = reinterpret_cast<float*>(emulator::DynamicShared());
  const unsigned t = Self().thread;
  partial[t] = args.x[t];
  for (unsigned n = Self().block_threads / 2; n > 0; n /= 2) {
    if (with_barrier) emulator::SyncBlock();
    if (t < n) partial[t] += partial[t + n];
  }
  if (t == 0) *args.out = partial[0];
}

}  // namespace

void BlockSum(void* argument) {
  const auto& args = *static_cast<const ReductionArgs*>(argument);
  auto* const partial = reinterpret_cast<float*>(emulator::DynamicShared());
  const unsigned t = Self().thread;
  const unsigned warp_size = Self().warp_size;
  const float sum = WarpSum(args.x[t]);
  if (t % warp_size == 0) partial[t / warp_size] = sum;
  emulator::SyncBlock();
  const unsigned num_warps = Self().block_threads / warp_size;
  if (t >= warp_size) return;
  const float total = WarpSum(t < num_warps ? partial[t] : 0.0f);
  if (t == 0) *args.out = total;
}

void TreeSum(void* args) { TreeSumBody(*static_cast<const ReductionArgs*>(args), true); }

void TreeSumWithoutBarrier(void* args) {
  TreeSumBody(*static_cast<const ReductionArgs*>(args), false);
}

void RotateLanes(void* argument) {
  const auto& args = *static_cast<const ShuffleArgs*>(argument);
  const unsigned lane = Self().thread % Self().warp_size;
  uint32_t value = Self().thread;
  unsigned moved = 0;
  for (unsigned round = 1; round <= 100; ++round) {
    value = ReadLane(value, (lane + round) % Self().warp_size);
    moved += round;
  }
  // 100 rounds moved every value 5050 lanes; the rest of the way back, and one further.
  const unsigned back = Self().warp_size - moved % Self().warp_size;
  args.out[Self().thread] = ReadLane(value, (lane + back + 1) % Self().warp_size);
}

}  // namespace reprise::testing
