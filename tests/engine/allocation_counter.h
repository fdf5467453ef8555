// SPDX-License-Identifier: Apache-2.0
// Counts what the calling thread takes from operator new. The program that links
// allocation_counter.cc has its operators replaced; it is a test program's own source, never part
// of a library.
#ifndef REPRISE_TESTS_ENGINE_ALLOCATION_COUNTER_H_
#define REPRISE_TESTS_ENGINE_ALLOCATION_COUNTER_H_

#include <cstdint>

namespace reprise::testing {

// Calls of operator new, in any form, by this thread so far.
uint64_t NumAllocationsOfThisThread();

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_ENGINE_ALLOCATION_COUNTER_H_
