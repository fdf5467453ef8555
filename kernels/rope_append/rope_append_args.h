// SPDX-License-Identifier: Apache-2.0
// Arguments of rope + KV append. See rope_append.h.
#ifndef REPRISE_KERNELS_ROPE_APPEND_ROPE_APPEND_ARGS_H_
#define REPRISE_KERNELS_ROPE_APPEND_ROPE_APPEND_ARGS_H_

#include <cstdint>

#include "kernels/attention/kv_layout.h"

namespace reprise::kernels {

struct RopeAppendArgs {
  // Attention behind it reads KV of earlier steps, and what the plan wrote (thread.h).
  static constexpr bool kLetsNextBeginFirst = true;
  const void* qkv = nullptr;  // [tokens, (num_heads + 2 * num_kv_heads) * head_dim] T
  void* q_out = nullptr;      // [tokens, num_heads, head_dim] T
  void* kv_cache = nullptr;   // one layer, as `kv` says
  // [tokens, rope_tables, head_dim / 2, 2] cos, sin; points at the first token's table.
  const float* rope = nullptr;
  const uint32_t* token_block = nullptr;   // [tokens]
  const uint32_t* token_offset = nullptr;  // [tokens]
  const uint32_t* num_tokens = nullptr;    // live count
  int32_t num_heads = 0;                   // of queries
  KvLayout kv = {};                        // its head_dim is even, and the queries' too
  // RMSNorm of every head before rope, [head_dim] T each; both or neither.
  const void* q_norm = nullptr;
  const void* k_norm = nullptr;
  float norm_eps = 0.0f;
  float norm_offset = 0.0f;  // what is added to every weight of the norms, in f32
  // Whether there is one norm for all heads of q together, and one for all of k: then weights are
  // [num_heads, head_dim] and [num_kv_heads, head_dim].
  int32_t whole_norm = 0;
  int32_t rope_tables = 1;  // tables of a token: layers that turn otherwise have another one
  KvScales scales = {};     // of KV of 8 bits; none otherwise
};

// Partial sums that squares are added in, where heads are normed: of every head, and, where q and k
// are normed whole, of each of the two.
constexpr int32_t kHeadNormLanes = 8;

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_ROPE_APPEND_ROPE_APPEND_ARGS_H_
