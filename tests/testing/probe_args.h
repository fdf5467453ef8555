// SPDX-License-Identifier: Apache-2.0
// Arguments of the probe kernels (probe_kernels.h), as host and device code see them.
#ifndef REPRISE_TESTS_TESTING_PROBE_ARGS_H_
#define REPRISE_TESTS_TESTING_PROBE_ARGS_H_

#include <cstdint>

namespace reprise::testing {

// *x = *x * mul + add. One block. Applied in another order it gives another result.
struct ProbeAffineArgs {
  uint64_t* x;
  uint64_t mul;
  uint64_t add;
};

// Every block fills its shared memory with its own number, reads it back, and adds 1 to
// counts[block_y * grid_x + block_x] if all of it was still there. shared_bytes of the launch: 4 *
// shared_words.
struct ProbeCountArgs {
  uint32_t* counts;
  uint64_t shared_words;  // of 64 bits: no bytes that nobody writes, so tests may count pointers
};

// Runs until *flag is not zero, ten seconds at most. One block. `flag`: mapped memory.
struct ProbeWaitArgs {
  const uint32_t* flag;
};

// *sum = sum of all words. One block. The struct is larger than what a stream keeps in place.
struct ProbeLargeArgs {
  uint32_t* sum;
  uint32_t words[250];
};

// A fault: throws on the host, writes to an illegal address on a GPU.
struct ProbeFaultArgs {
  uint64_t illegal_address;
};

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_PROBE_ARGS_H_
