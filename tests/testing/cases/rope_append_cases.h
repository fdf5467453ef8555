// SPDX-License-Identifier: Apache-2.0
// The shapes at which rope + KV append is checked and timed.
#ifndef REPRISE_TESTS_TESTING_CASES_ROPE_APPEND_CASES_H_
#define REPRISE_TESTS_TESTING_CASES_ROPE_APPEND_CASES_H_

#include <cstdint>

namespace reprise::kernels {

struct RopeAppendCase {
  const char* name;
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t head_dim;
  int32_t block_size;
  uint32_t tokens;      // live
  uint32_t max_tokens;  // of the launch
  bool norm = false;    // of every head
  bool whole = false;   // of all heads of q together, and of all of k
  float norm_offset = 0.0f;
  int32_t rope_tables = 1;
  int32_t rope_table = 0;  // which one is used
};

inline constexpr RopeAppendCase kRopeAppendCases[] = {
    {"smallest", 1, 1, 2, 1, 1, 1},
    {"mha", 4, 4, 64, 16, 7, 7},
    {"gqa", 8, 2, 128, 16, 33, 64},
    {"mqa", 6, 1, 80, 24, 5, 5},
    {"half_not_a_pack", 4, 2, 24, 3, 19, 20},
    {"tiny_heads", 3, 3, 6, 5, 11, 11},
    {"no_tokens", 2, 1, 32, 16, 0, 3},
    {"wide_heads", 2, 2, 256, 1, 4, 4},
    {"many_tokens", 2, 1, 32, 16, 270, 300},
    {"normed_gqa", 40, 8, 128, 16, 9, 16, true},
    {"normed_mha", 2, 2, 64, 5, 20, 20, true},
    {"normed_half_not_a_pack", 4, 2, 24, 3, 19, 20, true},
    {"normed_tiny_heads", 3, 1, 6, 5, 11, 11, true},
    {"normed_smallest", 1, 1, 2, 1, 1, 1, true},
    {"normed_many_tokens", 2, 1, 32, 16, 257, 257, true},
    {"normed_wide_heads", 3, 1, 256, 4, 3, 3, true},
    {"normed_offset", 4, 1, 256, 16, 5, 5, true, false, 1.0f},
    {"normed_offset_tiny_heads", 3, 1, 6, 5, 11, 11, true, false, 1.0f},
    {"normed_whole", 32, 8, 128, 16, 9, 9, true, true},
    {"normed_whole_one_kv_head", 5, 1, 64, 5, 20, 20, true, true},
    {"normed_whole_half_not_a_pack", 4, 2, 24, 3, 19, 20, true, true, 1.0f},
    {"normed_whole_tiny_heads", 3, 3, 6, 5, 11, 11, true, true},
    {"first_of_two_tables", 4, 2, 64, 16, 7, 7, false, false, 0.0f, 2, 0},
    {"second_of_two_tables", 4, 2, 64, 16, 7, 7, true, false, 1.0f, 2, 1},
    {"last_of_three_tables_tiny_heads", 3, 1, 6, 5, 11, 11, false, false, 0.0f, 3, 2},
};

}  // namespace reprise::kernels

#endif  // REPRISE_TESTS_TESTING_CASES_ROPE_APPEND_CASES_H_
