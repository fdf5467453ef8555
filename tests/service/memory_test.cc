// SPDX-License-Identifier: Apache-2.0
// What clients can make the server hold: the budget of messages, and messages that grow when
// parsed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "service/memory_budget.h"
#include "service/unary_answers.h"
#include "tests/service/refusal.h"
#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

using ::testing::HasSubstr;

TEST(MemoryBudget, TakesOneMessageOfTheLargestSizeHoweverSmallItIs) {
  MemoryBudget budget(1, 1 << 20);
  EXPECT_GT(budget.bytes_per_stream(), uint64_t{1} << 20);
  const auto charge = budget.ChargeMessage(1 << 20);
  ASSERT_TRUE(charge.ok()) << charge.status();
  EXPECT_EQ(charge->bytes(), budget.used());
  EXPECT_EQ(budget.ChargeMessage(1 << 20).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(MemoryBudget, TakesOneMessageOfTheLargestSizeWhateverItHolds) {
  MemoryBudget budget(1, 1 << 20);
  const auto charge = budget.ChargeMessage(1 << 20, 100000);
  EXPECT_TRUE(charge.ok()) << charge.status();
}

TEST(MemoryBudget, ChargesEntriesThatTakeMoreThanTheirBytes) {
  MemoryBudget budget(1 << 20, 1 << 20);
  const auto charge = budget.ChargeMessage(200, 100);
  ASSERT_TRUE(charge.ok());
  EXPECT_GT(charge->bytes(), 100u * 300);
}

TEST(MemoryBudget, SmallMessagesAlwaysFit) {
  MemoryBudget budget(1, 1 << 20);
  const auto large = budget.ChargeMessage(1 << 20);
  ASSERT_TRUE(large.ok());
  EXPECT_TRUE(budget.ChargeMessage(4096).ok());
  EXPECT_FALSE(budget.ChargeMessage(4097).ok());
}

TEST(MemoryBudget, IsGivenBackOnceHoweverAChargeIsMoved) {
  MemoryBudget budget(1 << 20, 1 << 10);
  {
    auto first = budget.ChargeMessage(100);
    ASSERT_TRUE(first.ok());
    MemoryBudget::Charge moved = *std::move(first);
    MemoryBudget::Charge again;
    again = std::move(moved);
    EXPECT_EQ(budget.used(), again.bytes());
    again = {};
    EXPECT_EQ(budget.used(), 0u);
  }
  EXPECT_EQ(budget.used(), 0u);
}

TEST(MemoryBudget, AnswersAreNeverRefusedAndLeaveLessForMessages) {
  MemoryBudget budget(1 << 20, 1 << 10);
  {
    const MemoryBudget::Charge answer = budget.ChargeAnswer(1 << 20);
    EXPECT_GE(answer.bytes(), uint64_t{1} << 20);
    EXPECT_EQ(budget.used(), answer.bytes());
    EXPECT_FALSE(budget.ChargeMessage(5000).ok());
  }
  EXPECT_EQ(budget.used(), 0u);
  EXPECT_TRUE(budget.ChargeMessage(5000).ok());
}

// A session keeps the answer to its last unary step, and no other.
TEST(MemoryBudget, TheAnswerThatIsKeptIsCharged) {
  MemoryBudget budget(1 << 20, 1 << 10);
  {
    UnaryAnswers answers;
    for (uint64_t sequence = 1; sequence < 4; ++sequence) {
      const UnaryRequest request{.sequence = sequence, .fingerprint = sequence};
      grpc::ByteBuffer kept;
      ASSERT_TRUE(answers.Begin(request, nullptr, &kept).ok());
      const grpc::Slice bytes(std::string(1000 * sequence, 'x'));
      const grpc::ByteBuffer answer(&bytes, 1);
      EXPECT_TRUE(answers.Finish(request, &answer, budget).empty());
      MemoryBudget other(1 << 20, 1 << 10);
      EXPECT_EQ(budget.used(), other.ChargeAnswer(1000 * sequence).bytes());
    }
  }
  EXPECT_EQ(budget.used(), 0u);
}

size_t BytesInUse() { return mallinfo2().uordblks + mallinfo2().hblkhd; }

// A step of empty AddRows: two bytes each on the wire, hundreds once parsed.
std::string EmptyAdds(size_t bytes) {
  std::string step;
  while (step.size() + 2 <= bytes) step += std::string("\x2a\x00", 2);
  return step;
}

TEST(MessagesThatGrow, AreRefusedBeforeTheyAreParsed) {
  ServedModel served;
  const std::string bytes = EmptyAdds(3 << 20);
  CallWithBytes(served.NewChannel(), "Step", bytes);  // what gRPC allocates once
  const size_t before = BytesInUse();
  for (int i = 0; i < 4; ++i) {
    const grpc::Status status = CallWithBytes(served.NewChannel(), "Step", bytes);
    EXPECT_EQ(status.error_code(), kRange);
    EXPECT_THAT(status.error_message(), HasSubstr("add: got more than 12"));
  }
  // Parsed, one of them would take 400 MiB.
  EXPECT_LT(BytesInUse(), before + (size_t{64} << 20));
}

// 4 MiB of it could unpack to gigabytes before anybody looks at its size.
TEST(MessagesThatGrow, CompressedOnesAreRefused) {
  ServedModel served;
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  v1::AllocateRequest request;
  request.set_session(std::string(4096, 'x'));
  v1::AllocateResponse response;
  const grpc::Status status =
      v1::StepService::NewStub(served.NewChannel())->Allocate(&context, request, &response);
  EXPECT_EQ(status.error_code(), kUnimplemented) << status.error_message();
}

TEST(MessagesThatGrow, OnAStreamAreRefusedAndTheStreamGoesOn) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kOwnPrompt, 32);
  v1::StepRequest step = client.NewStep();
  for (uint32_t i = 0; i < 2 * kMaxRows + 1; ++i) step.add_chunks();
  const v1::StepError error = client.Refused(step);
  EXPECT_EQ(error.code(), static_cast<int>(kRange));
  EXPECT_THAT(error.message(), HasSubstr("chunks: got more than 12"));
  EXPECT_EQ(Continue(client, kRow, 2).size(), 2u);
}

// Each as large as is kept, with another entry that is.
TEST(MessagesThatGrow, LeaveNoMoreThanTheLargestOfThem) {
  ServedModel served;
  std::vector<std::unique_ptr<StreamClient>> clients;
  while (clients.size() < 16) {
    clients.push_back(std::make_unique<StreamClient>(served.NewChannel()));
    ASSERT_TRUE(clients.back()->opened());
  }
  const size_t before = BytesInUse();
  for (const auto& client : clients) {
    for (uint32_t entries = 1; entries <= 2 * kMaxRows; ++entries) {
      v1::StepRequest step = client->NewStep();
      for (uint32_t i = 0; i < entries; ++i) step.add_chunks()->set_row(100 + i);
      step.mutable_chunks(static_cast<int>(entries) - 1)->mutable_tokens()->Resize(3000, 1);
      client->Refused(step);
    }
  }
  EXPECT_LT(BytesInUse(), before + clients.size() * (size_t{64} << 10));
}

// Large messages of one client, in steps that wait, do not take the small ones' room.
TEST(MessagesThatWait, LargeOnesAreRefusedBeyondTheBudgetAndSmallOnesNever) {
  ServedModel::Options options;
  options.server.max_message_bytes = 1 << 20;
  options.server.max_waiting_bytes = 1;  // so: one message of the largest size
  options.max_delay_us = 3000;
  ServedModel served(options);
  StreamClient large(served.NewChannel());
  StreamClient also_large(served.NewChannel());
  StreamClient small(served.NewChannel());
  small.StartRow(kRow, kOwnPrompt, 32);
  large.StartRow(kRow, kOwnPrompt, 32);
  also_large.StartRow(kRow, kOwnPrompt, 32);
  // Steps that wait behind those in flight, with a mask that makes them large: it is refused when
  // its turn comes, for its size.
  const auto send_large = [](StreamClient& client) {
    v1::StepRequest step = client.NewStep();
    v1::SetAllowedTokens* mask = step.add_masks();
    mask->set_row(kRow);
    mask->set_allowed_tokens(std::string(900 << 10, 'x'));
    return client.Send(step);
  };
  for (int i = 0; i < 2; ++i) {
    v1::StepRequest step = small.NewStep();
    step.set_continue_all(true);
    ASSERT_TRUE(small.Send(step));
    small.CountStep();
  }
  ASSERT_TRUE(send_large(large));
  ASSERT_TRUE(send_large(also_large));
  v1::StepStreamResponse answers[2];
  ASSERT_TRUE(large.Receive(&answers[0]));
  ASSERT_TRUE(also_large.Receive(&answers[1]));
  for (const v1::StepStreamResponse& answer : answers) EXPECT_TRUE(answer.has_error());
  v1::StepStreamResponse response;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(small.Receive(&response));
    EXPECT_TRUE(response.has_step()) << response.ShortDebugString();
  }
  // All goes on once they are answered.
  EXPECT_EQ(Continue(large, kRow, 1).size(), 1u);
  EXPECT_EQ(Continue(also_large, kRow, 1).size(), 1u);
}

}  // namespace
}  // namespace reprise::service
