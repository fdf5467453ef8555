// SPDX-License-Identifier: Apache-2.0
#include "kernels/page_walk/page_walk.h"

#include "absl/strings/str_cat.h"
#include "kernels/launch_check.h"
#include "kernels/page_walk/instances.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kVectorBytes = 16;

int64_t TokenBytes(const KvLayout& kv) {
  return kv.head_dim * static_cast<int64_t>(runtime::SizeOf(kv.dtype));
}

absl::Status CheckShapes(const PageWalkArgs& args, uint32_t max_pages) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("page_walk", "num_kv_heads", args.kv.num_kv_heads, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("page_walk", "head_dim", args.kv.head_dim, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("page_walk", "block_size", args.kv.block_size, 1));
  const int64_t token = TokenBytes(args.kv);
  if (token % kVectorBytes != 0)
    return absl::InvalidArgumentError(absl::StrCat("page_walk: a head of a token has ", token,
                                                   " bytes; allowed: multiples of ", kVectorBytes));
  if (token * args.kv.block_size > kPageWalkMaxRunBytes)
    return absl::InvalidArgumentError(
        absl::StrCat("page_walk: a head of a block has ", token * args.kv.block_size,
                     " bytes; allowed: at most ", kPageWalkMaxRunBytes));
  const int64_t runs = int64_t{max_pages} * 2 * args.kv.num_kv_heads;
  if (runs > INT32_MAX)
    return absl::InvalidArgumentError(absl::StrCat("page_walk: max_pages is ", max_pages,
                                                   "; allowed: at most ",
                                                   INT32_MAX / (2 * args.kv.num_kv_heads)));
  return absl::OkStatus();
}

}  // namespace

uint32_t PageWalkGrid(const runtime::DeviceProperties& device) {
  return static_cast<uint32_t>(kPageWalkBlocksPerMultiprocessor * device.num_multiprocessors);
}

absl::Status PageWalk(runtime::Stream& stream, const KernelSet& kernels, const PageWalkArgs& args,
                      uint32_t max_pages) {
  REPRISE_RETURN_IF_ERROR(CheckShapes(args, max_pages));
  PageWalkArgs full = args;
  const auto block_size = static_cast<uint32_t>(args.kv.block_size);
  const int64_t token = args.kv.swizzled ? kKvPanelBytes : TokenBytes(args.kv);
  full.token_vectors = static_cast<uint32_t>(token / kVectorBytes);
  full.panel_vectors = full.token_vectors * block_size;
  full.run_vectors = static_cast<uint32_t>(TokenBytes(args.kv) / kVectorBytes) * block_size;
  full.run_groups = (full.run_vectors + kPageWalkVectors - 1) / kPageWalkVectors;
  const LoadedKernel& kernel = kernels.Get(kPageWalk);
  return stream.Launch(
      kernel.kernel,
      {.grid_x = PageWalkGrid(kernels.device), .block = kernel.threads, .label = kernel.label()},
      full);
}

}  // namespace reprise::kernels
