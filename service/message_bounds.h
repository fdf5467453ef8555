// SPDX-License-Identifier: Apache-2.0
// How large messages can get: bounds that follow from an engine's limits, for the size limits that
// gRPC puts on both ends. docs/wire.md tells clients the same formulas. They belong to step 1
// of the way of a step.
#ifndef REPRISE_SERVICE_MESSAGE_BOUNDS_H_
#define REPRISE_SERVICE_MESSAGE_BOUNDS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/step/step_limits.h"

namespace reprise::service {

// Of RowError.message; what is beyond is cut off.
inline constexpr size_t kMaxRowErrorBytes = 256;

// Bytes of one stream message with a step that uses every limit at once: an upper bound.
uint64_t MaxStepBytes(const kernels::StepLimits& limits);

// Bytes of one stream message with the result of such a step: an upper bound.
uint64_t MaxResultBytes(const kernels::StepLimits& limits);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_MESSAGE_BOUNDS_H_
