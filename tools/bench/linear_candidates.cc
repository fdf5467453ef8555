// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/linear_candidates.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/linear/linear.h"
#include "runtime/status_macros.h"
#include "tools/bench/name_list.h"

namespace reprise::tools {
namespace {

template <kernels::LinearCandidate kCandidate>
absl::Status Enqueue(const LinearBenchCall& call) {
  return kernels::Linear(call.stream, call.kernels, call.weights, call.args, call.max_rows,
                         kCandidate);
}

// Weights of other sizes would take more than their bytes.
absl::Status EnqueuePacked(const LinearBenchCall& call) {
  const kernels::LinearWeights& weights = call.weights;
  if (weights.out_features % kernels::kPackedTileOutputs != 0 ||
      weights.in_features % kernels::kPackedTileInputs != 0)
    return absl::InvalidArgumentError(absl::StrCat(
        "candidate packed: got a weight of ", weights.out_features, "x", weights.in_features,
        ", allowed: multiples of ", kernels::kPackedTileOutputs, "x", kernels::kPackedTileInputs));
  return Enqueue<kernels::LinearCandidate::kBest>(call);
}

constexpr LinearCandidateEntry kCandidates[] = {
    {.name = "best",
     .description = "row-major weights, as with --linear row-major",
     .enqueue = Enqueue<kernels::LinearCandidate::kBest>},
    {.name = "packed",
     .description = "packed weights, as with --linear packed",
     .enqueue = EnqueuePacked,
     .layout = kernels::WeightLayout::kPacked},
    {.name = "portable",
     .description = "the reference kernel, the same source on every device",
     .enqueue = Enqueue<kernels::LinearCandidate::kPortable>},
};

}  // namespace

std::span<const LinearCandidateEntry> LinearCandidates() { return kCandidates; }

absl::StatusOr<std::vector<const LinearCandidateEntry*>> ParseLinearCandidates(
    std::string_view text) {
  std::vector<std::string> names;
  for (const LinearCandidateEntry& entry : kCandidates) names.emplace_back(entry.name);
  REPRISE_ASSIGN_OR_RETURN(const std::vector<size_t> chosen,
                           ParseNameList("candidate", text, names));
  std::vector<const LinearCandidateEntry*> candidates;
  for (const size_t index : chosen) candidates.push_back(&kCandidates[index]);
  return candidates;
}

}  // namespace reprise::tools
