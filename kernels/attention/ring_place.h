// SPDX-License-Identifier: Apache-2.0
// RingPlace: counting through a ring in shared memory.
#ifndef REPRISE_KERNELS_ATTENTION_RING_PLACE_H_
#define REPRISE_KERNELS_ATTENTION_RING_PLACE_H_

#include "kernels/device/thread.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Places of a ring of kSlots in turn, and which turn it is: what a barrier's phase counts.
template <int kSlots>
struct RingPlace {
  REPRISE_FN static int At(uint32_t count) { return static_cast<int>(count % kSlots); }
  REPRISE_FN static uint32_t Turn(uint32_t count) { return count / kSlots; }
};

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_ATTENTION_RING_PLACE_H_
