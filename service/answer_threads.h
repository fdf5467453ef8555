// SPDX-License-Identifier: Apache-2.0
// AnswerThreads: a few threads that answer the requests of one replay side by side. An answer ends
// in system calls of the thread that gives it; of sixteen clients, one behind the other, the last
// one would know its token a millisecond after the first, and its next step would come as late.
#ifndef REPRISE_SERVICE_ANSWER_THREADS_H_
#define REPRISE_SERVICE_ANSWER_THREADS_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"

namespace reprise::service {

class AnswerThreads {
 public:
  using Answer = absl::FunctionRef<void(size_t)>;

  // Threads beside the one that calls Run; those that cannot be started are done without.
  explicit AnswerThreads(size_t num_threads);
  ~AnswerThreads();
  AnswerThreads(const AnswerThreads&) = delete;
  AnswerThreads& operator=(const AnswerThreads&) = delete;

  // answer(i) for each i below `count`, from this thread and the others, in any order. Returns when
  // all of them have returned. Allocates nothing. One call at a time.
  void Run(size_t count, Answer answer);

 private:
  // Fewer are done before another thread has woken up.
  static constexpr size_t kLeastForThreads = 4;

  void Serve();
  void AnswerNext(size_t count, Answer answer);

  std::mutex mutex_;
  std::condition_variable work_, done_;
  const Answer* answer_ ABSL_GUARDED_BY(mutex_) = nullptr;  // of the call of Run that goes on
  size_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t runs_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t num_busy_ ABSL_GUARDED_BY(mutex_) = 0;  // of threads_
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<size_t> next_{0};
  std::vector<std::thread> threads_;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_ANSWER_THREADS_H_
