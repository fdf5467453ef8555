// SPDX-License-Identifier: Apache-2.0
// Copies of KV blocks beside an engine's steps: within the pool, and between the pool and mapped
// memory. Each enqueues on `stream`, behind every step that was submitted before and ahead of every
// later one. Errors: the stream's. Threads: as the stream.
#ifndef REPRISE_ENGINE_MEMORY_COPY_H_
#define REPRISE_ENGINE_MEMORY_COPY_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/block_copy/block_copy_args.h"
#include "kernels/kernel_set.h"
#include "models/kv_pool.h"
#include "runtime/device.h"

namespace reprise::engine {

// Whole blocks, in all layers. No block is the destination of a pair and in another one.
absl::Status CopyBlocks(runtime::Stream& stream, const kernels::KernelSet& kernels,
                        const models::KvPool& pool, std::span<const kernels::BlockPair> pairs);

// A range of one block's layers.
struct BlockLayers {
  uint32_t block = 0;
  uint32_t first = 0;
  uint32_t count = 0;
};
// To and from [count] layers as they lie in the pool, one behind the other, at `device`.
absl::Status CopyLayersOut(runtime::Stream& stream, const kernels::KernelSet& kernels,
                           const models::KvPool& pool, const BlockLayers& layers,
                           std::byte* device);
absl::Status CopyLayersIn(runtime::Stream& stream, const kernels::KernelSet& kernels,
                          const models::KvPool& pool, const BlockLayers& layers,
                          const std::byte* device);

// Whole blocks to and from slots of BlockBytes() each at `device`: pair i is (blocks[i], slots[i]).
absl::Status CopyToSlots(runtime::Stream& stream, const kernels::KernelSet& kernels,
                         const models::KvPool& pool, std::span<const uint32_t> blocks,
                         std::span<const uint32_t> slots, std::byte* device);
absl::Status CopyFromSlots(runtime::Stream& stream, const kernels::KernelSet& kernels,
                           const models::KvPool& pool, std::span<const uint32_t> slots,
                           std::span<const uint32_t> blocks, const std::byte* device);

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_MEMORY_COPY_H_
