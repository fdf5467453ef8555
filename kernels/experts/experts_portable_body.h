// SPDX-License-Identifier: Apache-2.0
// Experts' linear layers, portable candidate, block style: linear_portable_body.h, item by item.
#ifndef REPRISE_KERNELS_EXPERTS_EXPERTS_PORTABLE_BODY_H_
#define REPRISE_KERNELS_EXPERTS_EXPERTS_PORTABLE_BODY_H_

#include "kernels/experts/expert_place.h"
#include "kernels/linear/linear_portable_body.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Grid x: tiles of features; grid y: each block walks its share of the items. W: of weights, T,
// E4m3, Int4 or Mxfp4.
template <typename T, typename W = T>
REPRISE_FN void ExpertsPortableBody(Block& b, const ExpertsLinearArgs& a) {
  const uint32_t items = a.counts->num_items;
  const int64_t n0 = static_cast<int64_t>(b.x()) * kPortableTileFeatures;
  for (uint32_t i = static_cast<uint32_t>(b.y()); i < items;
       i += static_cast<uint32_t>(b.grid_y())) {
    const ExpertItem item = a.items[i];
    const LinearArgs linear = LinearOf<T, W>(a, item);
    for (int64_t r0 = 0; r0 < item.count; r0 += kPortableTileRows)
      PortableLinearTile<T, W>(b, linear, r0, item.count, n0, RowsOf(a, item));
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_EXPERTS_EXPERTS_PORTABLE_BODY_H_
