// SPDX-License-Identifier: Apache-2.0
#include "tests/end_to_end/program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "gtest/gtest.h"
#include "tests/testing/source_dir.h"

namespace reprise::testing {
namespace {

constexpr std::chrono::milliseconds kPoll(5);

// In the child, between fork and exec: nothing that allocates.
void RedirectTo(const std::string& path, int descriptor) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || dup2(file, descriptor) < 0) _exit(126);
}

// The test's own parent may have started it in the background, with signals ignored.
void ResetSignals(const std::vector<int>& ignored) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT}) signal(number, SIG_DFL);
  for (const int number : ignored) signal(number, SIG_IGN);
}

std::vector<std::string> ServeArguments(const std::string& model, const std::string& address,
                                        std::vector<std::string> flags) {
  std::vector<std::string> arguments = {"serve", "--model", model, "--listen", address};
  if (std::find(flags.begin(), flags.end(), "--device") == flags.end())
    arguments.insert(arguments.end(), {"--device", "host"});
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return arguments;
}

}  // namespace

Program::Program(std::vector<std::string> arguments, const ProgramSetting& setting) {
  arguments.insert(arguments.begin(), REPRISE_PROGRAM);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const std::string out =
      setting.stdout_path.empty() ? directory_.path() + "/out" : setting.stdout_path;
  const std::string err = directory_.path() + "/err";
  if (setting.terminal_columns > 0) {
    terminal_ = std::make_unique<PseudoTerminal>(setting.terminal_columns);
  }
  pid_ = fork();
  if (pid_ != 0) {
    if (terminal_ != nullptr) terminal_->CloseChildEnd();
    return;
  }
  ResetSignals(setting.ignored_signals);
  if (terminal_ != nullptr) {
    terminal_->Attach();
  } else {
    RedirectTo("/dev/null", STDIN_FILENO);
    RedirectTo(out, STDOUT_FILENO);
    RedirectTo(err, STDERR_FILENO);
  }
  execv(argv[0], argv.data());
  _exit(127);
}

Program::~Program() {
  if (!Reap(false)) {
    kill(pid_, SIGKILL);
    Reap(true);
  }
}

void Program::Signal(int signal) {
  if (!Reap(false)) kill(pid_, signal);
}

bool Program::Reap(bool block) {
  if (ended_) return true;
  int status = 0;
  if (waitpid(pid_, &status, block ? 0 : WNOHANG) != pid_) return false;
  ended_ = true;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return true;
}

bool Program::running() { return !Reap(false); }

int Program::Wait(std::chrono::seconds time) {
  const auto deadline = std::chrono::steady_clock::now() + time;
  while (!Reap(false)) {
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "still running after " << time.count() << " s; it printed:\n" << Printed();
      return -1;
    }
    std::this_thread::sleep_for(kPoll);
  }
  if (terminal_ != nullptr) terminal_->AwaitEnd();
  return exit_code_;
}

bool Program::AwaitOutput(const std::string& text) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (std::chrono::steady_clock::now() < deadline) {
    const bool ended = Reap(false);
    if (Printed().find(text) != std::string::npos) return true;
    if (ended) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return false;
}

std::string Program::Printed() const {
  return terminal_ != nullptr ? terminal_->output() : stdout_text() + stderr_text();
}

std::string Program::stdout_text() const { return ReadTextFile(directory_.path() + "/out"); }
std::string Program::stderr_text() const { return ReadTextFile(directory_.path() + "/err"); }

ServedProgram::ServedProgram(const std::string& model, std::vector<std::string> flags)
    : address_("unix:" + directory_.path() + "/reprise.sock"),
      serve_(ServeArguments(model, address_, std::move(flags))) {
  ready_ = RunProgram({"health", "--address", address_, "--wait", "60s"}) == 0;
  EXPECT_TRUE(ready_) << serve_.stdout_text() << serve_.stderr_text();
}

int RunProgram(std::vector<std::string> arguments) {
  return Program(std::move(arguments)).Wait(std::chrono::seconds(120));
}

std::string ShippedModel() { return testing::SourceDir() + "/examples/byte-llama"; }

std::string ReadTextFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace reprise::testing
