// SPDX-License-Identifier: Apache-2.0
// The catalogue's GPU kernels, compiled for the CPU once per kind of matrix unit: the very bodies
// that nvcc and clang compile, with their tile sizes, every GPU thread a fiber (tests/emulator).
#ifndef REPRISE_TESTS_EMULATED_EMULATED_KERNELS_H_
#define REPRISE_TESTS_EMULATED_EMULATED_KERNELS_H_

#include <span>

#include "runtime/device.h"
#include "runtime/matrix_unit.h"

namespace reprise::testing {

// Every instance of the catalogue that fits a device with such a unit. Static storage.
// REQUIRES: unit is not kNone.
std::span<const runtime::KernelDef> EmulatedKernels(runtime::MatrixUnit unit);

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_EMULATED_EMULATED_KERNELS_H_
