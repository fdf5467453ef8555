// SPDX-License-Identifier: Apache-2.0
// What a linear kernel needs of an item: the arguments of its expert, and which rows of x its rows
// are of.
#ifndef REPRISE_KERNELS_EXPERTS_EXPERT_PLACE_H_
#define REPRISE_KERNELS_EXPERTS_EXPERT_PLACE_H_

#include "kernels/device/mxfp4.h"
#include "kernels/device/types.h"
#include "kernels/experts/experts_args.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Of an item's row its row of x.
struct ExpertRows {
  const uint32_t* token;  // of the item's first place, or nullptr
  REPRISE_FN int64_t operator()(int64_t row) const { return token == nullptr ? row : token[row]; }
};
REPRISE_FN ExpertRows RowsOf(const ExpertsLinearArgs& a, const ExpertItem& item) {
  return {a.gathers != 0 ? a.token + item.first : nullptr};
}

// The same call, with the item's expert and rows for all of it. W: of weights.
template <typename T, typename W>
REPRISE_FN LinearArgs LinearOf(const ExpertsLinearArgs& a, const ExpertItem& item) {
  LinearArgs linear = a.linear;
  const int64_t expert = item.expert;
  linear.weight = static_cast<const unsigned char*>(linear.weight) +
                  expert * a.expert_elements * kElementBits<W> / 8;
  if (linear.scales != nullptr) linear.scales += expert * a.expert_scales;
  if (linear.bias != nullptr)
    linear.bias = static_cast<const T*>(linear.bias) + expert * linear.out_features;
  const int64_t first = item.first, width = linear.out_features / (linear.silu_mul != 0 ? 2 : 1);
  if (a.gathers == 0) linear.x = static_cast<const T*>(linear.x) + first * linear.in_features;
  linear.out = static_cast<T*>(linear.out) + first * width;
  return linear;
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_EXPERTS_EXPERT_PLACE_H_
