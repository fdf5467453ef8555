// SPDX-License-Identifier: Apache-2.0
// The shapes at which SiLU*up is checked and timed.
#ifndef REPRISE_TESTS_TESTING_CASES_SILU_MUL_CASES_H_
#define REPRISE_TESTS_TESTING_CASES_SILU_MUL_CASES_H_

#include <cstdint>

namespace reprise::kernels {

struct SiluMulCase {
  const char* name;
  int32_t intermediate;
  uint32_t tokens;      // live
  uint32_t max_tokens;  // of the launch
};

inline constexpr SiluMulCase kSiluMulCases[] = {
    {"one_element", 1, 1, 1},   {"odd", 77, 5, 5},          {"packs", 176, 9, 16},
    {"two_pieces", 2056, 3, 3}, {"odd_pieces", 6151, 2, 4}, {"llama", 14336, 2, 2},
    {"no_tokens", 64, 0, 2},
};

}  // namespace reprise::kernels

#endif  // REPRISE_TESTS_TESTING_CASES_SILU_MUL_CASES_H_
