// SPDX-License-Identifier: Apache-2.0
// Work on the processor while weights are loaded.
#ifndef REPRISE_MODELS_WEIGHTS_PARALLEL_H_
#define REPRISE_MODELS_WEIGHTS_PARALLEL_H_

#include <cstddef>
#include <functional>

#include "absl/status/status.h"

namespace reprise::models {

// Threads that load weights, of as many cores.
inline constexpr int kMaxLoadThreads = 16;

// work(i) for each i below `count`, from several threads, in any order. Returns when no thread runs
// any more. Errors: of those that fail, the one of the least i; nothing is begun behind a failure.
absl::Status ForEachInParallel(size_t count, const std::function<absl::Status(size_t)>& work);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_WEIGHTS_PARALLEL_H_
