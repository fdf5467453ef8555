// SPDX-License-Identifier: Apache-2.0
// The engine limits at which fetch, plan and publish are checked and timed.
#ifndef REPRISE_KERNELS_STEP_CASES_H_
#define REPRISE_KERNELS_STEP_CASES_H_

#include <cstdint>

#include "kernels/step/step_args.h"

namespace reprise::kernels {

struct StepCase {
  const char* name;
  uint32_t max_rows;
  uint32_t max_step_tokens;
  uint32_t max_blocks_per_row;
  uint32_t block_size;
  uint32_t prefill_q_tokens;
  uint32_t depth;  // slots of either ring
  SplitRule split;
  uint32_t num_steps;
  uint64_t first_count = 0;  // steps published before the first
  uint32_t window = 0;       // see PlanArgs
};

inline constexpr StepCase kStepCases[] = {
    {"one_row",
     1,
     5,
     40,
     1,
     2,
     1,
     {.min_split_tokens = 4, .max_splits = 3, .split_multiple = 2},
     30},
    {"few_rows_odd",
     5,
     37,
     9,
     3,
     4,
     3,
     {.min_split_tokens = 5, .max_splits = 7, .split_multiple = 3},
     40},
    {"past_32_bits",
     4,
     24,
     8,
     16,
     16,
     2,
     {.min_split_tokens = 8, .max_splits = 4, .split_multiple = 4},
     20,
     0xfffffff9u},
    {"many_rows",
     64,
     500,
     30,
     24,
     64,
     4,
     {.min_split_tokens = 64, .max_splits = 8, .split_multiple = 64},
     25},
    {"window_odd",
     9,
     60,
     20,
     3,
     4,
     2,
     {.min_split_tokens = 4, .max_splits = 3, .split_multiple = 2},
     40,
     0,
     11},
    {"window_of_one", 3, 20, 12, 5, 3, 1, SplitRule{}, 20, 0, 1},
    {"window_of_many_blocks",
     20,
     500,
     40,
     16,
     16,
     2,
     {.min_split_tokens = 64, .max_splits = 4, .split_multiple = 64},
     20,
     0,
     300},
    {"more_rows_than_threads", 700, 2500, 20, 16, 16, 2, SplitRule{}, 6},
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_STEP_CASES_H_
