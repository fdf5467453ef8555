// SPDX-License-Identifier: Apache-2.0
#include "kernels/step/step.h"

#include "kernels/launch_check.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {
namespace {

// Blocks that share the block-table updates of a step; each reads host memory over the bus, so a
// few are enough.
constexpr unsigned kFetchBlocks = 16;
// As in body.h.
constexpr size_t kFetchAheadBytes = 4096;

}  // namespace

absl::Status Fetch(runtime::Stream& stream, const KernelSet& kernels, const FetchArgs& args) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("fetch", "depth", args.depth, 1));
  const unsigned blocks = kernels.is_host_native() ? 1 : kFetchBlocks;
  return stream.Launch(
      kernels.fetch,
      {.grid_x = blocks, .block = 256, .shared_bytes = kFetchAheadBytes, .label = {.op = "fetch"}},
      args);
}

absl::Status Plan(runtime::Stream& stream, const KernelSet& kernels, const PlanArgs& args) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("plan", "block_size", args.block_size, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("plan", "prefill_q_tokens", args.prefill_q_tokens, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("plan", "max_splits", args.split.max_splits, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("plan", "split_multiple", args.split.split_multiple, 1));
  return stream.Launch(kernels.plan, {.grid_x = 1, .block = 512, .label = {.op = "plan"}}, args);
}

absl::Status Publish(runtime::Stream& stream, const KernelSet& kernels, const PublishArgs& args) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("publish", "depth", args.depth, 1));
  return stream.Launch(kernels.publish, {.grid_x = 1, .block = 256, .label = {.op = "publish"}},
                       args);
}

}  // namespace reprise::kernels
