// SPDX-License-Identifier: Apache-2.0
// Clients that misbehave as connections do: they vanish mid-stream, freeze, or never read. The
// server frees what they held, keeps its memory bounded, and nobody else notices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "grpcpp/create_channel.h"
#include "tests/service/proxy.h"
#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

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
  auto proxy = std::make_unique<Proxy>(PortOf(served.address()));
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
  options.server.keepalive_ms = 1500;  // of the neighbour as well
  ServedModel served(options);
  Neighbour neighbour(served);
  const uint32_t free_blocks = served.engine().pool().free_blocks;
  Proxy proxy(PortOf(served.address()));
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
