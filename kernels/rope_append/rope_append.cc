// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope_append/rope_append.h"

#include "kernels/launch_check.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {

absl::Status RopeAppend(runtime::Stream& stream, const KernelSet& kernels,
                        const RopeAppendArgs& args, uint32_t max_tokens) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("rope_append", "max_tokens", max_tokens, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("rope_append", "num_heads", args.num_heads, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("rope_append", "num_kv_heads", args.num_kv_heads, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("rope_append", "block_size", args.block_size, 1));
  if (args.head_dim < 2 || args.head_dim % 2 != 0)
    return absl::InvalidArgumentError(absl::StrCat("rope_append: head_dim is ", args.head_dim,
                                                   "; allowed: positive even numbers"));
  if ((args.q_norm == nullptr) != (args.k_norm == nullptr))
    return absl::InvalidArgumentError(
        absl::StrCat("rope_append: got ", args.q_norm == nullptr ? "k_norm" : "q_norm",
                     " alone; allowed: q_norm and k_norm, or neither"));
  // A scale and its partial sums for every head.
  const auto heads = static_cast<size_t>(args.num_heads) + static_cast<size_t>(args.num_kv_heads);
  const size_t shared_bytes =
      args.q_norm == nullptr ? 0 : heads * (1 + kHeadNormLanes) * sizeof(float);
  return stream.Launch(kernels.rope_append,
                       {.grid_x = max_tokens, .block = 256, .shared_bytes = shared_bytes}, args);
}

}  // namespace reprise::kernels
