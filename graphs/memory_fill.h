// SPDX-License-Identifier: Apache-2.0
// Fills of an engine's device memory beside its steps: NaN wherever nothing may be read (poison
// mode), and random numbers in a pool that is to be measured. Each enqueues on `stream`, behind
// every step that still reads the memory and before any that gets it next.
// Errors: the stream's. Threads: as the stream.
#ifndef REPRISE_GRAPHS_MEMORY_FILL_H_
#define REPRISE_GRAPHS_MEMORY_FILL_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "graphs/workspace.h"
#include "kernels/kernel_set.h"
#include "runtime/device.h"
#include "runtime/kv_pool.h"

namespace reprise::graphs {

absl::Status PoisonPool(runtime::Stream& stream, const kernels::KernelSet& kernels,
                        const runtime::KvPool& pool);
absl::Status PoisonBlocks(runtime::Stream& stream, const kernels::KernelSet& kernels,
                          const runtime::KvPool& pool, std::span<const uint32_t> blocks);
absl::Status PoisonActivations(runtime::Stream& stream, const kernels::KernelSet& kernels,
                               const StepWorkspace& workspace);

// Other numbers in every layer, the same at every start.
absl::Status RandomFillPool(runtime::Stream& stream, const kernels::KernelSet& kernels,
                            const runtime::KvPool& pool);

}  // namespace reprise::graphs

#endif  // REPRISE_GRAPHS_MEMORY_FILL_H_
