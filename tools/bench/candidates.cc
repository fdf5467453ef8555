// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/candidates.h"

#include <string>

#include "kernels/attention/attention.h"
#include "kernels/plan/plan.h"
#include "runtime/status_macros.h"
#include "tools/bench/name_list.h"

namespace reprise::tools {
namespace {

using kernels::AttentionCandidate;
using kernels::AttentionPhase;

absl::Status EnqueueEnginePlan(const AttentionCall& call) {
  return kernels::Plan(call.stream, call.kernels, call.plan);
}

// The same, for rows that share nothing.
absl::Status EnqueueAlonePlan(const AttentionCall& call) {
  kernels::PlanArgs plan = call.plan;
  plan.attention.tile_members = 0;
  return kernels::Plan(call.stream, call.kernels, plan);
}

// Lists a work item per split, on every device.
absl::Status EnqueueItemsPlan(const AttentionCall& call) {
  kernels::PlanArgs plan = call.plan;
  plan.attention.num_shares = 0;
  return kernels::Plan(call.stream, call.kernels, plan);
}

// Both phases, as models/layers/attention_layer.cc enqueues them.
template <AttentionCandidate kCandidate>
absl::Status EnqueueAttention(const AttentionCall& call) {
  kernels::AttentionArgs args = call.attention;
  REPRISE_RETURN_IF_ERROR(
      kernels::Attention(call.stream, call.kernels, args, AttentionPhase::kDecode, kCandidate));
  if (!call.mixed) return absl::OkStatus();
  const kernels::StepPlan& plan = call.plan.plan;
  args.items = plan.prefill_items;
  args.num_items = &plan.counts->num_prefill_items;
  return kernels::Attention(call.stream, call.kernels, args, AttentionPhase::kPrefill, kCandidate);
}

template <AttentionCandidate kCandidate>
absl::Status EnqueueOverItems(const AttentionCall& call) {
  kernels::AttentionArgs args = call.attention;
  args.shares = nullptr;
  return EnqueueAttention<kCandidate>({call.stream, call.kernels, call.plan, args, call.mixed});
}

constexpr AttentionCandidateEntry kCandidates[] = {
    {"best",
     "what the engine runs: bulk copies with leaves dealt by weight, else matrix units, on the "
     "host "
     "its own kernel, else the portable kernel",
     EnqueueEnginePlan, EnqueueAttention<AttentionCandidate::kBest>},
    {"alone", "the same with every row attended alone, whatever it shares", EnqueueAlonePlan,
     EnqueueAttention<AttentionCandidate::kBest>},
    {"splits", "the same without bulk copies: a work item per split, dealt in turns",
     EnqueueItemsPlan, EnqueueOverItems<AttentionCandidate::kBest>},
    {"portable", "the reference kernel, everything everywhere", EnqueueItemsPlan,
     EnqueueOverItems<AttentionCandidate::kPortable>},
};

}  // namespace

std::span<const AttentionCandidateEntry> AttentionCandidates() { return kCandidates; }

absl::StatusOr<std::vector<const AttentionCandidateEntry*>> ParseCandidates(std::string_view text) {
  std::vector<std::string> names;
  for (const AttentionCandidateEntry& entry : kCandidates) names.emplace_back(entry.name);
  REPRISE_ASSIGN_OR_RETURN(const std::vector<size_t> chosen,
                           ParseNameList("candidate", text, names));
  std::vector<const AttentionCandidateEntry*> entries;
  entries.reserve(chosen.size());
  for (const size_t index : chosen) entries.push_back(&kCandidates[index]);
  return entries;
}

}  // namespace reprise::tools
