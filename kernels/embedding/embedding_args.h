// SPDX-License-Identifier: Apache-2.0
// Arguments of the embedding op. See embedding.h.
#ifndef REPRISE_KERNELS_EMBEDDING_EMBEDDING_ARGS_H_
#define REPRISE_KERNELS_EMBEDDING_EMBEDDING_ARGS_H_

#include <cstdint>

namespace reprise::kernels {

struct EmbeddingArgs {
  const void* table = nullptr;               // [vocab, hidden] T
  void* out = nullptr;                       // [tokens, hidden] T
  const uint32_t* token_id = nullptr;        // [tokens], each < vocab
  const uint32_t* token_position = nullptr;  // [tokens]
  const uint32_t* num_tokens = nullptr;      // live count
  const float* inverse_frequency = nullptr;  // [head_dim / 2]
  float* rope = nullptr;                     // [tokens, head_dim / 2, 2] cos, sin
  int32_t hidden = 0;
  int32_t half_dim = 0;  // head_dim / 2
  int32_t packed = 0;    // whether the table lies as PackedLayout says, not row-major; T: 16 bits
  float multiplier = 1.0f;
  float rope_multiplier = 1.0f;  // of cos and sin where the frequency is not 0
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_EMBEDDING_EMBEDDING_ARGS_H_
