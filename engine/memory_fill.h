// SPDX-License-Identifier: Apache-2.0
// Fills of an engine's device memory beside its steps: NaN wherever nothing may be read (poison
// mode), zeros where another session's tokens were, and random numbers in a pool that is to be
// measured. Each enqueues on `stream`, behind every step that still reads the memory and before any
// that gets it next. Errors: the stream's. Threads: as the stream.
#ifndef REPRISE_ENGINE_MEMORY_FILL_H_
#define REPRISE_ENGINE_MEMORY_FILL_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "engine/step_state.h"
#include "kernels/kernel_set.h"
#include "models/kv_pool.h"
#include "runtime/device.h"

namespace reprise::engine {

absl::Status PoisonPool(runtime::Stream& stream, const kernels::KernelSet& kernels,
                        const models::KvPool& pool);
// NaN in poison mode; 0 in blocks that are allocated to another session.
absl::Status FillBlocks(runtime::Stream& stream, const kernels::KernelSet& kernels,
                        const models::KvPool& pool, std::span<const uint32_t> blocks, float value);
absl::Status PoisonActivations(runtime::Stream& stream, const kernels::KernelSet& kernels,
                               const StepState& state);

// Other numbers in every layer, the same at every start.
absl::Status RandomFillPool(runtime::Stream& stream, const kernels::KernelSet& kernels,
                            const models::KvPool& pool);

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_MEMORY_FILL_H_
