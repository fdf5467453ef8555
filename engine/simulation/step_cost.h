// SPDX-License-Identifier: Apache-2.0
// StepCost: how long a device takes for a step, from what was measured of decode steps of given
// sizes, and of steps of prompts (`reprise profile`). docs/sim.md has the rule. It knows neither
// files nor clocks.
// Threads: a value.
#ifndef REPRISE_ENGINE_SIMULATION_STEP_COST_H_
#define REPRISE_ENGINE_SIMULATION_STEP_COST_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/simulation/prompt_cost.h"

namespace reprise::engine {

// A step takes no longer: an engine takes one without a result for a fault then
// (DecodeEngineOptions::watchdog_timeout_ms), so that none has been measured to take longer.
inline constexpr uint64_t kMaxStepNs = 30'000'000'000;
// No engine runs more rows, or longer ones.
inline constexpr uint32_t kMaxCostRows = 1u << 16;
inline constexpr uint32_t kMaxCostContext = 1u << 30;

// A measured decode step.
struct StepCostPoint {
  uint32_t rows = 0;     // of one query token each; up to kMaxCostRows
  double context = 0;    // tokens that each of them attends over; up to kMaxCostContext
  double device_ns = 0;  // up to kMaxStepNs
};

// What of a step decides how long it takes.
struct StepLoad {
  uint64_t tokens = 0;     // query tokens of all rows
  uint64_t kv_tokens = 0;  // that rows attend over: each row's once, however many tokens it runs
  // Of these, what is of rows that run two tokens or more: chunks of prompts, and drafts.
  uint64_t chunk_rows = 0;
  uint64_t chunk_tokens = 0;
  uint64_t chunk_kv_tokens = 0;
  uint64_t chunk_pairs = 0;  // ChunkPairs of all of them
};

class StepCost {
 public:
  // Errors: InvalidArgument (what, got, allowed) unless there are points of two numbers of rows or
  // more, of two contexts or more for each of them, no two of one size, with times above 0, all of
  // them within the bounds above; those of PromptCost::Create for `prompts`.
  static absl::StatusOr<StepCost> Create(std::vector<StepCostPoint> points,
                                         std::vector<PromptCostPoint> prompts = {});

  // Of rows that decode, and without points of prompts of any step: bilinear in query tokens and in
  // tokens attended over per query token: between measured numbers of rows, and beyond the largest,
  // straight on; below the smallest as there. Else chunks take what PromptCost says, and no less
  // than as many rows that decode at their contexts; rows that decode beside them add what they
  // take beyond the shortest decode step. Never less than the shortest decode step measured, and
  // never more than kMaxStepNs. Allocates nothing.
  uint64_t TimeNs(const StepLoad& load) const;

  const PromptCost& prompts() const { return prompts_; }

 private:
  // Of one number of rows, by ascending context.
  struct Line {
    double rows = 0;
    std::vector<StepCostPoint> points = {};
    double At(double context) const;
  };
  // From shortest_ns_ to kMaxStepNs.
  double DecodeNs(double tokens, double kv_tokens) const;
  double ChunksNs(const StepLoad& load) const;

  std::vector<Line> lines_;  // by ascending rows
  double shortest_ns_ = 0;
  PromptCost prompts_;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_SIMULATION_STEP_COST_H_
