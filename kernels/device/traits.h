// SPDX-License-Identifier: Apache-2.0
// What cannot be hidden from a kernel: warp size, fragment shapes, shared memory. A table of
// constants by matrix unit, read by kernels (kTraits of their target) and by the host when it picks
// an instance (TraitsOf). No body asks for the vendor.
#ifndef REPRISE_KERNELS_DEVICE_TRAITS_H_
#define REPRISE_KERNELS_DEVICE_TRAITS_H_

#include <cstddef>

#include "kernels/device/platform.h"
#include "runtime/matrix_unit.h"

namespace reprise::kernels {

struct DeviceTraits {
  runtime::MatrixUnit matrix_unit = runtime::MatrixUnit::kNone;
  int warp_size = 1;
  int matrix_columns = 0;       // of the narrowest fragment of D; all have 16 rows and 16 of K
  int shared_bytes = 0;         // of one block, dynamic and static together
  bool async_copy = false;      // copies to shared memory run beside the thread
  bool bulk_copy = false;       // and whole ranges of it, counted by barriers there (CopyBulk)
  bool group_products = false;  // warpgroups multiply out of shared memory (matrix_group.h)
};

// Of CUDA what sm_90 has: 227 KB of shared memory and bulk copies, as data center GPUs after it
// have too, and products of a warpgroup, which it alone has (WithoutGroupProducts). sm_80 has
// 163 KB and no bulk copies (WithoutBulkCopy). Of AMD, LDS of a workgroup is 64 KB on all CDNA and
// RDNA that we compile for.
constexpr DeviceTraits TraitsOf(runtime::MatrixUnit unit) {
  switch (unit) {
    case runtime::MatrixUnit::kMma:
      return {unit, 32, 8, 227 * 1024, true, true, true};
    case runtime::MatrixUnit::kMfma:
      return {unit, 64, 16, 64 * 1024, false, false, false};
    case runtime::MatrixUnit::kWmma:
      return {unit, 32, 16, 64 * 1024, false, false, false};
    case runtime::MatrixUnit::kNone:
      break;
  }
  return {};
}

constexpr DeviceTraits WithoutGroupProducts(DeviceTraits traits) {
  traits.group_products = false;
  return traits;
}
// What has none has no products of a warpgroup either.
constexpr DeviceTraits WithoutBulkCopy(DeviceTraits traits) {
  traits.bulk_copy = false;
  if (traits.shared_bytes > 163 * 1024) traits.shared_bytes = 163 * 1024;
  return WithoutGroupProducts(traits);
}

#if REPRISE_ON_GPU
namespace REPRISE_DEVICE_NS {

#if REPRISE_GROUP_PRODUCTS
inline constexpr DeviceTraits kTraits = TraitsOf(runtime::MatrixUnit::REPRISE_MATRIX_UNIT);
#elif REPRISE_BULK_COPY
inline constexpr DeviceTraits kTraits =
    WithoutGroupProducts(TraitsOf(runtime::MatrixUnit::REPRISE_MATRIX_UNIT));
#else
inline constexpr DeviceTraits kTraits =
    WithoutBulkCopy(TraitsOf(runtime::MatrixUnit::REPRISE_MATRIX_UNIT));
#endif
inline constexpr int kWarpSize = kTraits.warp_size;

}  // namespace REPRISE_DEVICE_NS
#endif

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_DEVICE_TRAITS_H_
