// SPDX-License-Identifier: Apache-2.0
// The conversion kernels of the tests under emulation; compiled once per kind of matrix unit.
#include <span>

#include "tests/kernels/convert_kernels.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

std::span<const runtime::KernelDef> EmulatedConvertKernels() { return kConvertKernels; }

}  // namespace reprise::kernels::REPRISE_DEVICE_NS
