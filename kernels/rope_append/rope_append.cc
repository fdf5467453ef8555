// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope_append/rope_append.h"

#include <algorithm>

#include "kernels/launch_check.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {
namespace {

// Few tokens leave multiprocessors idle: a thread for every two packs, so that one round trip to
// memory is all. Many tokens fill them: small blocks, which overlap better. No element's value
// depends on it.
uint32_t BlockThreads(const RopeAppendArgs& args, size_t element_bytes, uint32_t max_tokens) {
  constexpr uint32_t kFewTokens = 256, kLargest = 512, kSmall = 128;
  if (max_tokens > kFewTokens) return kSmall;
  const int64_t heads = int64_t{args.num_heads} + 2 * int64_t{args.num_kv_heads};
  const int64_t pairs = heads * args.head_dim * static_cast<int64_t>(element_bytes) / (2 * 16);
  return static_cast<uint32_t>(
      std::clamp<int64_t>((pairs + kSmall - 1) / kSmall * kSmall, kSmall, kLargest));
}

}  // namespace

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
  const bool normed = args.q_norm != nullptr;
  const auto heads = static_cast<size_t>(args.num_heads) + static_cast<size_t>(args.num_kv_heads);
  const size_t shared_bytes = normed ? heads * kHeadNormLanes * sizeof(float) : 0;
  return stream.Launch(normed ? kernels.rope_append_normed : kernels.rope_append,
                       {.grid_x = max_tokens,
                        .block = BlockThreads(args, runtime::SizeOf(kernels.dtype), max_tokens),
                        .shared_bytes = shared_bytes,
                        .label = {.op = normed ? "rope_append_normed" : "rope_append"}},
                       args);
}

}  // namespace reprise::kernels
