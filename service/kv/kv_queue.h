// SPDX-License-Identifier: Apache-2.0
// KvQueue: runs calls that wait for the device to copy KV blocks, one after another on a thread of
// its own, so that none of gRPC's threads waits. Threads: Push from any thread.
#ifndef REPRISE_SERVICE_KV_KV_QUEUE_H_
#define REPRISE_SERVICE_KV_KV_QUEUE_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engine/session_info.h"

namespace reprise::service {

class KvJob {
 public:
  virtual ~KvJob() = default;
  // Each once, on the queue's thread; neither throws. Answer comes when the queue counts the job no
  // more, so that who has the answer may push the next one; it may free the job.
  virtual void Run() = 0;
  virtual void Answer() = 0;
};

class KvQueue {
 public:
  // That may wait or run at a time: of all sessions, and of one of them.
  static constexpr size_t kMaxJobs = 64;
  static constexpr size_t kMaxSessionJobs = 8;

  KvQueue() : thread_([this] { Work(); }) {}
  // REQUIRES: no job waits.
  ~KvQueue();
  KvQueue(const KvQueue&) = delete;
  KvQueue& operator=(const KvQueue&) = delete;

  // Errors: ResourceExhausted; the job is the caller's then.
  absl::Status Push(engine::SessionId session, KvJob* job);

 private:
  struct Waiting {
    engine::SessionId session;
    KvJob* job;
  };
  void Work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> jobs_ ABSL_GUARDED_BY(mutex_);  // the first one may be running
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_KV_KV_QUEUE_H_
