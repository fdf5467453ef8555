// SPDX-License-Identifier: Apache-2.0
#include "service/answer_threads.h"

#include <system_error>

namespace reprise::service {

AnswerThreads::AnswerThreads(size_t num_threads) {
  threads_.reserve(num_threads);
  try {
    while (threads_.size() < num_threads) threads_.emplace_back([this] { Serve(); });
  } catch (const std::system_error&) {
    // Those that there are answer, and whoever calls Run.
  }
}

AnswerThreads::~AnswerThreads() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void AnswerThreads::AnswerNext(size_t count, Answer answer) {
  for (size_t i = next_.fetch_add(1); i < count; i = next_.fetch_add(1)) answer(i);
}

void AnswerThreads::Run(size_t count, Answer answer) {
  if (threads_.empty() || count < kLeastForThreads) {
    for (size_t i = 0; i < count; ++i) answer(i);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    answer_ = &answer;
    count_ = count;
    next_ = 0;
    ++runs_;
  }
  work_.notify_all();
  AnswerNext(count, answer);
  std::unique_lock lock(mutex_);
  // Who wakes up from now on finds nothing to do.
  answer_ = nullptr;
  done_.wait(lock, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return num_busy_ == 0; });
}

void AnswerThreads::Serve() {
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stopping_ || runs_ != seen; });
    if (stopping_) return;
    seen = runs_;
    if (answer_ == nullptr) continue;
    const Answer answer = *answer_;
    const size_t count = count_;
    ++num_busy_;
    lock.unlock();
    AnswerNext(count, answer);
    lock.lock();
    if (--num_busy_ == 0) done_.notify_one();
  }
}

}  // namespace reprise::service
