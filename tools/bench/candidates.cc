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

template <AttentionCandidate kCandidate>
absl::Status EnqueuePrompts(const AttentionCall& call) {
  kernels::AttentionArgs args = call.attention;
  const kernels::StepPlan& plan = call.plan.plan;
  args.items = plan.attention[0].prefill_items;
  args.num_items = &plan.counts->num_prefill_items[0];
  return kernels::Attention(call.stream, call.kernels, args, AttentionPhase::kPrefill, kCandidate);
}

// Both phases, as models/layers/attention_layer.cc enqueues them.
template <AttentionCandidate kCandidate>
absl::Status EnqueueAttention(const AttentionCall& call) {
  REPRISE_RETURN_IF_ERROR(kernels::Attention(call.stream, call.kernels, call.attention,
                                             AttentionPhase::kDecode, kCandidate));
  return call.mixed ? EnqueuePrompts<kCandidate>(call) : absl::OkStatus();
}

template <AttentionCandidate kCandidate>
absl::Status EnqueueOverItems(const AttentionCall& call) {
  kernels::AttentionArgs args = call.attention;
  args.shares = nullptr;
  return EnqueueAttention<kCandidate>({call.stream, call.kernels, call.plan, args, call.mixed});
}

// By the kernel that engines run where prefixes are not to be shared.
absl::Status EnqueueAlone(const AttentionCall& call) {
  kernels::AttentionArgs args = call.attention;
  args.prefix_members = nullptr;
  return EnqueueAttention<AttentionCandidate::kBest>(
      {call.stream, call.kernels, call.plan, args, call.mixed});
}

// Decode rows by a launch for the splits and one that merges them. Chunks of prompts, which such
// kernels do not split, as over items.
absl::Status EnqueueTwoKernels(const AttentionCall& call) {
  kernels::AttentionArgs args = call.attention;
  args.shares = nullptr;
  args.arrivals = nullptr;
  REPRISE_RETURN_IF_ERROR(
      kernels::Attention(call.stream, call.kernels, args, AttentionPhase::kDecode));
  REPRISE_RETURN_IF_ERROR(kernels::AttentionMerge(call.stream, call.kernels, args));
  return call.mixed ? EnqueuePrompts<AttentionCandidate::kBest>(call) : absl::OkStatus();
}

constexpr AttentionCandidateEntry kCandidates[] = {
    {.name = "best",
     .description = "what the engine runs: bulk copies with leaves dealt by weight, else matrix "
                    "units, on the host its own kernel, else the portable kernel",
     .enqueue_plan = EnqueueEnginePlan,
     .enqueue_attention = EnqueueAttention<AttentionCandidate::kBest>,
     .is_rung = true},
    {.name = "alone",
     .description = "the same with every row attended alone, whatever it shares",
     .enqueue_plan = EnqueueAlonePlan,
     .enqueue_attention = EnqueueAlone},
    {.name = "splits",
     .description = "the same without bulk copies: a work item per split, dealt in turns",
     .enqueue_plan = EnqueueItemsPlan,
     .enqueue_attention = EnqueueOverItems<AttentionCandidate::kBest>},
    {.name = "portable",
     .description = "the reference kernel, everything everywhere",
     .enqueue_plan = EnqueueItemsPlan,
     .enqueue_attention = EnqueueOverItems<AttentionCandidate::kPortable>},
    {.name = "naive",
     .description = "one query token and one query head per block, all of its KV in turn; heads of "
                    "a group read the same KV each for themselves",
     .enqueue_plan = EnqueueItemsPlan,
     .enqueue_attention = EnqueueOverItems<AttentionCandidate::kNaive>,
     .tree = WholeRowsTree,
     .takes_fp8 = false,
     .is_rung = true},
    {.name = "q-blocks",
     .description = "heads of a group, and neighbouring query tokens, share one read of KV; rows "
                    "are not split",
     .enqueue_plan = EnqueueItemsPlan,
     .enqueue_attention = EnqueueOverItems<AttentionCandidate::kBest>,
     .tree = WholeRowsTree,
     .is_rung = true},
    {.name = "two-kernels",
     .description = "rows of small batches in 16 segments of whole blocks, which a second kernel "
                    "merges",
     .enqueue_plan = EnqueueItemsPlan,
     .enqueue_attention = EnqueueTwoKernels,
     .tree = SegmentsTree,
     .takes_fp8 = false,
     .is_rung = true},
    {.name = "tiles",
     .description = "the same two kernels with splits and query tiles that a tree chooses by the "
                    "live length",
     .enqueue_plan = EnqueueItemsPlan,
     .enqueue_attention = EnqueueTwoKernels,
     .takes_fp8 = false,
     .is_rung = true},
    {.name = "frozen",
     .description = "the same two kernels with as many splits as the host chose at capture, for "
                    "the longest row",
     .enqueue_plan = EnqueueItemsPlan,
     .enqueue_attention = EnqueueTwoKernels,
     .tree = FrozenTree,
     .takes_fp8 = false,
     .is_rung = true},
    {.name = "partial-graph",
     .description = "what best launches, but in no graph: call by call, between replays of small "
                    "graphs",
     .enqueue_plan = EnqueueEnginePlan,
     .enqueue_attention = EnqueueAttention<AttentionCandidate::kBest>,
     .between_graphs = true,
     .is_rung = true},
};

}  // namespace

std::span<const AttentionCandidateEntry> AttentionCandidates() { return kCandidates; }

std::vector<const AttentionCandidateEntry*> LadderCandidates() {
  std::vector<const AttentionCandidateEntry*> rungs;
  for (const AttentionCandidateEntry& entry : kCandidates)
    if (entry.is_rung && &entry != &kCandidates[0]) rungs.push_back(&entry);
  rungs.push_back(&kCandidates[0]);  // the last one
  return rungs;
}

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
