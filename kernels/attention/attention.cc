// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention/attention.h"

#include <algorithm>

#include "kernels/attention/attention_shapes.h"
#include "kernels/launch_check.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {
namespace {

// Query tokens x group heads of the largest item of a phase.
int MaxRows(const AttentionArgs& args, AttentionPhase phase) {
  const int group = args.num_heads / args.num_kv_heads;
  return phase == AttentionPhase::kDecode ? group : std::max(group, kPrefillRows);
}

size_t PortableSharedBytes(const AttentionArgs& args, AttentionPhase phase) {
  constexpr int kKvTile = 32;  // kPortableKvTile of portable_body.h
  const size_t rows = static_cast<size_t>(MaxRows(args, phase));
  return rows * (2 * static_cast<size_t>(args.head_dim) + kKvTile + 3) * sizeof(float);
}

absl::Status CheckShapes(const AttentionArgs& args) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("attention", "num_kv_heads", args.num_kv_heads, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("attention", "head_dim", args.head_dim, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("attention", "block_size", args.block_size, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("attention", "max_splits", args.max_splits, 1));
  if (args.num_heads < args.num_kv_heads || args.num_heads % args.num_kv_heads != 0)
    return absl::InvalidArgumentError(absl::StrCat("attention: num_heads is ", args.num_heads,
                                                   "; allowed: multiples of num_kv_heads, ",
                                                   args.num_kv_heads));
  if (args.head_dim > 256)
    return absl::UnimplementedError(
        absl::StrCat("attention: head_dim is ", args.head_dim, "; allowed: at most 256"));
  return absl::OkStatus();
}

}  // namespace

absl::Status Attention(runtime::Stream& stream, const KernelSet& kernels, const AttentionArgs& args,
                       AttentionPhase phase, AttentionCandidate candidate) {
  REPRISE_RETURN_IF_ERROR(CheckShapes(args));
  // Static grid: what the device runs at once, whatever the batch.
  const unsigned sms = static_cast<unsigned>(kernels.device.num_multiprocessors);
  if (candidate == AttentionCandidate::kBest && MmaAttentionFits(kernels, args)) {
    const MmaAttentionLaunch launch = MmaAttentionLaunchFor(kernels, args, phase);
    return stream.Launch(*launch.kernel, launch.shape, args);
  }
  return stream.Launch(
      kernels.attention_portable,
      {.grid_x = 2 * sms, .block = 256, .shared_bytes = PortableSharedBytes(args, phase)}, args);
}

}  // namespace reprise::kernels
