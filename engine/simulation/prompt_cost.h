// SPDX-License-Identifier: Apache-2.0
// PromptCost: how long a device takes for a step of prompts alone, from what was measured of such
// steps. docs/sim.md has the rule. What a step costs that decodes too is StepCost's to say.
// Threads: a value.
#ifndef REPRISE_ENGINE_SIMULATION_PROMPT_COST_H_
#define REPRISE_ENGINE_SIMULATION_PROMPT_COST_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace reprise::engine {

// Of `tokens` of a row that follow `history` others: pairs of one of them and a token that it
// attends over, itself among them.
inline double ChunkPairs(double tokens, double history) {
  return tokens * history + tokens * (tokens + 1) / 2;
}

// A measured step of prompts alone.
struct PromptCostPoint {
  uint32_t tokens = 0;   // of all prompts; up to kMaxCostRows
  double attended = 0;   // ChunkPairs of all prompts, for each of those tokens
  double device_ns = 0;  // up to kMaxStepNs
};

class PromptCost {
 public:
  // Errors: InvalidArgument (what, got, allowed) unless no two points are of one size and all
  // numbers are above 0 and within the bounds of step_cost.h. No point at all is allowed.
  static absl::StatusOr<PromptCost> Create(std::vector<PromptCostPoint> points);

  bool empty() const { return lines_.empty(); }
  // What a pair more takes. 0: no two points of as many tokens differ by more than noise.
  double ns_per_pair() const { return ns_per_pair_; }

  // A step of `tokens` in chunks, each of which attends over `attended` tokens in the mean.
  // least_ns: what one token takes that attends over none, from which a straight line leads to the
  // fewest tokens measured; no step takes less. Beyond the most tokens it is along the line through
  // the two largest numbers of them, or in proportion where there is one. REQUIRES: not empty(),
  // tokens >= 1. Not bounded above, and no number where the measured times lead to none.
  double TimeNs(double tokens, double attended, double least_ns) const;

 private:
  // Of one number of tokens, by ascending `attended`.
  struct Line {
    double tokens = 0;
    std::vector<PromptCostPoint> points = {};
  };
  void SetNsPerPair();
  double At(const Line& line, double attended) const;
  double Beyond(double tokens, double attended) const;

  std::vector<Line> lines_;  // by ascending tokens
  double ns_per_pair_ = 0;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_SIMULATION_PROMPT_COST_H_
