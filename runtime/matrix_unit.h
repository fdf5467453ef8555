// SPDX-License-Identifier: Apache-2.0
// MatrixUnit: which kind of matrix instruction a device has. Kernels include it, so it needs
// nothing but the language.
#ifndef REPRISE_RUNTIME_MATRIX_UNIT_H_
#define REPRISE_RUNTIME_MATRIX_UNIT_H_

#include <cstdint>

namespace reprise::runtime {

enum class MatrixUnit : uint8_t {
  kNone,  // none that our kernels use
  kMma,   // mma.sync: NVIDIA, sm_80 and newer, 32 lanes
  kMfma,  // MFMA: AMD CDNA 2 and newer, 64 lanes
  kWmma,  // WMMA: AMD RDNA 3, 32 lanes
};

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_MATRIX_UNIT_H_
