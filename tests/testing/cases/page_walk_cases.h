// SPDX-License-Identifier: Apache-2.0
// The caches and lists of pages at which the page walk is checked.
#ifndef REPRISE_TESTS_TESTING_CASES_PAGE_WALK_CASES_H_
#define REPRISE_TESTS_TESTING_CASES_PAGE_WALK_CASES_H_

#include <cstdint>

#include "kernels/attention/kv_layout.h"

namespace reprise::kernels {

struct PageWalkCase {
  const char* name;
  KvLayout kv;
  uint32_t num_pages;  // listed
};

inline constexpr PageWalkCase kPageWalkCases[] = {
    {"no_page", {2, 64, 16, runtime::DType::kBf16}, 0},
    {"one_page", {2, 64, 16, runtime::DType::kBf16}, 1},
    // Not a whole group of vectors in a run, and one vector.
    {"one_token_blocks", {3, 24, 1, runtime::DType::kF16}, 40},
    {"one_vector", {1, 8, 1, runtime::DType::kBf16}, 33},
    {"odd_blocks", {2, 40, 5, runtime::DType::kF16}, 27},
    {"llama", {8, 128, 16, runtime::DType::kBf16}, 29},
    {"f32", {2, 4, 16, runtime::DType::kF32}, 300},
    // More runs than a round for a block of the smallest grid.
    {"several_rounds", {16, 8, 1, runtime::DType::kBf16}, 1000},
    {"swizzled", {2, 128, 16, runtime::DType::kBf16, true}, 31},
    {"swizzled_blocks_of_24", {1, 192, 24, runtime::DType::kF16, true}, 10},
    {"large_blocks", {1, 64, 544, runtime::DType::kBf16}, 3},
};

}  // namespace reprise::kernels

#endif  // REPRISE_TESTS_TESTING_CASES_PAGE_WALK_CASES_H_
