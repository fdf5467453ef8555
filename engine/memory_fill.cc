// SPDX-License-Identifier: Apache-2.0
#include "engine/memory_fill.h"

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
        stream, kernels, {.out = pool.Layer(layer), .count = LayerElements(pool)}));
  return absl::OkStatus();
}

absl::Status PoisonBlocks(runtime::Stream& stream, const kernels::KernelSet& kernels,
                          const models::KvPool& pool, std::span<const uint32_t> blocks) {
  const models::KvGeometry& geometry = pool.geometry();
  for (const uint32_t block : blocks) {
    for (int64_t layer = 0; layer < geometry.num_layers; ++layer)
      REPRISE_RETURN_IF_ERROR(kernels::NanFill(
          stream, kernels, {.out = pool.Block(layer, block), .count = geometry.BlockElements()}));
  }
  return absl::OkStatus();
}

absl::Status PoisonActivations(runtime::Stream& stream, const kernels::KernelSet& kernels,
                               const StepState& state) {
  const runtime::Arena& activations = state.activations();
  return kernels::NanFill(
      stream, kernels,
      {.out = activations.data(),
       .count = static_cast<int64_t>(activations.bytes() / runtime::SizeOf(kernels.dtype))});
}

absl::Status RandomFillPool(runtime::Stream& stream, const kernels::KernelSet& kernels,
                            const models::KvPool& pool) {
  for (int64_t layer = 0; layer < pool.geometry().num_layers; ++layer)
    REPRISE_RETURN_IF_ERROR(kernels::RandomFill(stream, kernels,
                                                {.out = pool.Layer(layer),
                                                 .count = LayerElements(pool),
                                                 .seed = static_cast<uint64_t>(layer)}));
  return absl::OkStatus();
}

}  // namespace reprise::engine
