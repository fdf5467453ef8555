// SPDX-License-Identifier: Apache-2.0
// The shapes at which rounding rows is checked.
#ifndef REPRISE_TESTS_TESTING_CASES_ROUND_ROWS_CASES_H_
#define REPRISE_TESTS_TESTING_CASES_ROUND_ROWS_CASES_H_

#include <cstdint>

namespace reprise::kernels {

struct RoundRowsCase {
  const char* name;
  int32_t columns;
  uint32_t rows;      // live
  uint32_t max_rows;  // of the launch
};

// The last but one is longer than a block of 16-bit elements keeps.
inline constexpr RoundRowsCase kRoundRowsCases[] = {
    {"one_element", 1, 1, 1},     {"odd", 77, 5, 5},        {"packs", 176, 9, 16},
    {"llama_hidden", 4096, 3, 3}, {"odd_long", 2051, 2, 4}, {"llama_mlp", 14336, 2, 2},
    {"longest", 20008, 1, 2},     {"no_rows", 64, 0, 2},
};

}  // namespace reprise::kernels

#endif  // REPRISE_TESTS_TESTING_CASES_ROUND_ROWS_CASES_H_
