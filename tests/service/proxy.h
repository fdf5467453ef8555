// SPDX-License-Identifier: Apache-2.0
// Proxy: connections that a test can freeze or break.
#ifndef REPRISE_TESTS_SERVICE_PROXY_H_
#define REPRISE_TESTS_SERVICE_PROXY_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "service/transport/file_descriptor.h"

namespace reprise::service {

inline uint16_t PortOf(const std::string& address) {
  return static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
}

// Listens on a port of its own, and passes bytes between whoever connects and a server: until told
// to freeze, then it passes nothing and closes nothing.
class Proxy {
 public:
  explicit Proxy(uint16_t server_port) : Proxy(absl::StrCat("127.0.0.1:", server_port)) {}
  // `server`: "127.0.0.1:PORT" or "unix:PATH".
  explicit Proxy(std::string server) : server_(std::move(server)) {
    listener_.Reset(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address = Loopback(0);
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener_.get(), 16), 0);
    socklen_t length = sizeof(address);
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~Proxy() {
    stop_ = true;
    thread_.join();
  }
  void Freeze() { frozen_ = true; }
  // Cuts off all connections that there are; later ones are passed on. Returns when it is done.
  void Break() {
    break_ = true;
    while (break_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // From now on whoever connects is cut off at once, until told otherwise.
  void Refuse(bool refuse) { refuse_ = refuse; }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  struct Pair {
    FileDescriptor client = {};
    FileDescriptor server = {};
    bool ended = false;
  };

  static sockaddr_in Loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
  }

  void Run() {
    while (!stop_) {
      if (break_) {
        pairs_.clear();
        break_ = false;
      }
      if (frozen_) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      } else {
        Pass();
      }
    }
  }

  void Pass() {
    std::vector<pollfd> ends = {{listener_.get(), POLLIN, 0}};
    for (const Pair& pair : pairs_) {
      ends.push_back({pair.client.get(), POLLIN, 0});
      ends.push_back({pair.server.get(), POLLIN, 0});
    }
    if (poll(ends.data(), ends.size(), 5) <= 0) return;
    for (size_t i = 0; i < pairs_.size(); ++i) {
      Pair& pair = pairs_[i];
      if (ends[2 * i + 1].revents != 0) pair.ended |= !Copy(pair.client.get(), pair.server.get());
      if (ends[2 * i + 2].revents != 0) pair.ended |= !Copy(pair.server.get(), pair.client.get());
    }
    std::erase_if(pairs_, [](const Pair& pair) { return pair.ended; });
    if (ends[0].revents != 0) Accept();
  }

  void Accept() {
    Pair pair{.client = FileDescriptor(accept(listener_.get(), nullptr, nullptr))};
    if (refuse_) return;
    if (Connect(&pair.server)) pairs_.push_back(std::move(pair));
  }

  bool Connect(FileDescriptor* server) const {
    if (server_.starts_with("unix:")) {
      server->Reset(socket(AF_UNIX, SOCK_STREAM, 0));
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      server_.copy(address.sun_path, sizeof(address.sun_path) - 1, 5);
      return connect(server->get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) ==
             0;
    }
    server->Reset(socket(AF_INET, SOCK_STREAM, 0));
    const sockaddr_in address = Loopback(PortOf(server_));
    return connect(server->get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) ==
           0;
  }

  // False where the one that sends has gone.
  static bool Copy(int from, int to) {
    char bytes[4096];
    const ssize_t count = recv(from, bytes, sizeof(bytes), 0);
    if (count > 0) send(to, bytes, static_cast<size_t>(count), MSG_NOSIGNAL);
    return count > 0;
  }

  const std::string server_;
  FileDescriptor listener_;
  uint16_t port_ = 0;
  std::vector<Pair> pairs_;  // the thread's
  std::atomic<bool> frozen_ = false;
  std::atomic<bool> break_ = false;
  std::atomic<bool> refuse_ = false;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace reprise::service

#endif  // REPRISE_TESTS_SERVICE_PROXY_H_
