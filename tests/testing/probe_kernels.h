// SPDX-License-Identifier: Apache-2.0
// Tiny kernels that tests of devices, streams and graphs launch on every device to see what ran,
// when and how often.
#ifndef REPRISE_TESTS_TESTING_PROBE_KERNELS_H_
#define REPRISE_TESTS_TESTING_PROBE_KERNELS_H_

#include "runtime/device.h"
#include "tests/testing/probe_args.h"

namespace reprise::testing {

inline constexpr char kProbeAffine[] = "reprise_probe_affine";
inline constexpr char kProbeCount[] = "reprise_probe_count";
inline constexpr char kProbeWait[] = "reprise_probe_wait";
inline constexpr char kProbeLarge[] = "reprise_probe_large";
inline constexpr char kProbeFault[] = "reprise_probe_fault";
// In no fat binary and without a host function.
inline constexpr char kProbeNowhere[] = "reprise_probe_nowhere";

// All of them, for the host, and for CUDA where this build has it.
runtime::KernelImage ProbeImage();

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_PROBE_KERNELS_H_
