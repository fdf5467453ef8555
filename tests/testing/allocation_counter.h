// SPDX-License-Identifier: Apache-2.0
// What a program takes from operator new: counts it, or lets it fail. The program that links
// reprise_allocation_counter has its operators replaced.
#ifndef REPRISE_TESTS_TESTING_ALLOCATION_COUNTER_H_
#define REPRISE_TESTS_TESTING_ALLOCATION_COUNTER_H_

#include <cstddef>
#include <cstdint>

namespace reprise::testing {

// Calls of operator new, in any form, by this thread so far.
uint64_t NumAllocationsOfThisThread();
// The same by all threads.
uint64_t NumAllocations();
// What operator new has given to any thread and operator delete not taken back, as malloc counts
// it.
uint64_t NumHeldBytes();

// While one exists, operator new fails for so many bytes and more, on every thread but that which
// made it. One at a time.
class LargeAllocationsFail {
 public:
  explicit LargeAllocationsFail(size_t bytes);
  ~LargeAllocationsFail();
  LargeAllocationsFail(const LargeAllocationsFail&) = delete;
  LargeAllocationsFail& operator=(const LargeAllocationsFail&) = delete;
};

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_ALLOCATION_COUNTER_H_
