// SPDX-License-Identifier: Apache-2.0
#include "service/kv/kv_queue.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace reprise::service {

KvQueue::~KvQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

absl::Status KvQueue::Push(engine::SessionId session, KvJob* job) {
  const std::lock_guard lock(mutex_);
  const auto of_session = static_cast<size_t>(std::ranges::count_if(
      jobs_, [session](const Waiting& waiting) { return waiting.session == session; }));
  if (of_session >= kMaxSessionJobs) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this session has ", of_session,
                     " reads and writes of KV blocks waiting; allowed at most ", kMaxSessionJobs));
  }
  if (jobs_.size() >= kMaxJobs) {
    return absl::ResourceExhaustedError(absl::StrCat("the server has ", jobs_.size(),
                                                     " reads and writes of KV blocks waiting; "
                                                     "allowed at most ",
                                                     kMaxJobs, "; send it again later"));
  }
  jobs_.push_back({session, job});
  changed_.notify_all();
  return absl::OkStatus();
}

void KvQueue::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    KvJob* job = jobs_.front().job;
    lock.unlock();
    job->Run();
    lock.lock();
    jobs_.pop_front();
    lock.unlock();
    job->Answer();
    lock.lock();
  }
}

}  // namespace reprise::service
