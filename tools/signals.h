// SPDX-License-Identifier: Apache-2.0
// What a command does when it is asked to stop: SignalWatcher turns SIGINT, SIGTERM and SIGHUP into
// calls on a thread of its own, where more is allowed than in a signal handler; Interrupt is the
// flag that loops look at.
#ifndef REPRISE_TOOLS_SIGNALS_H_
#define REPRISE_TOOLS_SIGNALS_H_

#include <signal.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string_view>
#include <thread>

#include "absl/status/status.h"

namespace reprise::tools {

// "SIGINT", "SIGTERM", "SIGHUP".
std::string_view NameOfSignal(int signal);

class SignalWatcher {
 public:
  // Calls `on_signal(signal, count)` for every SIGINT, SIGTERM or SIGHUP, count 1 for the first. A
  // signal that the process was started to ignore (nohup) stays ignored. Make it before any other
  // thread: threads started later inherit that these signals are not for them.
  explicit SignalWatcher(std::function<void(int signal, int count)> on_signal);
  // Waits for a running call; signals have their usual effect again on the calling thread.
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  void Watch();
  std::function<void(int, int)> on_signal_;
  sigset_t watched_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

// The first signal sets a flag, and the work ends where it can be left. A second one, or one before
// there is anything to lose, ends the process at once with 128 + signal. Make it before any other
// thread.
class Interrupt {
 public:
  Interrupt();

  // From here on there is something to lose.
  void Arm();
  const std::atomic<bool>& requested() const { return requested_; }
  // OK, or what a command returns that a signal stopped: see InterruptedError in cli.h.
  absl::Status status() const;

 private:
  void OnSignal(int signal, int count);

  std::mutex mutex_;
  bool armed_ = false;  // guarded by mutex_
  std::atomic<bool> requested_ = false;
  std::atomic<int> signal_ = 0;
  SignalWatcher watcher_;  // the last member: its thread uses the others
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_SIGNALS_H_
