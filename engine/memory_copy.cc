// SPDX-License-Identifier: Apache-2.0
#include "engine/memory_copy.h"

#include <algorithm>

#include "kernels/block_copy/block_copy.h"
#include "runtime/dtype.h"
#include "runtime/status_macros.h"

namespace reprise::engine {
namespace {

// Bytes of one block in one layer.
int64_t LayerBlockBytes(const models::KvPool& pool) {
  return pool.geometry().BlockElements() *
         static_cast<int64_t>(runtime::SizeOf(pool.geometry().dtype));
}

// From one layer of the pool to the next.
int64_t LayerBytes(const models::KvPool& pool) { return LayerBlockBytes(pool) * pool.num_blocks(); }

// Launches `args` with pair(i) of every i below `count`, as many at a time as a launch takes.
template <typename PairOf>
absl::Status Launch(runtime::Stream& stream, const kernels::KernelSet& kernels, size_t count,
                    const PairOf& pair, kernels::BlockCopyArgs args) {
  for (size_t done = 0; done < count; done += static_cast<size_t>(args.count)) {
    args.count = static_cast<int32_t>(std::min<size_t>(count - done, kernels::kMaxCopyPairs));
    for (size_t i = 0; i < static_cast<size_t>(args.count); ++i) args.pair[i] = pair(done + i);
    REPRISE_RETURN_IF_ERROR(kernels::BlockCopy(stream, kernels, args));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CopyBlocks(runtime::Stream& stream, const kernels::KernelSet& kernels,
                        const models::KvPool& pool, std::span<const kernels::BlockPair> pairs) {
  return Launch(stream, kernels, pairs.size(), [&](size_t i) { return pairs[i]; },
                {.from = pool.Layer(0),
                 .to = pool.Layer(0),
                 .from_layer_bytes = LayerBytes(pool),
                 .to_layer_bytes = LayerBytes(pool),
                 .block_bytes = LayerBlockBytes(pool),
                 .layers = static_cast<int32_t>(pool.geometry().num_layers)});
}

absl::Status CopyLayersOut(runtime::Stream& stream, const kernels::KernelSet& kernels,
                           const models::KvPool& pool, const BlockLayers& layers,
                           std::byte* device) {
  return Launch(stream, kernels, 1,
                [&](size_t) { return kernels::BlockPair{.from = layers.block, .to = 0}; },
                {.from = pool.Layer(layers.first),
                 .to = device,
                 .from_layer_bytes = LayerBytes(pool),
                 .to_layer_bytes = LayerBlockBytes(pool),
                 .block_bytes = LayerBlockBytes(pool),
                 .layers = static_cast<int32_t>(layers.count)});
}

absl::Status CopyLayersIn(runtime::Stream& stream, const kernels::KernelSet& kernels,
                          const models::KvPool& pool, const BlockLayers& layers,
                          const std::byte* device) {
  return Launch(stream, kernels, 1,
                [&](size_t) { return kernels::BlockPair{.from = 0, .to = layers.block}; },
                {.from = device,
                 .to = pool.Layer(layers.first),
                 .from_layer_bytes = LayerBlockBytes(pool),
                 .to_layer_bytes = LayerBytes(pool),
                 .block_bytes = LayerBlockBytes(pool),
                 .layers = static_cast<int32_t>(layers.count)});
}

// A slot has a block's layers one behind the other: it begins at so many of them.
absl::Status CopyToSlots(runtime::Stream& stream, const kernels::KernelSet& kernels,
                         const models::KvPool& pool, std::span<const uint32_t> blocks,
                         std::span<const uint32_t> slots, std::byte* device) {
  const auto layers = static_cast<uint32_t>(pool.geometry().num_layers);
  return Launch(
      stream, kernels, blocks.size(),
      [&](size_t i) { return kernels::BlockPair{.from = blocks[i], .to = slots[i] * layers}; },
      {.from = pool.Layer(0),
       .to = device,
       .from_layer_bytes = LayerBytes(pool),
       .to_layer_bytes = LayerBlockBytes(pool),
       .block_bytes = LayerBlockBytes(pool),
       .layers = static_cast<int32_t>(layers)});
}

absl::Status CopyFromSlots(runtime::Stream& stream, const kernels::KernelSet& kernels,
                           const models::KvPool& pool, std::span<const uint32_t> slots,
                           std::span<const uint32_t> blocks, const std::byte* device) {
  const auto layers = static_cast<uint32_t>(pool.geometry().num_layers);
  return Launch(
      stream, kernels, blocks.size(),
      [&](size_t i) { return kernels::BlockPair{.from = slots[i] * layers, .to = blocks[i]}; },
      {.from = device,
       .to = pool.Layer(0),
       .from_layer_bytes = LayerBlockBytes(pool),
       .to_layer_bytes = LayerBytes(pool),
       .block_bytes = LayerBlockBytes(pool),
       .layers = static_cast<int32_t>(layers)});
}

}  // namespace reprise::engine
