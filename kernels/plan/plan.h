// SPDX-License-Identifier: Apache-2.0
// The plan: the node behind fetch. It turns the rows that run into what every other kernel of the
// step reads: live counts, positions, KV places, which rows sample, and attention's work items.
// Rows that have stopped get no tokens. One launch per replay; it stands apart from step/ and
// attention/, whose parts it puts together, so that neither needs the other's bodies.
#ifndef REPRISE_KERNELS_PLAN_PLAN_H_
#define REPRISE_KERNELS_PLAN_PLAN_H_

#include "absl/status/status.h"
#include "kernels/kernel_set.h"
#include "kernels/plan/plan_args.h"
#include "runtime/device.h"

namespace reprise::kernels {

// A block per sliding window of the rule, side by side. Cost: O(rows + tokens + items) over its
// threads. Errors: InvalidArgument on a block size or a rule of zero, without a tree, or on more
// windows than there are lists for.
absl::Status Plan(runtime::Stream& stream, const KernelSet& kernels, const PlanArgs& args);

// Plans that are enqueued from here on decide by `tree`, which lies at `to` then. Copies it at the
// launch: nothing of the caller's has to stay. `tree` must pass CheckAttentionTree.
absl::Status SetAttentionTree(runtime::Stream& stream, const KernelSet& kernels,
                              const AttentionTree& tree, AttentionTree* to);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_PLAN_PLAN_H_
