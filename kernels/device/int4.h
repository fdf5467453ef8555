// SPDX-License-Identifier: Apache-2.0
// 4-bit elements of weights, WeightFormat::kInt4, as kernels see them.
#ifndef REPRISE_KERNELS_DEVICE_INT4_H_
#define REPRISE_KERNELS_DEVICE_INT4_H_

#include <cstdint>
#include <type_traits>

#include "kernels/device/types.h"
#include "kernels/weight_format.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Two elements: what instances name, and what a pointer to weights counts.
struct Int4 {
  uint8_t bits;
};

template <typename W>
inline constexpr int kElementBits = 8 * static_cast<int>(sizeof(W));
template <>
inline constexpr int kElementBits<Int4> = 4;

// Element `offset` of a matrix.
REPRISE_FN int Int4At(const Int4* matrix, int64_t offset) {
  return matrix[offset / 2].bits >> (offset % 2 * 4) & 15;
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_DEVICE_INT4_H_
