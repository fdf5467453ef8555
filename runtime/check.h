// SPDX-License-Identifier: Apache-2.0
// REPRISE_CHECK: aborts with file, line and condition when an invariant of our own code is broken.
// Never for input: input errors are absl::Status.
#ifndef REPRISE_RUNTIME_CHECK_H_
#define REPRISE_RUNTIME_CHECK_H_

#include <cstdio>
#include <cstdlib>

namespace reprise {

[[noreturn]] inline void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: invariant broken: %s\n", file, line, condition);
  std::abort();
}

}  // namespace reprise

#define REPRISE_CHECK(condition)                                              \
  do {                                                                        \
    if (!(condition)) ::reprise::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

#endif  // REPRISE_RUNTIME_CHECK_H_
