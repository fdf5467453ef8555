// SPDX-License-Identifier: Apache-2.0
// The shapes at which sampling is checked and timed.
#ifndef REPRISE_TESTS_TESTING_CASES_SAMPLE_CASES_H_
#define REPRISE_TESTS_TESTING_CASES_SAMPLE_CASES_H_

#include <cstdint>

namespace reprise::kernels {

struct SampleCase {
  const char* name;
  int32_t vocab;
  uint32_t sampled;      // rows that sample
  uint32_t max_sampled;  // of the launch
};

inline constexpr SampleCase kSampleCases[] = {
    {"one_id", 1, 3, 3},
    {"five_ids", 5, 40, 40},
    {"odd", 199, 33, 64},
    {"one_chunk", 4096, 9, 9},
    {"one_chunk_and_one_id", 4097, 9, 16},
    {"llama", 128256, 6, 8},
    {"nobody", 199, 0, 4},
};

}  // namespace reprise::kernels

#endif  // REPRISE_TESTS_TESTING_CASES_SAMPLE_CASES_H_
