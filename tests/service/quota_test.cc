// SPDX-License-Identifier: Apache-2.0
// What an identity may have over all of its sessions: sessions, rows, blocks. What it gives back it
// may have again, and others are not touched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/service/refusal.h"
#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Quotas : public ::testing::Test {
 protected:
  static ServedModel::Options Options() {
    ServedModel::Options options;
    Identity small{.name = "small", .tokens = {TokenDigest::Of("s")}};
    small.roles.Add(Role::kStep);
    small.roles.Add(Role::kObserve);
    small.quota = {.max_sessions = 2, .max_rows = 2, .max_blocks = 6};
    Identity large = small;
    large.name = "large";
    large.tokens = {TokenDigest::Of("l")};
    large.quota = {};
    options.server.identities = {small, large};
    options.server.session_limits.max_blocks = 9;
    return options;
  }
  grpc::Status Allocate(const StreamClient& client, const std::string& token, uint32_t count) {
    grpc::ClientContext context;
    AddToken(token, &context);
    v1::AllocateRequest request;
    request.set_session(client.session());
    request.set_count(count);
    v1::AllocateResponse response;
    return v1::StepService::NewStub(served_.NewChannel())->Allocate(&context, request, &response);
  }

  ServedModel served_{Options()};
};

TEST_F(Quotas, OfSessions) {
  StreamClient first(served_.NewChannel(), "s");
  StreamClient second(served_.NewChannel(), "s");
  EXPECT_TRUE(first.opened() && second.opened());
  StreamClient third(served_.NewChannel(), "s");
  EXPECT_FALSE(third.opened());
  const grpc::Status status = third.Finish();
  EXPECT_EQ(status.error_code(), kExhausted);
  EXPECT_EQ(status.error_message(), "sessions of small: 2 are open; allowed: 2");
  StreamClient other(served_.NewChannel(), "l");
  EXPECT_TRUE(other.opened());
  EXPECT_TRUE(first.Finish().ok());
  StreamClient next(served_.NewChannel(), "s");
  EXPECT_TRUE(next.opened());
}

TEST_F(Quotas, OfBlocks) {
  StreamClient first(served_.NewChannel(), "s");
  StreamClient second(served_.NewChannel(), "s");
  StreamClient other(served_.NewChannel(), "l");
  const std::vector<uint32_t> blocks = first.Allocate(4);
  EXPECT_EQ(second.Allocate(2).size(), 2u);
  const grpc::Status status = Allocate(second, "s", 1);
  EXPECT_EQ(status.error_code(), kExhausted);
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr("asked for 1 KV blocks"),
                                            HasSubstr("hold 6 of the 6 that they may have")));
  EXPECT_EQ(other.Allocate(7).size(), 7u);
  grpc::ClientContext context;
  AddToken("s", &context);
  v1::FreeRequest request;
  request.set_session(first.session());
  request.add_blocks(blocks[0]);
  v1::FreeResponse response;
  EXPECT_TRUE(first.stub().Free(&context, request, &response).ok());
  EXPECT_TRUE(Allocate(second, "s", 1).ok());
  EXPECT_EQ(Allocate(second, "s", 1).error_code(), kExhausted);
  // What a session held is its identity's to have again once it has ended.
  EXPECT_TRUE(first.Finish().ok());
  EXPECT_TRUE(Allocate(second, "s", 3).ok());
  EXPECT_EQ(Allocate(second, "s", 1).error_code(), kExhausted);
}

TEST_F(Quotas, OfBlocksAreToldBeforeTheyAreMet) {
  const auto told = [&](const std::string& token) {
    grpc::ClientContext context;
    AddToken(token, &context);
    v1::DescribeResponse response;
    EXPECT_TRUE(v1::StepService::NewStub(served_.NewChannel())
                    ->Describe(&context, v1::DescribeRequest(), &response)
                    .ok());
    return response.limits().max_session_blocks();
  };
  EXPECT_EQ(told("s"), 6u);
  EXPECT_EQ(told("l"), 9u);
}

v1::StepRequest AddRows(StreamClient& client, const std::vector<uint32_t>& rows) {
  v1::StepRequest step = client.NewStep();
  for (const uint32_t row : rows) step.add_add()->set_row(row);
  return step;
}

TEST_F(Quotas, OfRows) {
  StreamClient first(served_.NewChannel(), "s");
  StreamClient second(served_.NewChannel(), "s");
  StreamClient other(served_.NewChannel(), "l");
  first.Step(AddRows(first, {1}));
  const v1::StepError error = second.Refused(AddRows(second, {1, 2}));
  EXPECT_EQ(error.code(), kExhausted);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("the step adds 2 rows"),
                                     HasSubstr("would have 3 of the 2 that they may have")));
  second.Step(AddRows(second, {1}));
  other.Step(AddRows(other, {1, 2, 3}));
  EXPECT_EQ(first.Refused(AddRows(first, {2})).code(), kExhausted);
  // One goes, one comes.
  v1::StepRequest swap = AddRows(first, {2});
  swap.add_drop(1);
  first.Step(swap);
  v1::StepRequest drop = second.NewStep();
  drop.add_drop(1);
  second.Step(drop);
  first.Step(AddRows(first, {3}));
  EXPECT_EQ(second.Refused(AddRows(second, {1})).code(), kExhausted);
  EXPECT_TRUE(first.Finish().ok());
  second.Step(AddRows(second, {1, 2}));
}

// A refused step leaves nothing behind: neither rows nor names of blocks.
TEST_F(Quotas, ARefusalChangesNothing) {
  StreamClient client(served_.NewChannel(), "s");
  const std::vector<uint32_t> blocks = client.Allocate(1);
  v1::StepRequest step = AddRows(client, {1, 2, 3});
  step.mutable_add(0)->add_blocks(blocks[0]);
  EXPECT_EQ(client.Refused(step).code(), kExhausted);
  grpc::ClientContext context;
  AddToken("s", &context);
  v1::FreeRequest request;
  request.set_session(client.session());
  request.add_blocks(blocks[0]);
  v1::FreeResponse response;
  EXPECT_TRUE(client.stub().Free(&context, request, &response).ok());
  client.Step(AddRows(client, {1, 2}));
}

}  // namespace
}  // namespace reprise::service
