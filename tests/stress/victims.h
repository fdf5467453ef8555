// SPDX-License-Identifier: Apache-2.0
// Sessions that behave: each decodes the same prompt over and over, compares every token with the
// model's, and measures how long each step takes.
#ifndef REPRISE_TESTS_STRESS_VICTIMS_H_
#define REPRISE_TESTS_STRESS_VICTIMS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "tests/service/served_model.h"

namespace reprise::stress {

// Of steps, in milliseconds.
struct Latency {
  size_t steps = 0;
  double p50 = 0;
  double p99 = 0;
  double max = 0;
};

class Victims {
 public:
  // Opens `count` sessions; they rest until Start.
  Victims(service::ServedModel& served, int count);
  ~Victims() { Stop(); }

  void Start();
  void Stop();
  // Of the steps since the last call.
  Latency TakeLatency();
  // Of the first thing that was not as it must be; "" while all is well.
  std::string Failure();

 private:
  void Run(service::StreamClient& client);
  void Fail(const std::string& what);

  const std::vector<uint32_t> expected_;
  std::vector<std::unique_ptr<service::StreamClient>> clients_;
  std::vector<std::thread> threads_;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::vector<double> milliseconds_ ABSL_GUARDED_BY(mutex_);
  std::string failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace reprise::stress

#endif  // REPRISE_TESTS_STRESS_VICTIMS_H_
