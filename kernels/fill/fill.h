// SPDX-License-Identifier: Apache-2.0
// Fills: random weights for presets, NaN for poison mode, KV blocks that change hands. Never inside
// a step.
#ifndef REPRISE_KERNELS_FILL_FILL_H_
#define REPRISE_KERNELS_FILL_FILL_H_

#include "absl/status/status.h"
#include "kernels/fill/fill_args.h"
#include "kernels/kernel_set.h"
#include "runtime/device.h"

namespace reprise::kernels {

// out[i] = stddev * u(seed, i), u of zero mean and unit variance: the sum of four uniforms of one
// Philox block, rescaled. Packed: element i of word w is out[4 w + i]. Errors: InvalidArgument
// where words are not of kE4m3, or not whole.
absl::Status RandomFill(runtime::Stream& stream, const KernelSet& kernels,
                        const RandomFillArgs& args);
// out[i] = quiet NaN.
absl::Status NanFill(runtime::Stream& stream, const KernelSet& kernels, const NanFillArgs& args);
// Every element of the named blocks, in all layers, becomes args.value: one launch. Errors:
// InvalidArgument unless 1 to kMaxFillBlocks blocks are named. All: on a dtype that is neither of 8
// bits nor that of `kernels`.
absl::Status BlockFill(runtime::Stream& stream, const KernelSet& kernels,
                       const BlockFillArgs& args);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_FILL_FILL_H_
