// SPDX-License-Identifier: Apache-2.0
// The sizes at which the memory probes are checked.
#ifndef REPRISE_TESTS_TESTING_CASES_MEMORY_PROBE_CASES_H_
#define REPRISE_TESTS_TESTING_CASES_MEMORY_PROBE_CASES_H_

#include <cstdint>

namespace reprise::kernels {

struct MemoryProbeCase {
  const char* name;
  int64_t bytes;
};

inline constexpr MemoryProbeCase kMemoryProbeCases[] = {
    {"one_group", 64},
    {"short", 64 * 37},
    {"one_piece", 1 << 17},
    {"five_pieces", 5 << 17},
    {"a_short_last", (3 << 17) + 64 * 301},
};

}  // namespace reprise::kernels

#endif  // REPRISE_TESTS_TESTING_CASES_MEMORY_PROBE_CASES_H_
