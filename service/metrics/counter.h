// SPDX-License-Identifier: Apache-2.0
// Counter: a number that only grows. Threads: every method from any thread; Add is one relaxed
// addition.
#ifndef REPRISE_SERVICE_METRICS_COUNTER_H_
#define REPRISE_SERVICE_METRICS_COUNTER_H_

#include <atomic>
#include <cstdint>

namespace reprise::service {

class Counter {
 public:
  void Add(uint64_t count = 1) { value_.fetch_add(count, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_ = 0;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_METRICS_COUNTER_H_
