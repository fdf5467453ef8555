// SPDX-License-Identifier: Apache-2.0
// SignalWatcher: turns SIGINT and SIGTERM into calls on a thread of its own, where more is allowed
// than in a signal handler.
#ifndef REPRISE_TOOLS_SIGNALS_H_
#define REPRISE_TOOLS_SIGNALS_H_

#include <atomic>
#include <functional>
#include <string_view>
#include <thread>

namespace reprise::tools {

class SignalWatcher {
 public:
  // Calls `on_signal(name, count)` for every SIGINT or SIGTERM, count 1 for the first. Make it
  // before any other thread: threads started later inherit that these signals are not for them.
  explicit SignalWatcher(std::function<void(std::string_view name, int count)> on_signal);
  // Waits for a running call; signals have their usual effect again on the calling thread.
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  void Watch();
  std::function<void(std::string_view, int)> on_signal_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_SIGNALS_H_
