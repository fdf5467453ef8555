// SPDX-License-Identifier: Apache-2.0
#include "tools/sched/drain_limit.h"

namespace reprise::tools {

DrainLimit::DrainLimit(GrpcClient* client, const std::atomic<bool>* requested)
    : client_(client), requested_(requested), thread_([this] { Watch(); }) {}

DrainLimit::~DrainLimit() {
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void DrainLimit::Watch() {
  constexpr std::chrono::milliseconds kLook(100);
  const auto ended = [this] { return ended_; };
  std::unique_lock lock(mutex_);
  while (!*requested_) {
    if (changed_.wait_for(lock, kLook, ended)) return;
  }
  if (!changed_.wait_for(lock, kDrainTime, ended)) client_->Cancel();
}

}  // namespace reprise::tools
