// SPDX-License-Identifier: Apache-2.0
#include "tools/signals.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace reprise::tools {
namespace {

sigset_t WatchedSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

SignalWatcher::SignalWatcher(std::function<void(std::string_view, int)> on_signal)
    : on_signal_(std::move(on_signal)) {
  const sigset_t set = WatchedSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this] { Watch(); });
}

SignalWatcher::~SignalWatcher() {
  stopping_ = true;
  pthread_kill(thread_.native_handle(), SIGTERM);
  thread_.join();
  const sigset_t set = WatchedSignals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void SignalWatcher::Watch() {
  const sigset_t set = WatchedSignals();
  for (int count = 1;; ++count) {
    int signal = 0;
    if (sigwait(&set, &signal) != 0) return;
    if (stopping_) return;
    on_signal_(signal == SIGINT ? "SIGINT" : "SIGTERM", count);
  }
}

}  // namespace reprise::tools
