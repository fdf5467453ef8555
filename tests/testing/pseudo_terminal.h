// SPDX-License-Identifier: Apache-2.0
// PseudoTerminal: a terminal for one process under test. What the process writes is collected; keys
// can be pressed, Ctrl-C among them, and the terminal can go away.
#ifndef REPRISE_TESTS_TESTING_PSEUDO_TERMINAL_H_
#define REPRISE_TESTS_TESTING_PSEUDO_TERMINAL_H_

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "tests/testing/screen.h"

namespace reprise::testing {

class PseudoTerminal {
 public:
  // A failure to get one is a test failure, and the terminal is dead from the start.
  explicit PseudoTerminal(int columns);
  ~PseudoTerminal();
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;

  // In the child, between fork and exec: makes this the terminal of a session of its own, and its
  // stdin, stdout and stderr. Allocates nothing.
  void Attach() const;
  // In the parent, after the fork: the child alone holds the terminal's other end from here on.
  void CloseChildEnd();

  // As if typed: "\x03" is Ctrl-C.
  void Type(std::string_view keys) const;
  // The terminal goes away: its session gets SIGHUP, and writing to it fails.
  void HangUp();

  // What the process wrote so far. Complete once the process ended and AwaitEnd returned.
  std::string output() const;
  // Waits until nobody holds the other end any more.
  void AwaitEnd();
  // The output as a person sees it.
  Screen screen() const { return ShownOn(static_cast<size_t>(columns_), output()); }

 private:
  void Collect();

  const int columns_;
  int ours_ = -1;
  int childs_ = -1;
  std::atomic<bool> hung_up_ = false;
  mutable std::mutex mutex_;
  std::string output_;  // guarded by mutex_
  std::thread collector_;
};

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_PSEUDO_TERMINAL_H_
