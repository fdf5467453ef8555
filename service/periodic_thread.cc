// SPDX-License-Identifier: Apache-2.0
#include "service/periodic_thread.h"

#include <signal.h>

#include <utility>

namespace reprise::service {

PeriodicThread::PeriodicThread(std::chrono::milliseconds interval, std::function<void()> turn)
    : interval_(interval), turn_(std::move(turn)), thread_([this] { Run(); }) {}

PeriodicThread::~PeriodicThread() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopping_changed_.notify_all();
  thread_.join();
}

void PeriodicThread::Run() {
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGPIPE);
  sigaddset(&blocked, SIGXFSZ);
  ::pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  bool stopping = false;
  while (!stopping) {
    {
      std::unique_lock lock(mutex_);
      stopping = stopping_changed_.wait_for(lock, interval_, [this] { return stopping_; });
    }
    turn_();
  }
}

}  // namespace reprise::service
