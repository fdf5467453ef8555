// SPDX-License-Identifier: Apache-2.0
// Program: one run of the reprise program as a user starts it, with what it printed and how it
// ended: with its output in files, or on a terminal. Every process is ended and reaped by the
// destructor at the latest, so that a failing test leaves nothing behind.
#ifndef REPRISE_TESTS_END_TO_END_PROGRAM_H_
#define REPRISE_TESTS_END_TO_END_PROGRAM_H_

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/testing/pseudo_terminal.h"
#include "tests/testing/tiny_model.h"

namespace reprise::testing {

struct ProgramSetting {
  int terminal_columns = 0;               // > 0: runs on a terminal of so many columns
  std::string stdout_path = {};           // stdout goes to this file, such as /dev/full
  std::vector<int> ignored_signals = {};  // as nohup starts a program
};

class Program {
 public:
  // Starts `reprise arguments...`, with signals as a shell's foreground job has them.
  explicit Program(std::vector<std::string> arguments, const ProgramSetting& setting = {});
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

  // What went to files.
  std::string stdout_text() const;
  std::string stderr_text() const;
  // With terminal_columns. Wait() has waited for all of its output.
  PseudoTerminal& terminal() { return *terminal_; }

 private:
  bool Reap(bool block);
  std::string Printed() const;
  TemporaryDirectory directory_;
  std::unique_ptr<PseudoTerminal> terminal_;
  pid_t pid_ = -1;
  bool ended_ = false;
  int exit_code_ = -1;
};

// A server of `model` on a unix socket of its own, on the host device where `flags` name no other;
// ready when constructed (check `ready`).
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
