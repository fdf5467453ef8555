// SPDX-License-Identifier: Apache-2.0
// The shapes at which the ops of Mamba-2 layers are checked.
#ifndef REPRISE_TESTS_TESTING_CASES_MAMBA_CASES_H_
#define REPRISE_TESTS_TESTING_CASES_MAMBA_CASES_H_

#include <cstdint>
#include <vector>

namespace reprise::kernels {

// A row that runs: its tokens of this step, and whether it has state of earlier ones.
struct MambaCaseRow {
  uint32_t tokens;
  bool has_state;
};

struct MambaCase {
  const char* name;
  int32_t num_heads, head_dim, num_groups, state_size, width;
  bool conv_bias;
  float min_dt, max_dt;
  std::vector<MambaCaseRow> rows;  // live
  uint32_t max_rows;               // of the launch, and of the slots
};

inline const std::vector<MambaCase> kMambaCases = {
    {"one_of_all", 1, 1, 1, 1, 2, true, 0.0f, 1e30f, {{1, false}}, 1},
    {"decode", 6, 8, 2, 16, 4, true, 0.0f, 1e30f, {{1, true}, {1, false}, {1, true}}, 5},
    {"odd", 3, 5, 1, 7, 4, false, 0.0f, 1e30f, {{2, true}, {9, false}}, 3},
    {"limits", 4, 8, 4, 12, 3, true, 0.4f, 0.9f, {{5, true}, {1, false}}, 2},
    {"prompts", 2, 16, 1, 20, 4, true, 0.0f, 1e30f, {{37, true}, {0, true}, {8, false}}, 6},
    {"granite", 2, 64, 1, 128, 4, true, 0.0f, 1e30f, {{3, true}, {1, true}}, 2},
    {"long_prompt", 2, 40, 1, 16, 4, true, 0.0f, 1e30f, {{1, true}, {150, true}, {19, false}}, 3},
    {"many_rows", 2, 8, 1, 16, 4, true, 0.0f, 1e30f, std::vector<MambaCaseRow>(19, {3, true}), 20},
    {"wide_state", 1, 24, 1, 256, 4, false, 0.0f, 1e30f, {{11, true}}, 1},
    {"odd_state", 3, 3, 1, 61, 2, false, 0.0f, 1e30f, {{10, false}}, 1},
    {"wide_window", 2, 4, 1, 8, 30, true, 0.0f, 1e30f, {{40, true}, {20, true}}, 2},
    {"wide_heads", 1, 128, 1, 64, 4, true, 0.0f, 1e30f, {{2, false}}, 1},
    {"two_pieces", 5, 64, 1, 32, 4, true, 0.0f, 1e30f, {{2, true}}, 1},
    {"no_rows", 2, 4, 1, 4, 4, true, 0.0f, 1e30f, {}, 2},
};

}  // namespace reprise::kernels

#endif  // REPRISE_TESTS_TESTING_CASES_MAMBA_CASES_H_
