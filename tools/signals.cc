// SPDX-License-Identifier: Apache-2.0
#include "tools/signals.h"

#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "tools/cli.h"

namespace reprise::tools {
namespace {

// Wakes a watcher that is to end; no one else sends it.
constexpr int kWakeUp = SIGUSR1;

bool IsIgnored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

sigset_t SignalsToWatch() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, kWakeUp);
  // A blocked signal arrives even where it is ignored.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (!IsIgnored(signal)) sigaddset(&set, signal);
  }
  return set;
}

}  // namespace

std::string_view NameOfSignal(int signal) {
  return signal == SIGINT ? "SIGINT" : signal == SIGTERM ? "SIGTERM" : "SIGHUP";
}

SignalWatcher::SignalWatcher(std::function<void(int, int)> on_signal)
    : on_signal_(std::move(on_signal)), watched_(SignalsToWatch()) {
  pthread_sigmask(SIG_BLOCK, &watched_, nullptr);
  thread_ = std::thread([this] { Watch(); });
}

SignalWatcher::~SignalWatcher() {
  stopping_ = true;
  pthread_kill(thread_.native_handle(), kWakeUp);
  thread_.join();
  pthread_sigmask(SIG_UNBLOCK, &watched_, nullptr);
}

void SignalWatcher::Watch() {
  for (int count = 1;;) {
    int signal = 0;
    if (sigwait(&watched_, &signal) != 0) return;
    if (stopping_) return;
    if (signal != kWakeUp) on_signal_(signal, count++);
  }
}

Interrupt::Interrupt() : watcher_([this](int signal, int count) { OnSignal(signal, count); }) {}

void Interrupt::Arm() {
  std::lock_guard lock(mutex_);
  armed_ = true;
}

absl::Status Interrupt::status() const {
  return requested_ ? InterruptedError(signal_) : absl::OkStatus();
}

void Interrupt::OnSignal(int signal, int count) {
  std::lock_guard lock(mutex_);
  if (!armed_ || count > 1) {
    std::fprintf(stderr, "\nreprise: %s: exits at once\n", NameOfSignal(signal).data());
    std::_Exit(ExitCodeOfSignal(signal));
  }
  signal_ = signal;
  requested_ = true;
}

}  // namespace reprise::tools
