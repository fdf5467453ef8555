// SPDX-License-Identifier: Apache-2.0
// Decode steps that are to be measured, as numbers: rows at a context. What can be measured is
// known before anything is loaded.
#ifndef REPRISE_TOOLS_PROFILE_DECODE_POINTS_H_
#define REPRISE_TOOLS_PROFILE_DECODE_POINTS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/step/step_limits.h"
#include "tools/engine_flags.h"

namespace reprise::tools {

struct DecodePoint {
  uint32_t rows = 1;
  uint32_t context = 2;  // tokens in each row's KV

  bool operator==(const DecodePoint&) const = default;
};

// "8@512".
std::string NameOf(const DecodePoint& point);
// "8@512", "1@16k". Errors: InvalidArgument with what, got, allowed.
absl::StatusOr<DecodePoint> ParseDecodePoint(std::string_view text);

// Blocks that the largest point needs.
uint64_t BlocksNeeded(std::span<const DecodePoint> points, uint32_t block_size);

// Whether every point can be measured. `usable_blocks`: of the pool, 0 where it will be made to
// fit. Errors: OutOfRange names rows or context, got and allowed; ResourceExhausted names the point
// and the pool.
absl::Status CheckPoints(std::span<const DecodePoint> points, const kernels::StepLimits& limits,
                         uint32_t max_bucket, uint32_t block_size, uint64_t usable_blocks);

// CheckPoints with the limits that an engine of these flags will have; a pool of no given size
// becomes as large as the largest point needs. Errors: those of CheckPoints, of the model's config
// and of the options.
absl::Status FitPool(std::span<const DecodePoint> points, EngineFlags* flags);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_PROFILE_DECODE_POINTS_H_
