// SPDX-License-Identifier: Apache-2.0
// Copies of KV blocks: within the pool for rows that fork, and between the pool and mapped memory
// for blocks that leave the device or come back to it. Beside steps, in stream order with them,
// never inside one.
#ifndef REPRISE_KERNELS_BLOCK_COPY_BLOCK_COPY_H_
#define REPRISE_KERNELS_BLOCK_COPY_BLOCK_COPY_H_

#include "absl/status/status.h"
#include "kernels/block_copy/block_copy_args.h"
#include "kernels/kernel_set.h"
#include "runtime/device.h"

namespace reprise::kernels {

// to[l, pair.to] = from[l, pair.from] for every layer l and pair, byte by byte: one launch.
// from, to: device or mapped memory; pairs may come in any order, so that no block is written that
// another pair reads or writes. Errors: InvalidArgument unless there are 1 to kMaxCopyPairs pairs,
// at least 1 layer and 1 byte of a block, and both addresses.
absl::Status BlockCopy(runtime::Stream& stream, const KernelSet& kernels,
                       const BlockCopyArgs& args);

// *word = value, once all work ahead of it on the stream is done and the host sees what it wrote.
// Errors: InvalidArgument when `word` is null.
absl::Status NotifyHost(runtime::Stream& stream, const KernelSet& kernels,
                        const NotifyHostArgs& args);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_BLOCK_COPY_BLOCK_COPY_H_
