// SPDX-License-Identifier: Apache-2.0
// Between a block's layers as the pool has them (KvLayout) and as they travel (KvPart). On the
// host. Threads: free functions without state.
#ifndef REPRISE_ENGINE_KV_FORMAT_H_
#define REPRISE_ENGINE_KV_FORMAT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/attention/kv_layout.h"

namespace reprise::engine {

// layers: [num_layers, layout.BlockElements()] elements as in the pool.
// contents: [num_layers, 2, num_kv_heads, num_tokens, head_dim]. num_tokens <= layout.block_size.
void PackTokens(const kernels::KvLayout& layout, uint32_t num_layers, uint32_t num_tokens,
                const std::byte* layers, std::byte* contents);
// The other way; positions from num_tokens on become 0.
void UnpackTokens(const kernels::KvLayout& layout, uint32_t num_layers, uint32_t num_tokens,
                  const std::byte* contents, std::byte* layers);

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_KV_FORMAT_H_
