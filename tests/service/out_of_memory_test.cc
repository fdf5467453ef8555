// SPDX-License-Identifier: Apache-2.0
// Memory that runs out while a message is taken in: that message is refused, and nothing else ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/service/refusal.h"
#include "tests/service/served_model.h"
#include "tests/testing/allocation_counter.h"

namespace reprise::service {
namespace {

using ::testing::HasSubstr;

constexpr size_t kLarge = size_t{1} << 20;

v1::StepRequest LargeStep(const StreamClient& client) {
  v1::StepRequest step = client.NewStep();
  v1::SetAllowedTokens* mask = step.add_masks();
  mask->set_row(kRow);
  mask->set_allowed_tokens(std::string(kLarge, 'x'));
  return step;
}

TEST(OutOfMemory, AStepIsRefusedAndItsStreamGoesOn) {
  ServedModel served;
  const uint32_t free_blocks = served.engine().pool().free_blocks;
  {
    StreamClient client(served.NewChannel());
    std::vector<uint32_t> tokens = {client.StartRow(kRow, kPrompt, kMaxContext)};
    v1::StepStreamRequest message;
    *message.mutable_step() = LargeStep(client);
    v1::StepStreamResponse answer;
    {
      const testing::LargeAllocationsFail out(kLarge / 2);
      ASSERT_TRUE(client.SendRaw(message));
      ASSERT_TRUE(client.Receive(&answer));
    }
    EXPECT_EQ(answer.error().code(), static_cast<int>(grpc::StatusCode::RESOURCE_EXHAUSTED))
        << answer.ShortDebugString();
    EXPECT_THAT(answer.error().message(), HasSubstr("memory"));
    for (const uint32_t token : Continue(client, kRow, 3)) tokens.push_back(token);
    EXPECT_EQ(tokens, served.Reference(kPrompt, tokens.size()));
    EXPECT_TRUE(client.Finish().ok());
  }
  EXPECT_TRUE(Eventually([&] { return served.engine().pool().free_blocks == free_blocks; }));
  EXPECT_TRUE(served.server().Drain());
}

TEST(OutOfMemory, AUnaryCallIsRefusedAndTheNextOneIsNot) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  std::vector<uint32_t> tokens = {client.StartRow(kRow, kPrompt, kMaxContext)};
  const std::string step = LargeStep(client).SerializeAsString();
  const auto channel = served.NewChannel();
  grpc::Status status;
  {
    const std::string bytes = step;
    const testing::LargeAllocationsFail out(kLarge / 2);
    status = CallWithBytes(channel, "Step", bytes);
  }
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  for (const uint32_t token : Continue(client, kRow, 3)) tokens.push_back(token);
  EXPECT_EQ(tokens, served.Reference(kPrompt, tokens.size()));
}

}  // namespace
}  // namespace reprise::service
