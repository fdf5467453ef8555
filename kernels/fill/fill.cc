// SPDX-License-Identifier: Apache-2.0
#include "kernels/fill/fill.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/fill/instances.h"
#include "kernels/launch_check.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {
namespace {

// A block per piece, and a few per multiprocessor at most.
template <typename Args>
absl::Status Launch(runtime::Stream& stream, const KernelSet& kernels, const KernelFamily& family,
                    int64_t pieces, const Args& args) {
  const LoadedKernel& kernel =
      runtime::IsFp8(args.dtype) ? *kernels.Find(family, 0, args.dtype) : kernels.Get(family);
  const int64_t blocks = std::min<int64_t>(pieces, 16 * kernels.device.num_multiprocessors);
  return stream.Launch(
      kernel.kernel,
      {.grid_x = static_cast<unsigned>(blocks), .block = kernel.threads, .label = kernel.label()},
      args);
}

absl::Status CheckDType(const char* op, const KernelSet& kernels, runtime::DType dtype) {
  if (dtype == kernels.dtype || runtime::IsFp8(dtype)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      op, ": dtype is ", std::string(runtime::NameOf(dtype)),
      "; allowed: ", std::string(runtime::NameOf(kernels.dtype)), ", fp8_e4m3, fp8_e5m2"));
}

int64_t PiecesOf(int64_t count) { return (count + kFillPiece - 1) / kFillPiece; }

}  // namespace

absl::Status RandomFill(runtime::Stream& stream, const KernelSet& kernels,
                        const RandomFillArgs& args) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("random_fill", "count", args.count, 1));
  REPRISE_RETURN_IF_ERROR(CheckDType("random_fill", kernels, args.dtype));
  if (args.packed && (args.dtype != runtime::DType::kE4m3 || args.count % 4 != 0))
    return absl::InvalidArgumentError(absl::StrCat(
        "random_fill: packed words of ", args.count, " elements of ",
        std::string(runtime::NameOf(args.dtype)), "; allowed: fp8_e4m3 in whole words of four"));
  return Launch(stream, kernels, kRandomFill, PiecesOf(args.count), args);
}

absl::Status NanFill(runtime::Stream& stream, const KernelSet& kernels, const NanFillArgs& args) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("nan_fill", "count", args.count, 1));
  REPRISE_RETURN_IF_ERROR(CheckDType("nan_fill", kernels, args.dtype));
  return Launch(stream, kernels, kNanFill, PiecesOf(args.count), args);
}

absl::Status BlockFill(runtime::Stream& stream, const KernelSet& kernels,
                       const BlockFillArgs& args) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("block_fill", "count", args.count, 1));
  if (args.count > kMaxFillBlocks) {
    return absl::InvalidArgumentError(
        absl::StrCat("block_fill: count is ", args.count, "; allowed: at most ", kMaxFillBlocks));
  }
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("block_fill", "layers", args.layers, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("block_fill", "block_elements", args.block_elements, 1));
  REPRISE_RETURN_IF_ERROR(CheckDType("block_fill", kernels, args.dtype));
  return Launch(stream, kernels, kBlockFill,
                PiecesOf(args.block_elements) * args.count * args.layers, args);
}

}  // namespace reprise::kernels
