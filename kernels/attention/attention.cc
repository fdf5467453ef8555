// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/attention/attention_geometry.h"
#include "kernels/attention/attention_shapes.h"
#include "kernels/attention/decode_bulk_geometry.h"
#include "kernels/attention/instances.h"
#include "kernels/attention/kv_check.h"
#include "kernels/launch_check.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {
namespace {

// Query tokens x group heads of the largest item of a phase.
int MaxRows(const KernelSet& kernels, const AttentionArgs& args, AttentionPhase phase) {
  const int group = args.num_heads / args.kv.num_kv_heads;
  return phase == AttentionPhase::kDecode
             ? group
             : std::max(group, NumPrefillRows(kernels, args.num_heads, args.kv));
}

// The grid is static: what the device runs at once, whatever the batch. Passes depend on shapes and
// the device alone.
absl::Status LaunchPortable(runtime::Stream& stream, const KernelSet& kernels, AttentionArgs args,
                            AttentionPhase phase) {
  const size_t row_bytes = PortableAttentionRowBytes(args.kv.head_dim);
  const int rows = MaxRows(kernels, args, phase);
  args.pass_rows =
      PortableAttentionPassRows(rows, args.kv.head_dim, kernels.device.max_shared_bytes);
  if (args.pass_rows == 0)
    return absl::FailedPreconditionError(absl::StrCat(
        "attention: one query row of head_dim ", args.kv.head_dim, " takes ",
        row_bytes + kPortableStaticBytes, " bytes of shared memory; '", kernels.device.name,
        "' has ", kernels.device.max_shared_bytes, " bytes for a block"));
  args.num_passes = (rows + args.pass_rows - 1) / args.pass_rows;
  const LoadedKernel& kernel = *kernels.Find(kAttentionPortable, 0, args.kv.dtype);
  return stream.Launch(kernel.kernel,
                       {.grid_x = 2 * static_cast<unsigned>(kernels.device.num_multiprocessors),
                        .block = kernel.threads,
                        .shared_bytes = static_cast<size_t>(args.pass_rows) * row_bytes,
                        .label = kernel.label()},
                       args);
}

// As many blocks of each as a multiprocessor of sm_90 holds.
constexpr unsigned kNaiveBlocksPerMultiprocessor = 4;
constexpr unsigned kMergeBlocksPerMultiprocessor = 8;

// A row is a pass of its own.
absl::Status LaunchNaive(runtime::Stream& stream, const KernelSet& kernels, AttentionArgs args,
                         AttentionPhase phase) {
  const size_t bytes = NaiveAttentionBytes(args.kv.head_dim);
  if (bytes > kernels.device.max_shared_bytes)
    return absl::FailedPreconditionError(
        absl::StrCat("attention: one query row of head_dim ", args.kv.head_dim, " takes ", bytes,
                     " bytes of shared memory; '", kernels.device.name, "' has ",
                     kernels.device.max_shared_bytes, " bytes for a block"));
  REPRISE_RETURN_IF_ERROR(
      CheckKvFormat("attention, naive", kernels, kAttentionNaive, args.kv.dtype, args.scales));
  args.pass_rows = 1;
  args.num_passes = MaxRows(kernels, args, phase);
  const LoadedKernel& kernel = kernels.Get(kAttentionNaive);
  return stream.Launch(kernel.kernel,
                       {.grid_x = kNaiveBlocksPerMultiprocessor *
                                  static_cast<unsigned>(kernels.device.num_multiprocessors),
                        .block = kernel.threads,
                        .shared_bytes = bytes,
                        .label = kernel.label()},
                       args);
}

// nullptr where there is none for such a call.
const LoadedKernel* NativeKernel(const KernelSet& kernels, const AttentionArgs& args) {
  const size_t bytes = NativeAttentionLayoutOf(args.kv.head_dim).bytes;
  if (args.kv.swizzled || bytes > kernels.device.max_shared_bytes) return nullptr;
  return kernels.Find(kAttentionNative, 0, args.kv.dtype);
}

absl::Status LaunchNative(runtime::Stream& stream, const KernelSet& kernels,
                          const LoadedKernel& kernel, const AttentionArgs& args) {
  // Many to a thread, so that one that is held up leaves its share to the others.
  constexpr unsigned kBlocksPerThread = 32;
  return stream.Launch(
      kernel.kernel,
      {.grid_x = kBlocksPerThread * static_cast<unsigned>(kernels.device.num_multiprocessors),
       .block = kernel.threads,
       .shared_bytes = NativeAttentionLayoutOf(args.kv.head_dim).bytes,
       .label = kernel.label()},
      args);
}

absl::Status LaunchBulkDecode(runtime::Stream& stream, const KernelSet& kernels,
                              const AttentionArgs& args) {
  const LoadedKernel* const kernel =
      BulkDecodeKernel(kernels, args.num_heads, args.kv, args.prefix_members != nullptr);
  if (kernel == nullptr || !args.kv.swizzled)
    return absl::FailedPreconditionError(absl::StrCat(
        "attention: decode shares for ", args.num_heads, " heads over ", args.kv.num_kv_heads,
        " of dimension ", args.kv.head_dim, " in blocks of ", args.kv.block_size, " tokens, ",
        args.kv.swizzled ? "swizzled" : "not swizzled", "; '", kernels.device.name,
        "' has no kernel for that"));
  if (args.arrivals == nullptr)
    return absl::FailedPreconditionError(
        "attention: decode shares without arrivals; allowed: both, a deal merges as it goes");
  return stream.Launch(kernel->kernel,
                       {.grid_x = NumDecodeShares(kernels, args.num_heads, args.kv),
                        .block = kernel->threads,
                        .shared_bytes = BulkLayout(args.kv.head_dim, args.kv.ElementBytes()).bytes,
                        .label = kernel->label()},
                       args);
}

absl::Status CheckShapes(const AttentionArgs& args) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("attention", "num_kv_heads", args.kv.num_kv_heads, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("attention", "head_dim", args.kv.head_dim, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("attention", "block_size", args.kv.block_size, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("attention", "max_splits", args.max_splits, 1));
  if (args.num_heads < args.kv.num_kv_heads || args.num_heads % args.kv.num_kv_heads != 0)
    return absl::InvalidArgumentError(absl::StrCat("attention: num_heads is ", args.num_heads,
                                                   "; allowed: multiples of num_kv_heads, ",
                                                   args.kv.num_kv_heads));
  if (args.kv.head_dim > 256)
    return absl::UnimplementedError(
        absl::StrCat("attention: head_dim is ", args.kv.head_dim, "; allowed: at most 256"));
  if (!std::isfinite(args.softcap) || args.softcap < 0.0f)
    return absl::InvalidArgumentError(absl::StrCat("attention: softcap is ", args.softcap,
                                                   "; allowed: 0 (none) and positive numbers"));
  return absl::OkStatus();
}

}  // namespace

absl::Status Attention(runtime::Stream& stream, const KernelSet& kernels, const AttentionArgs& args,
                       AttentionPhase phase, AttentionCandidate candidate) {
  REPRISE_RETURN_IF_ERROR(CheckShapes(args));
  REPRISE_RETURN_IF_ERROR(
      CheckKvFormat("attention", kernels, kAttentionPortable, args.kv.dtype, args.scales));
  if (phase == AttentionPhase::kDecode && args.shares != nullptr)
    return LaunchBulkDecode(stream, kernels, args);
  if (candidate == AttentionCandidate::kNaive) return LaunchNaive(stream, kernels, args, phase);
  if (candidate == AttentionCandidate::kBest) {
    if (const LoadedKernel* const native = NativeKernel(kernels, args))
      return LaunchNative(stream, kernels, *native, args);
  }
  if (candidate == AttentionCandidate::kBest && MatrixAttentionFits(kernels, args)) {
    const MatrixAttentionLaunch launch = MatrixAttentionLaunchFor(kernels, args, phase);
    return stream.Launch(launch.kernel, launch.shape, args);
  }
  return LaunchPortable(stream, kernels, args, phase);
}

absl::Status AttentionMerge(runtime::Stream& stream, const KernelSet& kernels,
                            const AttentionArgs& args, AttentionCandidate candidate) {
  REPRISE_RETURN_IF_ERROR(CheckShapes(args));
  REPRISE_RETURN_IF_ERROR(CheckKvFormat("attention, merge of splits", kernels, kAttentionMerge,
                                        args.kv.dtype, args.scales));
  if (args.shares != nullptr || candidate == AttentionCandidate::kNaive)
    return absl::FailedPreconditionError(absl::StrCat(
        "attention: a merge for ", args.shares != nullptr ? "decode shares" : "the naive candidate",
        "; allowed: for items of the others, which leave partial results"));
  const bool portable =
      candidate == AttentionCandidate::kPortable ||
      (NativeKernel(kernels, args) == nullptr && !MatrixAttentionFits(kernels, args));
  const LoadedKernel& kernel = kernels.Get(kAttentionMerge);
  return stream.Launch(kernel.kernel,
                       {.grid_x = kMergeBlocksPerMultiprocessor *
                                  static_cast<unsigned>(kernels.device.num_multiprocessors),
                        .block = kernel.threads,
                        .label = kernel.label()},
                       AttentionMergeArgs{args, portable ? 1.0f : std::numbers::ln2_v<float>});
}

}  // namespace reprise::kernels
