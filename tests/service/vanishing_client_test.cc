// SPDX-License-Identifier: Apache-2.0
// Clients that misbehave as connections do: they vanish mid-stream, freeze, or never read. The
// server frees what they held, keeps its memory bounded, and nobody else notices.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpcpp/create_channel.h"
#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

constexpr uint32_t kRow = 1;
const std::vector<uint32_t> kPrompt = {5, 80, 33};

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

// The one who must not notice.
class Neighbour {
 public:
  explicit Neighbour(ServedModel& served) : served_(served), client_(served.NewChannel()) {
    tokens_ = {client_.StartRow(kRow, kPrompt, kMaxContext)};
  }
  void Speak(size_t count) {
    for (const uint32_t token : Continue(client_, kRow, count)) tokens_.push_back(token);
  }
  void ExpectUndisturbed() { EXPECT_EQ(tokens_, served_.Reference(kPrompt, tokens_.size())); }

 private:
  ServedModel& served_;
  StreamClient client_;
  std::vector<uint32_t> tokens_;
};

TEST(VanishingClient, ItsBlocksAreFreedAfterTheStepInFlight) {
  ServedModel::Options options;
  options.max_delay_us = 300;
  ServedModel served(options);
  Neighbour neighbour(served);
  const uint32_t free_blocks = served.engine().pool().free_blocks;
  for (int round = 0; round < 10; ++round) {
    StreamClient client(served.NewChannel());
    client.StartRow(kRow, kPrompt, 32);
    for (int i = 0; i < 4; ++i) {  // two in flight, two queued
      v1::StepRequest step = client.NewStep();
      step.set_continue_all(true);
      ASSERT_TRUE(client.Send(step));
      client.CountStep();
    }
    if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    client.Cancel();
    EXPECT_TRUE(Eventually([&] { return served.engine().pool().free_blocks == free_blocks; }));
    neighbour.Speak(2);
  }
  neighbour.ExpectUndisturbed();
  EXPECT_TRUE(served.engine().health().ok());
}

TEST(VanishingClient, RowsItHeldAreFreeForOthers) {
  ServedModel served;
  for (int round = 0; round < 5; ++round) {
    StreamClient client(served.NewChannel());
    for (uint32_t row = 0; row < kMaxRows; ++row) client.StartRow(row, kPrompt, 8);
    client.Cancel();
    ASSERT_TRUE(Eventually([&] {
      return served.engine().pool().free_blocks == served.engine().pool().num_blocks - 1;
    }));
  }
}

TEST(VanishingClient, WhoClosesTheConnectionLosesTheSession) {
  ServedModel::Options options;
  options.server.listen = {"127.0.0.1:0"};
  ServedModel served(options);
  const uint32_t free_blocks = served.engine().pool().free_blocks;
  const std::string address = served.address();
  auto proxy = std::make_unique<Proxy>(
      static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  StreamClient client(grpc::CreateChannel(proxy->address(), grpc::InsecureChannelCredentials()));
  ASSERT_TRUE(client.opened());
  client.StartRow(kRow, kPrompt, 32);
  EXPECT_EQ(served.engine().pool().free_blocks, free_blocks - 8);
  proxy.reset();  // both connections close, in the middle of everything
  EXPECT_TRUE(Eventually([&] { return served.engine().pool().free_blocks == free_blocks; }));
}

TEST(VanishingClient, FrozenConnectionIsGivenUpAfterTheKeepalive) {
  ServedModel::Options options;
  options.server.listen = {"127.0.0.1:0"};
  options.server.keepalive_ms = 300;
  ServedModel served(options);
  Neighbour neighbour(served);
  const uint32_t free_blocks = served.engine().pool().free_blocks;
  const std::string address = served.address();
  Proxy proxy(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  StreamClient client(grpc::CreateChannel(proxy.address(), grpc::InsecureChannelCredentials()));
  ASSERT_TRUE(client.opened());
  client.StartRow(kRow, kPrompt, 32);
  proxy.Freeze();
  EXPECT_TRUE(Eventually([&] { return served.engine().pool().free_blocks == free_blocks; }));
  neighbour.Speak(3);
  neighbour.ExpectUndisturbed();
}

// Refused steps are the cheapest way to make the server answer much. It must stop reading long
// before all of them are sent.
TEST(ClientThatNeverReads, IsReadNoFurtherUntilItDoes) {
  ServedModel served;
  Neighbour neighbour(served);
  // A window of fixed size: otherwise the client's gRPC buffers megabytes of answers that nobody
  // reads.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  StreamClient client(
      grpc::CreateCustomChannel(served.address(), grpc::InsecureChannelCredentials(), arguments));
  v1::StepRequest bad = client.NewStep();
  bad.set_sequence(bad.sequence() + 1);
  v1::Chunk* chunk = bad.add_chunks();
  for (int i = 0; i < 2000; ++i) chunk->add_tokens(1);
  constexpr int kSteps = 20000;  // 40 MB
  std::atomic<int> sent = 0;
  std::thread writer([&] {
    while (sent < kSteps && client.Send(bad)) ++sent;
  });
  // Settled: nothing more was taken for a while.
  int before = -1;
  while (before != sent) {
    before = sent;
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
  EXPECT_LT(before, kSteps);
  neighbour.Speak(5);
  v1::StepStreamResponse response;
  for (int i = 0; i < kSteps; ++i) {
    ASSERT_TRUE(client.Receive(&response));
    ASSERT_TRUE(response.has_error());
  }
  writer.join();
  EXPECT_EQ(sent, kSteps);
  EXPECT_TRUE(client.Finish().ok());
  neighbour.ExpectUndisturbed();
}

}  // namespace
}  // namespace reprise::service
