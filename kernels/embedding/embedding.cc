// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding/embedding.h"

#include "kernels/embedding/instances.h"
#include "kernels/launch_check.h"
#include "runtime/status_macros.h"

namespace reprise::kernels {

absl::Status Embedding(runtime::Stream& stream, const KernelSet& kernels, const EmbeddingArgs& args,
                       uint32_t max_tokens) {
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("embedding", "max_tokens", max_tokens, 1));
  REPRISE_RETURN_IF_ERROR(CheckAtLeast("embedding", "hidden", args.hidden, 1));
  const LoadedKernel& kernel = kernels.Get(kEmbedding);
  return stream.Launch(kernel.kernel,
                       {.grid_x = max_tokens, .block = kernel.threads, .label = kernel.label()},
                       args);
}

}  // namespace reprise::kernels
