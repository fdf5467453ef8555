// SPDX-License-Identifier: Apache-2.0
#include "kernels/sample/sample.h"

#include "kernels/launch_check.h"
#include "kernels/sample/instances.h"
#include "kernels/sample/sample_geometry.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {

absl::Status Sample(runtime::Stream& stream, const KernelSet& kernels, const SampleArgs& args,
                    uint32_t max_sampled, uint32_t max_prompt_logprobs) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("sample", "max_sampled", max_sampled, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("sample", "vocab", args.vocab, 1));
  if (args.vocab > kSampleMaxVocab)
    return absl::InvalidArgumentError(
        absl::StrCat("sample: vocab is ", args.vocab, "; allowed: at most ", kSampleMaxVocab));
  if (args.num_chunks != (args.vocab + kSampleChunk - 1) / kSampleChunk)
    return absl::InvalidArgumentError(absl::StrCat("sample: num_chunks is ", args.num_chunks,
                                                   "; allowed: vocab / ", kSampleChunk,
                                                   " rounded up"));
  if (max_prompt_logprobs > 0)
    REPRISE_RETURN_IF_ERROR(
        CheckAtLeast("sample", "result_depth", static_cast<int64_t>(args.result_depth), 1));
  const unsigned rows = max_sampled + max_prompt_logprobs;
  const LoadedKernel& partial = kernels.Get(kSamplePartial);
  const LoadedKernel& final = kernels.Get(kSampleFinal);
  REPRISE_RETURN_IF_ERROR(stream.Launch(partial.kernel,
                                        {.grid_x = rows,
                                         .grid_y = static_cast<unsigned>(args.num_chunks),
                                         .block = partial.threads,
                                         .label = partial.label()},
                                        args));
  return stream.Launch(final.kernel,
                       {.grid_x = rows,
                        .block = final.threads,
                        .shared_bytes = sizeof(ReportScratch),
                        .label = final.label()},
                       args);
}

}  // namespace reprise::kernels
