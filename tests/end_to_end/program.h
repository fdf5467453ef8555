// SPDX-License-Identifier: Apache-2.0
// Program: one run of the reprise program as a user starts it, with what it printed and how it
// ended. Every process is ended and reaped by the destructor at the latest, so that a failing test
// leaves nothing behind.
#ifndef REPRISE_TESTS_END_TO_END_PROGRAM_H_
#define REPRISE_TESTS_END_TO_END_PROGRAM_H_

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/testing/tiny_model.h"

namespace reprise::testing {

class Program {
 public:
  // Starts `reprise arguments...`. Output goes to files, never to a terminal.
  explicit Program(std::vector<std::string> arguments);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void Signal(int signal);
  // Exit code; 128 + signal when a signal ended it; -1 (and a test failure) when it still runs
  // after `time`.
  int Wait(std::chrono::seconds time = std::chrono::seconds(60));
  bool running();
  // Waits until `text` stands in what it printed; false when it ends, or two minutes pass, without.
  bool AwaitOutput(const std::string& text);

  std::string stdout_text() const;
  std::string stderr_text() const;

 private:
  bool Reap(bool block);
  TemporaryDirectory directory_;
  pid_t pid_ = -1;
  bool ended_ = false;
  int exit_code_ = -1;
};

// A server of `model` on a unix socket of its own, ready when constructed (check `ready`).
class ServedProgram {
 public:
  ServedProgram(const std::string& model, std::vector<std::string> flags = {});

  bool ready() const { return ready_; }
  const std::string& address() const { return address_; }
  std::string socket_path() const { return address_.substr(5); }
  Program& program() { return serve_; }

 private:
  TemporaryDirectory directory_;
  std::string address_;
  Program serve_;
  bool ready_ = false;
};

// Runs to the end and returns the exit code.
int RunProgram(std::vector<std::string> arguments);

// Directory of the byte-level model that the repository ships.
std::string ShippedModel();

std::string ReadTextFile(const std::string& path);

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_END_TO_END_PROGRAM_H_
