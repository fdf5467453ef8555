// SPDX-License-Identifier: Apache-2.0
// The device layer over the emulator; see probe_kernels.h.
#include "kernels/device/block.h"
#include "tests/emulator/probe_kernels.h"

namespace reprise::testing {

void BarrierBehindWrapper(void*) {
  using namespace kernels::on_mma;  // the layer's, no more
  const Block b(nullptr);
  const bool lower_half = ThreadX() < BlockThreads() / 2;
  if (lower_half) b.Sync();
  if (!lower_half) b.Sync();
}

void ArriveAgain(void* args) {
  using namespace kernels::on_mma;
  const ArriveArgs& a = *static_cast<const ArriveArgs*>(args);
  const Block b(nullptr);
  const int threads = BlockThreads(), blocks = b.grid_x();
  for (int round = 0; round < a.rounds; ++round) {
    uint32_t* const partials = a.partials + round * blocks * threads;
    b.For(threads,
          [&](int t) { partials[b.x() * threads + t] = static_cast<uint32_t>(round + b.x() + t); });
    if (!b.ArriveIsLast(a.counters + round, static_cast<uint32_t>(blocks))) continue;
    b.For(threads, [&](int t) {
      uint32_t sum = 0;
      for (int i = 0; i < blocks; ++i) sum += partials[i * threads + (t + 1) % threads];
      a.out[round * threads + t] = sum;
    });
  }
}

}  // namespace reprise::testing
