// SPDX-License-Identifier: Apache-2.0
#include "kernels/rope_append/rope_append.h"

#include <algorithm>

#include "kernels/attention/kv_check.h"
#include "kernels/launch_check.h"
#include "kernels/rope_append/instances.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {
namespace {

// Few tokens leave multiprocessors idle: a thread for every two packs, so that one round trip to
// memory is all. Many tokens fill them: small blocks, which overlap better. No element's value
// depends on it.
unsigned BlockThreads(const LoadedKernel& kernel, const RopeAppendArgs& args, size_t element_bytes,
                      uint32_t max_tokens) {
  constexpr unsigned kFewTokens = 256, kSmall = 128;
  if (max_tokens > kFewTokens) return kSmall;
  const int64_t heads = int64_t{args.num_heads} + 2 * int64_t{args.kv.num_kv_heads};
  const int64_t pairs = heads * args.kv.head_dim * static_cast<int64_t>(element_bytes) / (2 * 16);
  return static_cast<unsigned>(
      std::clamp<int64_t>((pairs + kSmall - 1) / kSmall * kSmall, kSmall, kernel.threads));
}

}  // namespace

absl::Status RopeAppend(runtime::Stream& stream, const KernelSet& kernels,
                        const RopeAppendArgs& args, uint32_t max_tokens) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("rope_append", "max_tokens", max_tokens, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("rope_append", "num_heads", args.num_heads, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("rope_append", "num_kv_heads", args.kv.num_kv_heads, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("rope_append", "block_size", args.kv.block_size, 1));
  if (args.kv.head_dim < 2 || args.kv.head_dim % 2 != 0)
    return absl::InvalidArgumentError(absl::StrCat("rope_append: head_dim is ", args.kv.head_dim,
                                                   "; allowed: positive even numbers"));
  if ((args.q_norm == nullptr) != (args.k_norm == nullptr))
    return absl::InvalidArgumentError(
        absl::StrCat("rope_append: got ", args.q_norm == nullptr ? "k_norm" : "q_norm",
                     " alone; allowed: q_norm and k_norm, or neither"));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("rope_append", "rope_tables", args.rope_tables, 1));
  const bool normed = args.q_norm != nullptr;
  const KernelFamily& family = normed ? kRopeAppendNormed : kRopeAppend;
  REPRISE_RETURN_IF_ERROR(
      CheckKvFormat("rope_append", kernels, family, args.kv.dtype, args.scales));
  // Of every head, and of q and k where they are normed whole.
  const auto sums = static_cast<size_t>(args.num_heads) +
                    static_cast<size_t>(args.kv.num_kv_heads) + (args.whole_norm != 0 ? 2 : 0);
  const size_t shared_bytes = normed ? sums * kHeadNormLanes * sizeof(float) : 0;
  const LoadedKernel& kernel = *kernels.Find(family, 0, args.kv.dtype);
  const unsigned threads = BlockThreads(kernel, args, runtime::SizeOf(kernels.dtype), max_tokens);
  return stream.Launch(kernel.kernel,
                       {.grid_x = max_tokens,
                        .block = threads,
                        .shared_bytes = shared_bytes,
                        .label = kernel.label()},
                       args);
}

}  // namespace reprise::kernels
