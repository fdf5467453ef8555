// SPDX-License-Identifier: Apache-2.0
// Body of the stamp, block style: one block, one store.
#ifndef REPRISE_KERNELS_STAMP_STAMP_BODY_H_
#define REPRISE_KERNELS_STAMP_STAMP_BODY_H_

#include "kernels/device/block.h"
#include "kernels/stamp/stamp_args.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

REPRISE_FN void StampBody(Block& b, const StampArgs& a) {
  b.Once([&] { *a.out = b.ClockNs(); });
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_STAMP_STAMP_BODY_H_
