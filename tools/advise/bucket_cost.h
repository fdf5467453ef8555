// SPDX-License-Identifier: Apache-2.0
// BucketCost: what a step costs in a bucket: the device's time, from a profile, or the tokens that
// the bucket has room for, padding among them.
//
// Time follows the rule that simulated devices have for decode steps (docs/sim.md): a step in a
// bucket of B takes as long as B rows that attend over what the step's rows attend over together. A
// padding row costs what a row without a context would. A mixed step takes what was measured of one
// with prompts in a bucket of that size, where the profile has measured two sizes or more: a trace
// does not tell the lengths of its chunks, which the rule for prompts asks for.
#ifndef REPRISE_TOOLS_ADVISE_BUCKET_COST_H_
#define REPRISE_TOOLS_ADVISE_BUCKET_COST_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/simulation/step_cost.h"
#include "nlohmann/json.hpp"
#include "tools/advise/batch_trace.h"
#include "tools/advise/bucket_choice.h"

namespace reprise::tools {

enum class StepKind : uint8_t { kDecode, kMixed };

class BucketCost {
 public:
  // Of tokens.
  BucketCost() = default;
  // Of time. `profile`: what ParseProfile gives; `file` begins the messages. Errors:
  // InvalidArgument where its points are too few to lie between.
  static absl::StatusOr<BucketCost> OfProfile(const std::string& file,
                                              const nlohmann::json& profile);

  bool is_time() const { return time_.has_value(); }
  // Nanoseconds, or tokens. Infinity where the profile has not measured buckets of that size.
  double Of(StepKind kind, const StepGroup& group, int64_t capacity) const;
  // Whether the profile covers the steps: their sizes and contexts. Errors: FailedPrecondition with
  // what, got, allowed.
  absl::Status CheckCovers(StepKind kind, std::span<const StepGroup> groups) const;

  // Of a profile: its device, the sizes that it has measured, the context that steps of no known
  // one are taken to have (the shortest measured), and the graphs of its engine.
  const std::string& file() const { return file_; }
  const std::string& device() const { return device_; }
  const std::vector<int64_t>& sizes(StepKind kind) const {
    return HasTimesOf(kind) ? mixed_sizes_ : sizes_;
  }
  double shortest_context() const { return shortest_context_; }
  const ServedGraphs& graphs() const { return graphs_; }

 private:
  // Whether mixed steps were measured themselves.
  bool HasTimesOf(StepKind kind) const {
    return kind == StepKind::kMixed && mixed_sizes_.size() >= 2;
  }

  std::optional<engine::StepCost> time_;
  std::string file_, device_;
  std::vector<int64_t> sizes_;
  // Of steps with prompts, and their times.
  std::vector<int64_t> mixed_sizes_;
  std::vector<double> mixed_ns_;
  double shortest_context_ = 0, longest_context_ = 0;
  ServedGraphs graphs_;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_ADVISE_BUCKET_COST_H_
