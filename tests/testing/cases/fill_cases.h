// SPDX-License-Identifier: Apache-2.0
// The sizes at which the fills are checked and timed.
#ifndef REPRISE_TESTS_TESTING_CASES_FILL_CASES_H_
#define REPRISE_TESTS_TESTING_CASES_FILL_CASES_H_

#include <cstdint>

namespace reprise::kernels {

struct FillCase {
  const char* name;
  int64_t count;
  float stddev = 1.0f;
};

inline constexpr FillCase kFillCases[] = {
    {"one", 1},
    {"piece_less_one", 4095, 0.02f},
    {"piece", 4096},
    {"piece_and_one", 4097, 3.0f},
    {"many", 100003, 0.5f},
};

}  // namespace reprise::kernels

#endif  // REPRISE_TESTS_TESTING_CASES_FILL_CASES_H_
