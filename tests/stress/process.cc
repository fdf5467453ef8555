// SPDX-License-Identifier: Apache-2.0
#include "tests/stress/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <utility>

extern char** environ;

namespace reprise::stress {

Process::Process(const std::vector<std::string>& arguments) {
  std::vector<char*> argv = {const_cast<char*>("/proc/self/exe")};
  for (const std::string& word : arguments) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const int error = posix_spawn(&pid_, argv[0], nullptr, nullptr, argv.data(), environ);
  EXPECT_EQ(error, 0);
  if (error != 0) pid_ = -1;
}

Process::~Process() {
  if (pid_ > 0) Kill();
}

bool Process::Kill() {
  const pid_t pid = std::exchange(pid_, -1);
  if (pid <= 0) return false;
  kill(pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

void Process::Freeze() {
  kill(pid_, SIGSTOP);
  siginfo_t info;
  // Stopped or, where it was just ending, ended.
  waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WEXITED | WNOWAIT);
}

void Process::Thaw() { kill(pid_, SIGCONT); }

int Process::Wait() {
  int status = 0;
  waitpid(std::exchange(pid_, -1), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool Process::HasEnded() {
  siginfo_t info = {};
  waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
  return info.si_pid == pid_;
}

}  // namespace reprise::stress
