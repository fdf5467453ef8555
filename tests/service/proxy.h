// SPDX-License-Identifier: Apache-2.0
// Proxy: a connection that a test can freeze or break.
#ifndef REPRISE_TESTS_SERVICE_PROXY_H_
#define REPRISE_TESTS_SERVICE_PROXY_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"

namespace reprise::service {

inline uint16_t PortOf(const std::string& address) {
  return static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
}

// Passes bytes between one client and a server, until told to freeze: then it passes nothing and
// closes nothing.
class Proxy {
 public:
  explicit Proxy(uint16_t server_port) : server_port_(server_port) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = Loopback(0);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    socklen_t length = sizeof(address);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Pass(); });
  }
  ~Proxy() {
    stop_ = true;
    thread_.join();
    close(listener_);
  }
  void Freeze() { frozen_ = true; }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  static sockaddr_in Loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
  }

  void Pass() {
    const int client = accept(listener_, nullptr, nullptr);
    const int server = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = Loopback(server_port_);
    EXPECT_EQ(connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    while (!stop_) {
      pollfd ends[] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
      if (frozen_) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      } else if (poll(ends, 2, 5) > 0) {
        if (ends[0].revents != 0) Copy(client, server);
        if (ends[1].revents != 0) Copy(server, client);
      }
    }
    close(client);
    close(server);
  }

  static void Copy(int from, int to) {
    char bytes[4096];
    const ssize_t count = recv(from, bytes, sizeof(bytes), 0);
    if (count > 0) send(to, bytes, static_cast<size_t>(count), MSG_NOSIGNAL);
  }

  const uint16_t server_port_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::atomic<bool> frozen_ = false;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace reprise::service

#endif  // REPRISE_TESTS_SERVICE_PROXY_H_
