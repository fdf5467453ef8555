// SPDX-License-Identifier: Apache-2.0
// What a call gets when memory runs out: a refusal, as for any other reason. gRPC swallows what a
// reactor throws, and the call would never end. Threads: free functions without state.
#ifndef REPRISE_SERVICE_OUT_OF_MEMORY_H_
#define REPRISE_SERVICE_OUT_OF_MEMORY_H_

#include <new>

#include "absl/status/status.h"

namespace reprise::service {

// ResourceExhausted. Made once, so that it can be had when nothing more can be allocated.
const absl::Status& OutOfMemory();

// What `f` returns, an absl::Status; OutOfMemory() where it throws std::bad_alloc.
template <typename F>
absl::Status CatchOutOfMemory(const F& f) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }
}

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_OUT_OF_MEMORY_H_
