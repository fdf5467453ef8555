// SPDX-License-Identifier: Apache-2.0
#include "engine/kv_format.h"

#include <cstring>

namespace reprise::engine {
namespace {

// Calls run(offset in the pool's layers, offset in the contents, bytes) for every run of bytes that
// is contiguous in both. A swizzled row is whole in chunks of 16 bytes alone.
template <typename Run>
void ForRuns(const kernels::KvLayout& layout, uint32_t num_layers, uint32_t num_tokens,
             const Run& run) {
  const auto element = static_cast<int64_t>(layout.ElementBytes());
  const int step = layout.swizzled ? layout.ChunkElements() : layout.head_dim;
  const auto bytes = static_cast<size_t>(step * element);
  int64_t contents = 0;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    for (const int part : {kernels::kKeys, kernels::kValues}) {
      for (int head = 0; head < layout.num_kv_heads; ++head) {
        for (int64_t token = 0; token < num_tokens; ++token) {
          for (int dim = 0; dim < layout.head_dim; dim += step, contents += step) {
            const int64_t pool =
                layer * layout.BlockElements() + layout.Offset(0, part, head, token, dim);
            run(pool * element, contents * element, bytes);
          }
        }
      }
    }
  }
}

}  // namespace

void PackTokens(const kernels::KvLayout& layout, uint32_t num_layers, uint32_t num_tokens,
                const std::byte* layers, std::byte* contents) {
  ForRuns(layout, num_layers, num_tokens, [&](int64_t from, int64_t to, size_t bytes) {
    std::memcpy(contents + to, layers + from, bytes);
  });
}

void UnpackTokens(const kernels::KvLayout& layout, uint32_t num_layers, uint32_t num_tokens,
                  const std::byte* contents, std::byte* layers) {
  const auto element = static_cast<size_t>(layout.ElementBytes());
  std::memset(layers, 0, num_layers * static_cast<size_t>(layout.BlockElements()) * element);
  ForRuns(layout, num_layers, num_tokens, [&](int64_t to, int64_t from, size_t bytes) {
    std::memcpy(layers + to, contents + from, bytes);
  });
}

}  // namespace reprise::engine
