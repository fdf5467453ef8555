// SPDX-License-Identifier: Apache-2.0
// RandomAttention: cases of paged attention over everything that its kernels take, drawn from a
// number: the same number and limits, the same case. Says nothing about what must come out: that is
// oracle.h.
#ifndef REPRISE_TESTS_TESTING_RANDOM_ATTENTION_H_
#define REPRISE_TESTS_TESTING_RANDOM_ATTENTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/testing/cases/attention_cases.h"

namespace reprise::testing {

// How large cases get.
struct RandomAttentionLimits {
  uint32_t max_rows = 3;
  uint32_t max_length = 200;        // tokens of a row
  uint32_t max_query_tokens = 12;   // of a row, in the step
  uint64_t max_products = 400'000;  // of two elements: query tokens x heads x tokens x head_dim
};

struct RandomAttention {
  RandomAttention(uint64_t number, const RandomAttentionLimits& limits);
  RandomAttention(const RandomAttention&) = delete;
  RandomAttention& operator=(const RandomAttention&) = delete;

  // All that was drawn, on one line.
  std::string Text() const;

  std::vector<kernels::AttentionRow> rows;
  kernels::AttentionCase shape;  // over `rows`
  int multiprocessors = 1;       // of the device that the work is planned for
};

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_RANDOM_ATTENTION_H_
