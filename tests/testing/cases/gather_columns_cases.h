// SPDX-License-Identifier: Apache-2.0
// The shapes at which the gather of columns is checked.
#ifndef REPRISE_TESTS_TESTING_CASES_GATHER_COLUMNS_CASES_H_
#define REPRISE_TESTS_TESTING_CASES_GATHER_COLUMNS_CASES_H_

#include <cstdint>

namespace reprise::kernels {

struct GatherColumnsCase {
  const char* name;
  int32_t columns;
  uint32_t rows;      // live
  uint32_t max_rows;  // of the launch
};

inline constexpr GatherColumnsCase kGatherColumnsCases[] = {
    {"one_element", 1, 1, 1},   {"odd", 77, 5, 5},          {"packs", 176, 9, 16},
    {"two_pieces", 1028, 3, 3}, {"odd_pieces", 2051, 2, 4}, {"llama", 14336, 2, 2},
    {"no_rows", 64, 0, 2},
};

}  // namespace reprise::kernels

#endif  // REPRISE_TESTS_TESTING_CASES_GATHER_COLUMNS_CASES_H_
