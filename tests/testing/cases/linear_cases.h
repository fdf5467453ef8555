// SPDX-License-Identifier: Apache-2.0
// The shapes at which linear is checked and timed: one list for tests and benchmarks.
#ifndef REPRISE_TESTS_TESTING_CASES_LINEAR_CASES_H_
#define REPRISE_TESTS_TESTING_CASES_LINEAR_CASES_H_

#include <cstdint>

namespace reprise::kernels {

struct LinearCase {
  const char* name;
  int32_t in_features;
  int32_t out_features;
  uint32_t rows;      // live
  uint32_t max_rows;  // of the launch
  bool bias = false;
  float scale = 1.0f;
  bool out_is_f32 = false;
};

// Every number of rows around a tile's edge, odd sizes, every epilogue. Small: a test walks them
// for every dtype and candidate.
inline constexpr LinearCase kLinearCases[] = {
    {"one_output", 1, 1, 1, 1},
    {"one_feature_in", 1, 37, 5, 5},
    {"one_row", 64, 64, 1, 1},
    {"one_row_odd", 77, 45, 1, 1, true},
    {"two_rows", 128, 96, 2, 2},
    {"one_row_of_three_parts", 1288, 72, 1, 2, true},
    {"three_rows_odd", 131, 33, 3, 3, true},
    {"seven_rows", 192, 160, 7, 7, false, 0.25f},
    {"eight_rows", 256, 128, 8, 8, true, 1.0f, true},
    {"seventeen_rows_odd", 263, 71, 17, 17, true, 1.5f},
    {"twenty_rows", 712, 80, 20, 24, true},
    {"many_outputs", 128, 500, 20, 32},
    {"many_outputs_of_uneven_spans", 128, 600, 20, 24},
    {"many_outputs_few_rows", 64, 500, 2, 8, true},
    {"forty_rows_of_more", 136, 72, 40, 64, true},
    {"sixty_four_rows", 320, 192, 64, 64},
    {"twelve_rows_of_more_outputs", 192, 203, 12, 16, true},
    {"sixty_five_rows", 328, 200, 65, 65, true, 1.0f, true},
    {"ninety_eight_rows", 576, 112, 98, 98},
    {"seventy_rows_of_ninety", 584, 56, 70, 90, true, 1.0f, true},
    {"twenty_rows_of_three_parts", 1288, 64, 20, 32, true},
    {"forty_rows_of_two_parts", 1024, 40, 40, 60, false, 0.5f, true},
    {"seventy_rows_of_one_part", 328, 56, 70, 90, true},
    {"hundred_thirty_rows", 512, 96, 130, 130, false, 0.7f},
    {"three_hundred_rows", 200, 104, 300, 300, true},
    {"three_hundred_rows_odd", 99, 51, 300, 320, true, -2.0f, true},
    {"few_rows_of_many", 264, 120, 3, 256, true},
    {"no_rows", 64, 64, 0, 16, true},
    {"long_k", 4104, 48, 9, 16},
    {"very_long_k", 8200, 40, 9, 16, true},
    {"long_k_odd", 4099, 35, 4, 4, true},
    {"few_rows_of_eight_parts", 4096, 40, 3, 8},
    {"few_rows_of_three_parts", 1288, 136, 5, 8, true},
    {"few_rows_of_sixteen_parts", 8192, 40, 2, 8},
    {"one_row_of_eight_parts", 4096, 40, 1, 8},
    {"two_rows_of_eight_parts", 4096, 40, 2, 8},
    {"thirteen_rows_of_eight_parts", 4096, 40, 13, 16},
    {"no_rows_of_two", 4096, 200, 0, 2},
    {"no_rows_of_eight", 1096, 200, 0, 8, true},
    {"no_rows_of_eight_more_outputs", 1096, 202, 0, 8},
};

// What the host's own kernels do in parts: more rows, and inputs, than are widened at once.
inline constexpr LinearCase kLinearHostCases[] = {
    {"hundred_rows_of_two_parts", 1156, 38, 100, 100, true},
};

// Shapes of decode steps: what benchmarks measure; tests check a sample of
// their outputs.
inline constexpr LinearCase kLinearTimedCases[] = {
    {"4096x4096_rows1", 4096, 4096, 1, 1},    {"4096x4096_rows8", 4096, 4096, 8, 8},
    {"4096x4096_rows64", 4096, 4096, 64, 64}, {"4096x4096_rows512", 4096, 4096, 512, 512},
    {"14336x4096_rows1", 14336, 4096, 1, 1},
};

}  // namespace reprise::kernels

#endif  // REPRISE_TESTS_TESTING_CASES_LINEAR_CASES_H_
