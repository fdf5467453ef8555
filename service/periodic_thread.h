// SPDX-License-Identifier: Apache-2.0
// PeriodicThread: a thread that does one thing again and again, for what must not keep those
// waiting who cause it, such as writing to a disk. Threads: construction and destruction by the
// owner.
#ifndef REPRISE_SERVICE_PERIODIC_THREAD_H_
#define REPRISE_SERVICE_PERIODIC_THREAD_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/base/thread_annotations.h"

namespace reprise::service {

class PeriodicThread {
 public:
  // Calls `turn` after every `interval`, with SIGPIPE and SIGXFSZ blocked: a reader that is gone,
  // or a file that may not grow, is an error of the write and not of the process. Throws
  // std::system_error where there is no thread to be had. REQUIRES: `turn` does not throw.
  PeriodicThread(std::chrono::milliseconds interval, std::function<void()> turn);
  // One more turn, and the end.
  ~PeriodicThread();
  PeriodicThread(const PeriodicThread&) = delete;
  PeriodicThread& operator=(const PeriodicThread&) = delete;

 private:
  void Run();

  const std::chrono::milliseconds interval_;
  const std::function<void()> turn_;
  std::mutex mutex_;
  std::condition_variable stopping_changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_PERIODIC_THREAD_H_
