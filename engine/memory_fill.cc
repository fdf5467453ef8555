// SPDX-License-Identifier: Apache-2.0
#include "engine/memory_fill.h"

#include <algorithm>
#include <cstddef>

#include "kernels/fill/fill.h"
#include "runtime/status_macros.h"

namespace reprise::engine {
namespace {

int64_t LayerElements(const models::KvPool& pool) {
  return pool.geometry().BlockElements() * pool.num_blocks();
}

}  // namespace

absl::Status PoisonPool(runtime::Stream& stream, const kernels::KernelSet& kernels,
                        const models::KvPool& pool) {
  for (int64_t layer = 0; layer < pool.geometry().num_layers; ++layer)
    REPRISE_RETURN_IF_ERROR(kernels::NanFill(
        stream, kernels,
        {.out = pool.Layer(layer), .dtype = pool.geometry().dtype, .count = LayerElements(pool)}));
  return absl::OkStatus();
}

absl::Status FillBlocks(runtime::Stream& stream, const kernels::KernelSet& kernels,
                        const models::KvPool& pool, std::span<const uint32_t> blocks, float value) {
  kernels::BlockFillArgs args = {.out = pool.Layer(0),
                                 .dtype = pool.geometry().dtype,
                                 .layer_elements = LayerElements(pool),
                                 .block_elements = pool.geometry().BlockElements(),
                                 .layers = static_cast<int32_t>(pool.geometry().num_layers),
                                 .value = value};
  while (!blocks.empty()) {
    const size_t count = std::min<size_t>(blocks.size(), kernels::kMaxFillBlocks);
    args.count = static_cast<int32_t>(count);
    std::copy_n(blocks.begin(), count, args.block);
    REPRISE_RETURN_IF_ERROR(kernels::BlockFill(stream, kernels, args));
    blocks = blocks.subspan(count);
  }
  return absl::OkStatus();
}

absl::Status PoisonActivations(runtime::Stream& stream, const kernels::KernelSet& kernels,
                               const StepState& state) {
  const runtime::Arena& activations = state.activations();
  return kernels::NanFill(
      stream, kernels,
      {.out = activations.data(),
       .dtype = kernels.dtype,
       .count = static_cast<int64_t>(activations.bytes() / runtime::SizeOf(kernels.dtype))});
}

absl::Status RandomFillPool(runtime::Stream& stream, const kernels::KernelSet& kernels,
                            const models::KvPool& pool) {
  for (int64_t layer = 0; layer < pool.geometry().num_layers; ++layer)
    REPRISE_RETURN_IF_ERROR(kernels::RandomFill(stream, kernels,
                                                {.out = pool.Layer(layer),
                                                 .dtype = pool.geometry().dtype,
                                                 .count = LayerElements(pool),
                                                 .seed = static_cast<uint64_t>(layer)}));
  return absl::OkStatus();
}

}  // namespace reprise::engine
