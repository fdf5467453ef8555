// SPDX-License-Identifier: Apache-2.0
#include "kernels/memory_probe/memory_probe.h"

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kMaxBytes = kMemoryProbePiece * INT32_MAX;

absl::StatusOr<runtime::LaunchShape> ShapeFor(const char* op, int64_t bytes) {
  if (bytes < kMemoryProbeGroup || bytes > kMaxBytes || bytes % kMemoryProbeGroup != 0) {
    return absl::InvalidArgumentError(absl::StrCat(op, ": bytes is ", bytes,
                                                   "; allowed: multiples of ", kMemoryProbeGroup,
                                                   " up to ", kMaxBytes));
  }
  const int64_t pieces = (bytes + kMemoryProbePiece - 1) / kMemoryProbePiece;
  return runtime::LaunchShape{
      .grid_x = static_cast<unsigned>(pieces), .block = 256, .label = {.op = op}};
}

}  // namespace

absl::Status MemoryRead(runtime::Stream& stream, const KernelSet& kernels,
                        const MemoryReadArgs& args) {
  REPRISE_ASSIGN_OR_RETURN(const runtime::LaunchShape shape, ShapeFor("memory_read", args.bytes));
  return stream.Launch(kernels.memory_read, shape, args);
}

absl::Status MemoryCopy(runtime::Stream& stream, const KernelSet& kernels,
                        const MemoryCopyArgs& args) {
  REPRISE_ASSIGN_OR_RETURN(const runtime::LaunchShape shape, ShapeFor("memory_copy", args.bytes));
  return stream.Launch(kernels.memory_copy, shape, args);
}

}  // namespace reprise::kernels
