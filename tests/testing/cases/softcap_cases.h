// SPDX-License-Identifier: Apache-2.0
// The shapes at which the soft cap is checked.
#ifndef REPRISE_TESTS_TESTING_CASES_SOFTCAP_CASES_H_
#define REPRISE_TESTS_TESTING_CASES_SOFTCAP_CASES_H_

#include <cstdint>

namespace reprise::kernels {

struct SoftcapCase {
  const char* name;
  int32_t columns;
  uint32_t rows;      // live
  uint32_t max_rows;  // of the launch
  float cap;
};

inline constexpr SoftcapCase kSoftcapCases[] = {
    {"one_element", 1, 1, 1, 30.0f},   {"odd", 77, 5, 7, 30.0f},
    {"packs", 176, 9, 16, 0.5f},       {"two_pieces", 5000, 3, 3, 30.0f},
    {"odd_pieces", 8195, 2, 4, 50.0f}, {"no_rows", 64, 0, 2, 30.0f},
};

}  // namespace reprise::kernels

#endif  // REPRISE_TESTS_TESTING_CASES_SOFTCAP_CASES_H_
