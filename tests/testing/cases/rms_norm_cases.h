// SPDX-License-Identifier: Apache-2.0
// The shapes at which RMSNorm is checked and timed.
#ifndef REPRISE_TESTS_TESTING_CASES_RMS_NORM_CASES_H_
#define REPRISE_TESTS_TESTING_CASES_RMS_NORM_CASES_H_

#include <cstdint>

namespace reprise::kernels {

// What becomes of the sum of residual and branch.
enum class KeepSum : uint8_t { kNo, kSeparate, kInPlace };

struct RmsNormCase {
  const char* name;
  int32_t hidden;
  uint32_t rows;      // live
  uint32_t max_rows;  // of the launch
  bool branch = false;
  KeepSum keep = KeepSum::kNo;
  bool gather = false;
  float branch_scale = 1.0f;
  float weight_offset = 0.0f;
};

inline constexpr RmsNormCase kRmsNormCases[] = {
    {"one_element", 1, 1, 1},
    {"one_row", 64, 1, 1},
    {"odd", 77, 5, 5},
    {"few_of_many", 256, 3, 64},
    {"no_rows", 64, 0, 4, true, KeepSum::kInPlace},
    {"wide", 8192, 2, 2},
    {"wider_than_a_block_keeps", 9216, 2, 2, true, KeepSum::kInPlace},
    {"odd_and_wider", 2051, 3, 3, true, KeepSum::kInPlace, true, 0.22f},
    {"branch", 136, 7, 7, true},
    {"branch_odd_scaled", 99, 6, 9, true, KeepSum::kSeparate, false, 0.22f},
    {"branch_in_place", 2048, 17, 17, true, KeepSum::kInPlace},
    {"kept_without_branch", 72, 4, 4, false, KeepSum::kSeparate},
    {"gather", 64, 9, 16, false, KeepSum::kNo, true},
    {"gather_branch_in_place", 520, 5, 8, true, KeepSum::kInPlace, true, -1.5f},
    {"offset", 264, 3, 4, false, KeepSum::kNo, false, 1.0f, 1.0f},
    {"offset_branch_in_place", 99, 4, 4, true, KeepSum::kInPlace, false, 1.0f, 1.0f},
    {"offset_wider_than_a_block_keeps", 9216, 2, 2, true, KeepSum::kInPlace, false, 1.0f, 1.0f},
};

// Of the norm with the add behind it, which has a branch and keeps the sum in every case.
inline constexpr RmsNormCase kRmsNormAddCases[] = {
    {"one_element", 1, 1, 1, true, KeepSum::kSeparate},
    {"odd", 77, 5, 6, true, KeepSum::kInPlace},
    {"few_of_many", 256, 3, 64, true, KeepSum::kInPlace},
    {"no_rows", 64, 0, 4, true, KeepSum::kInPlace},
    {"scaled", 136, 7, 7, true, KeepSum::kSeparate, false, 0.22f},
    {"offset", 2304, 9, 9, true, KeepSum::kInPlace, false, 1.0f, 1.0f},
    {"wider_than_a_block_keeps", 9216, 2, 2, true, KeepSum::kInPlace, false, 1.0f, 1.0f},
    {"odd_and_wider", 2051, 3, 3, true, KeepSum::kSeparate, false, 1.0f, 1.0f},
};

}  // namespace reprise::kernels

#endif  // REPRISE_TESTS_TESTING_CASES_RMS_NORM_CASES_H_
