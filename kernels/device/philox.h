// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10: counter-based random numbers. The value is a function of (key, counter) alone, so
// a draw never depends on batch, thread or device. Source: Salmon, Moraes, Dror & Shaw 2011,
// "Parallel random numbers: as easy as 1, 2, 3".
#ifndef REPRISE_KERNELS_DEVICE_PHILOX_H_
#define REPRISE_KERNELS_DEVICE_PHILOX_H_

#include "kernels/device/platform.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

struct Random4 {
  uint32_t v[4];
};

REPRISE_FN Random4 Philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  uint32_t c0 = static_cast<uint32_t>(counter_low), c1 = static_cast<uint32_t>(counter_low >> 32);
  uint32_t c2 = static_cast<uint32_t>(counter_high), c3 = static_cast<uint32_t>(counter_high >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(0xD2511F53u) * c0;
    const uint64_t p1 = static_cast<uint64_t>(0xCD9E8D57u) * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return Random4{{c0, c1, c2, c3}};
}

// Uniform in (0, 1): the upper 23 bits, offset by half a step. One bit more, and the largest would
// round to 1.
REPRISE_FN float UniformFloat(uint32_t x) {
  return (static_cast<float>(x >> 9) + 0.5f) * (1.0f / 8388608.0f);
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_DEVICE_PHILOX_H_
