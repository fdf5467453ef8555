// SPDX-License-Identifier: Apache-2.0
// The candidates of `reprise bench attention`: the one table of ways to plan a batch and to attend
// over it. To add one, write its two functions and its line in candidates.cc; measuring, checking,
// tables, JSON and charts take every entry alike.
#ifndef REPRISE_TOOLS_BENCH_CANDIDATES_H_
#define REPRISE_TOOLS_BENCH_CANDIDATES_H_

#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/attention_tree_text.h"
#include "kernels/attention/attention_args.h"
#include "kernels/kernel_set.h"
#include "kernels/plan/plan_args.h"
#include "runtime/device.h"
#include "tools/bench/ladder_trees.h"

namespace reprise::tools {

// What a candidate is given to enqueue with. Everything that it may read of the batch lies in
// device memory; shapes and capacities alone are known when it is captured.
struct AttentionCall {
  runtime::Stream& stream;
  const kernels::KernelSet& kernels;
  const kernels::PlanArgs& plan;            // the step's plan, the rows and the rule to cut them by
  const kernels::AttentionArgs& attention;  // one layer's, with the list of decode items
  bool mixed = false;                       // whether rows may have several query tokens
};

// Launches only. Attention reads what the plan of the same candidate has left.
using EnqueueFn = absl::Status (*)(const AttentionCall& call);
// A tree, of what is known when graphs are captured.
using TreeFn = engine::NamedAttentionTree (*)(const CapturedFor& captured);

struct AttentionCandidateEntry {
  std::string_view name;
  std::string_view description;
  EnqueueFn enqueue_plan = nullptr;       // once per step
  EnqueueFn enqueue_attention = nullptr;  // once per layer
  TreeFn tree = nullptr;                  // what its plan decides by; nullptr: the benchmark's tree
  bool takes_fp8 = true;                  // whether it has kernels for KV of 8 bits
  // Attention is in no graph: its launches come one by one, between replays of small graphs that
  // stand for the rest of a layer.
  bool between_graphs = false;
  bool is_rung = false;  // of the ladder
};

// In the order in which tables show them.
std::span<const AttentionCandidateEntry> AttentionCandidates();

// The rungs in their order, from the naive kernel to what the engine runs.
std::vector<const AttentionCandidateEntry*> LadderCandidates();

// "best,portable". Errors: InvalidArgument with what, got, a name that is near, allowed; and on a
// name that comes twice.
absl::StatusOr<std::vector<const AttentionCandidateEntry*>> ParseCandidates(std::string_view text);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_BENCH_CANDIDATES_H_
