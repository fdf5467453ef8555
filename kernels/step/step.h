// SPDX-License-Identifier: Apache-2.0
// The nodes that frame a step. fetch: metadata ring -> device, updates of block tables and of what
// rows keep for sampling. plan: live counts, positions, KV slots, the work list of attention; rows
// that have stopped get no tokens. publish: advances the rows, ends those that stop, writes the
// result ring. One launch of each per replay.
#ifndef REPRISE_KERNELS_STEP_STEP_H_
#define REPRISE_KERNELS_STEP_STEP_H_

#include "absl/status/status.h"
#include "kernels/kernel_set.h"
#include "kernels/step/step_args.h"
#include "runtime/device.h"

namespace reprise::kernels {

// Reads slot (step_count % depth) of the ring; idle when its sequence is not step_count + 1.
absl::Status Fetch(runtime::Stream& stream, const KernelSet& kernels, const FetchArgs& args);
// One block. Cost: O(rows + tokens + items) over its threads.
absl::Status Plan(runtime::Stream& stream, const KernelSet& kernels, const PlanArgs& args);
// One block. Results become visible to the host before the slot's sequence word does.
absl::Status Publish(runtime::Stream& stream, const KernelSet& kernels, const PublishArgs& args);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_STEP_STEP_H_
