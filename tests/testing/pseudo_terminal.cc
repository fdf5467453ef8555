// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/pseudo_terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace reprise::testing {
namespace {

constexpr int kPollMs = 10;

}  // namespace

PseudoTerminal::PseudoTerminal(int columns) : columns_(columns) {
  ours_ = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  char name[64] = {};
  if (ours_ < 0 || grantpt(ours_) != 0 || unlockpt(ours_) != 0 ||
      ptsname_r(ours_, name, sizeof(name)) != 0) {
    ADD_FAILURE() << "no pseudo-terminal: errno " << errno;
    return;
  }
  childs_ = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
  winsize size{};
  size.ws_row = 24;
  size.ws_col = static_cast<unsigned short>(columns);
  EXPECT_EQ(ioctl(childs_, TIOCSWINSZ, &size), 0);
}

PseudoTerminal::~PseudoTerminal() {
  HangUp();
  if (childs_ >= 0) close(childs_);
}

void PseudoTerminal::Attach() const {
  if (setsid() < 0 || ioctl(childs_, TIOCSCTTY, 0) != 0) _exit(126);
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (dup2(childs_, descriptor) < 0) _exit(126);
  }
}

void PseudoTerminal::CloseChildEnd() {
  if (childs_ >= 0) close(childs_);
  childs_ = -1;
  if (ours_ >= 0) collector_ = std::thread([this] { Collect(); });
}

void PseudoTerminal::Type(std::string_view keys) const {
  EXPECT_EQ(write(ours_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
}

void PseudoTerminal::HangUp() {
  hung_up_ = true;
  AwaitEnd();
  if (ours_ >= 0) close(ours_);
  ours_ = -1;
}

void PseudoTerminal::AwaitEnd() {
  if (collector_.joinable()) collector_.join();
}

std::string PseudoTerminal::output() const {
  std::lock_guard lock(mutex_);
  return output_;
}

// Until the other end is closed (the read fails) or the terminal hangs up.
void PseudoTerminal::Collect() {
  char buffer[4096];
  while (!hung_up_) {
    pollfd ready = {.fd = ours_, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, kPollMs) <= 0) continue;
    const ssize_t count = read(ours_, buffer, sizeof(buffer));
    if (count <= 0) return;
    std::lock_guard lock(mutex_);
    output_.append(buffer, static_cast<size_t>(count));
  }
}

}  // namespace reprise::testing
