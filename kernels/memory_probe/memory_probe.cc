// SPDX-License-Identifier: Apache-2.0
#include "kernels/memory_probe/memory_probe.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/memory_probe/instances.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kMaxBytes = kMemoryProbePiece * INT32_MAX;

template <typename Args>
absl::Status Launch(runtime::Stream& stream, const KernelSet& kernels, const KernelFamily& family,
                    const KernelFamily& native_family, const Args& args) {
  const int64_t bytes = args.bytes;
  if (bytes < kMemoryProbeGroup || bytes > kMaxBytes || bytes % kMemoryProbeGroup != 0) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(family.name), ": bytes is ", bytes,
                                                   "; allowed: multiples of ", kMemoryProbeGroup,
                                                   " up to ", kMaxBytes));
  }
  const int64_t pieces = (bytes + kMemoryProbePiece - 1) / kMemoryProbePiece;
  const LoadedKernel* native = kernels.Find(native_family);
  const LoadedKernel& kernel = native != nullptr ? *native : kernels.Get(family);
  return stream.Launch(
      kernel.kernel,
      {.grid_x = static_cast<unsigned>(pieces), .block = kernel.threads, .label = kernel.label()},
      args);
}

}  // namespace

absl::Status MemoryRead(runtime::Stream& stream, const KernelSet& kernels,
                        const MemoryReadArgs& args) {
  return Launch(stream, kernels, kMemoryRead, kMemoryReadNative, args);
}

absl::Status MemoryCopy(runtime::Stream& stream, const KernelSet& kernels,
                        const MemoryCopyArgs& args) {
  return Launch(stream, kernels, kMemoryCopy, kMemoryCopyNative, args);
}

}  // namespace reprise::kernels
