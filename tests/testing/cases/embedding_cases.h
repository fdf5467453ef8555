// SPDX-License-Identifier: Apache-2.0
// The shapes at which embedding is checked and timed.
#ifndef REPRISE_TESTS_TESTING_CASES_EMBEDDING_CASES_H_
#define REPRISE_TESTS_TESTING_CASES_EMBEDDING_CASES_H_

#include <cstdint>

namespace reprise::kernels {

struct EmbeddingCase {
  const char* name;
  uint32_t vocab;
  int32_t hidden;
  int32_t half_dim;
  uint32_t tokens;      // live
  uint32_t max_tokens;  // of the launch
  float multiplier = 1.0f;
  float rope_multiplier = 1.0f;
  int32_t still = 0;  // of half_dim, the last ones, whose frequencies are 0
};

inline constexpr EmbeddingCase kEmbeddingCases[] = {
    {"smallest", 1, 1, 1, 1, 1},
    {"one_token", 97, 64, 16, 1, 1},
    {"odd_hidden", 101, 77, 5, 7, 7, 12.0f},
    {"few_of_many", 300, 136, 64, 9, 64, 0.75f},
    {"no_tokens", 10, 16, 4, 0, 5},
    {"wide", 50, 4104, 40, 33, 33, 1.5f},
    {"scaled_rope", 30, 16, 64, 21, 32, 1.0f, 1.1386294f},
    {"scaled_rope_of_a_part", 30, 16, 64, 21, 32, 1.0f, 1.1902381f, 16},
};

}  // namespace reprise::kernels

#endif  // REPRISE_TESTS_TESTING_CASES_EMBEDDING_CASES_H_
