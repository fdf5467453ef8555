// SPDX-License-Identifier: Apache-2.0
#include "kernels/plan/plan.h"

#include "absl/strings/str_cat.h"
#include "kernels/launch_check.h"
#include "kernels/plan/instances.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {

absl::Status Plan(runtime::Stream& stream, const KernelSet& kernels, const PlanArgs& args) {
  const AttentionPlanRule& rule = args.attention;
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("plan", "block_size", args.block_size, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("plan", "prefill_q_tokens", rule.prefill_q_tokens, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("plan", "max_rows", args.max_rows, 1));
  if (rule.num_windows < 1 || rule.num_windows > kMaxAttentionWindows)
    return absl::InvalidArgumentError(absl::StrCat("plan: num_windows is ", rule.num_windows,
                                                   "; allowed: 1 to ", kMaxAttentionWindows));
  if (rule.tree == nullptr)
    return absl::InvalidArgumentError(
        "plan: there is no attention tree; allowed: one on the device");
  if (rule.num_shares != 0) {
    REPRISE_RETURN_IF_ERROR(CheckAtLeast("plan", "num_kv_heads", rule.num_kv_heads, 1));
    if (rule.num_shares > kMaxDecodeShares)
      return absl::InvalidArgumentError(absl::StrCat("plan: num_shares is ", rule.num_shares,
                                                     "; allowed: at most ", kMaxDecodeShares));
    if (rule.max_splits > kMaxLeaves)
      return absl::InvalidArgumentError(
          absl::StrCat("plan: max_splits is ", rule.max_splits, "; allowed: at most ", kMaxLeaves));
  }
  const size_t shared_bytes = PlanSharedLayoutOf(args.max_rows, rule.num_shares).bytes;
  if (shared_bytes + kPlanStaticBytes > kernels.device.max_shared_bytes)
    return absl::InvalidArgumentError(absl::StrCat(
        "plan: max_rows is ", args.max_rows, ", whose plan takes ", shared_bytes + kPlanStaticBytes,
        " bytes of shared memory; '", kernels.device.name, "' has ",
        kernels.device.max_shared_bytes, " bytes for a block"));
  const LoadedKernel& kernel = kernels.Get(kPlan);
  return stream.Launch(kernel.kernel,
                       {.grid_x = rule.num_windows,
                        .block = kernel.threads,
                        .shared_bytes = shared_bytes,
                        .label = kernel.label()},
                       args);
}

absl::Status SetAttentionTree(runtime::Stream& stream, const KernelSet& kernels,
                              const AttentionTree& tree, AttentionTree* to) {
  const LoadedKernel& kernel = kernels.Get(kPlanSetTree);
  return stream.Launch(kernel.kernel,
                       {.grid_x = 1, .block = kernel.threads, .label = kernel.label()},
                       SetAttentionTreeArgs{.tree = tree, .to = to});
}

}  // namespace reprise::kernels
