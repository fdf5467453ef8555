// SPDX-License-Identifier: Apache-2.0
// The shapes at which mixtures of experts are checked.
#ifndef REPRISE_TESTS_TESTING_CASES_EXPERTS_CASES_H_
#define REPRISE_TESTS_TESTING_CASES_EXPERTS_CASES_H_

#include <cstdint>

namespace reprise::kernels {

struct ExpertsCase {
  const char* name;
  int32_t num_experts;
  int32_t top_k;
  int32_t in_features;
  int32_t out_features;
  uint32_t tokens;      // live
  uint32_t max_tokens;  // of the launch
};

// One token and many, experts that nobody is routed to and experts of more than a tile, sizes that
// no tile takes. Small: a test walks them for every dtype and way.
inline constexpr ExpertsCase kExpertsCases[] = {
    {"one_token", 8, 2, 64, 48, 1, 1},
    {"one_expert", 1, 1, 72, 32, 3, 4},
    {"all_of_them", 5, 5, 136, 80, 2, 2},
    {"odd", 7, 3, 77, 45, 9, 16},
    {"many_experts", 128, 8, 64, 32, 11, 12},
    {"more_than_a_tile", 3, 2, 80, 144, 70, 70},
    {"more_than_few_rows", 2, 1, 1032, 16, 40, 48},
    {"long_k", 4, 2, 1032, 32, 5, 8},
    {"no_tokens", 4, 2, 64, 32, 0, 16},
};

}  // namespace reprise::kernels

#endif  // REPRISE_TESTS_TESTING_CASES_EXPERTS_CASES_H_
