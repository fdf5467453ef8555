// SPDX-License-Identifier: Apache-2.0
#include "kernels/sample/sample.h"

#include "kernels/launch_check.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {

absl::Status Sample(runtime::Stream& stream, const KernelSet& kernels, const SampleArgs& args,
                    uint32_t max_sampled) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("sample", "max_sampled", max_sampled, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("sample", "vocab", args.vocab, 1));
  if (args.num_chunks != (args.vocab + kSampleChunk - 1) / kSampleChunk)
    return absl::InvalidArgumentError(absl::StrCat("sample: num_chunks is ", args.num_chunks,
                                                   "; allowed: vocab / ", kSampleChunk,
                                                   " rounded up"));
  REPRISE_RETURN_IF_ERROR(stream.Launch(
      kernels.sample_partial,
      {.grid_x = max_sampled, .grid_y = static_cast<unsigned>(args.num_chunks), .block = 256},
      args));
  const size_t shared = (kSampleChunk / kSampleSubChunk + 1) * sizeof(float);
  return stream.Launch(kernels.sample_final,
                       {.grid_x = max_sampled, .block = 256, .shared_bytes = shared}, args);
}

}  // namespace reprise::kernels
