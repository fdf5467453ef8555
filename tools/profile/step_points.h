// SPDX-License-Identifier: Apache-2.0
// Steps that are to be measured, as numbers: rows that decode at a context, and prompts beside
// them. What can be measured is known before anything is loaded.
#ifndef REPRISE_TOOLS_PROFILE_STEP_POINTS_H_
#define REPRISE_TOOLS_PROFILE_STEP_POINTS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/step/step_limits.h"
#include "models/step_bytes.h"
#include "tools/engine_flags.h"

namespace reprise::tools {

struct StepPoint {
  uint32_t rows = 1;     // that run one token each; 0: prompts alone
  uint32_t context = 2;  // tokens in each of these rows' KV; 0 where there are none
  // Rows that run more beside them: the tokens of each, the first of its context.
  std::vector<uint32_t> prompts = {};
  // Contexts of rows that decode lie evenly from this one to `context`; 0: all are `context`.
  uint32_t shortest = 0;

  // One of each row that decodes, in the order of rows, which is no order of size.
  std::vector<uint32_t> contexts() const;
  uint32_t shortest_context() const { return shortest == 0 ? context : shortest; }
  bool is_decode() const { return prompts.empty(); }
  uint64_t num_rows() const { return rows + prompts.size(); }
  uint64_t num_tokens() const;  // that the step runs
  // What graphs are chosen by: rows of a decode step, query tokens of another.
  uint32_t size() const { return is_decode() ? rows : static_cast<uint32_t>(num_tokens()); }
  models::StepRowCounts row_counts() const {
    return {.decoding = rows, .prompts = prompts.size(), .prompt_tokens = num_tokens() - rows};
  }
  bool operator==(const StepPoint&) const = default;
};

// Equal ones next to each other: "2x256+1x64".
std::string PromptsName(const StepPoint& point);
// "8@512", "8@64..512"; with prompts "8@512+1x256", prompts alone "1x256".
std::string NameOf(const StepPoint& point);
// "8@512", "1@16k", "8@64..512", "8@512+1x256", "2x1k+1x64". Errors: InvalidArgument with what,
// got, allowed.
absl::StatusOr<StepPoint> ParseStepPoint(std::string_view text);

// Blocks that a point needs.
uint64_t BlocksOf(const StepPoint& point, uint32_t block_size);
// And the largest of them.
uint64_t BlocksNeeded(std::span<const StepPoint> points, uint32_t block_size);

// Whether every point can be measured. `max_bucket`: of decode graphs. `usable_blocks`: of the
// pool, 0 where it will be made to fit. Errors: OutOfRange names rows, context or tokens, got and
// allowed; ResourceExhausted names the point and the pool.
absl::Status CheckPoints(std::span<const StepPoint> points, const kernels::StepLimits& limits,
                         uint32_t max_bucket, uint32_t block_size, uint64_t usable_blocks);

// CheckPoints with the limits that an engine of these flags will have; a pool of no given size
// becomes as large as the largest point needs. Errors: those of CheckPoints, of the model's config
// and of the options.
absl::Status FitPool(std::span<const StepPoint> points, EngineFlags* flags);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_PROFILE_STEP_POINTS_H_
