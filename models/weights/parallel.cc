// SPDX-License-Identifier: Apache-2.0
#include "models/weights/parallel.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace reprise::models {

absl::Status ForEachInParallel(size_t count, const std::function<absl::Status(size_t)>& work) {
  std::atomic<size_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  absl::Status first;  // of those that failed
  size_t first_index = count;
  const auto run = [&] {
    while (!stop) {
      const size_t i = next.fetch_add(1);
      if (i >= count) return;
      const absl::Status status = work(i);
      if (status.ok()) continue;
      // What is before it has begun, and tells of itself.
      stop = true;
      std::lock_guard lock(mutex);
      if (i > first_index) continue;
      first = status;
      first_index = i;
    }
  };
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const size_t wanted = std::min({count, cores, size_t{kMaxLoadThreads}});
  std::vector<std::thread> threads;
  try {
    while (threads.size() + 1 < wanted) threads.emplace_back(run);
  } catch (const std::system_error&) {
    // Those that did start, and this one, do the work of all.
  }
  run();
  for (std::thread& thread : threads) thread.join();
  return first;
}

}  // namespace reprise::models
