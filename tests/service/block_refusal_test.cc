// SPDX-License-Identifier: Apache-2.0
// Bad Allocate and Free calls over a socket: all or nothing, with a typed error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/service/refusal.h"
#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class BadBlocks : public ::testing::Test {
 protected:
  BadBlocks() : client_(served_.NewChannel()), other_(served_.NewChannel()) {
    free_blocks_ = served_.engine().pool().free_blocks;
  }

  grpc::Status Allocate(const std::string& session, uint32_t count) {
    grpc::ClientContext context;
    v1::AllocateRequest request;
    request.set_session(session);
    request.set_count(count);
    v1::AllocateResponse response;
    return client_.stub().Allocate(&context, request, &response);
  }

  grpc::Status Free(const std::string& session, const std::vector<uint32_t>& blocks) {
    grpc::ClientContext context;
    v1::FreeRequest request;
    request.set_session(session);
    request.mutable_blocks()->Add(blocks.begin(), blocks.end());
    v1::FreeResponse response;
    return client_.stub().Free(&context, request, &response);
  }

  uint32_t free_now() { return served_.engine().pool().free_blocks; }

  ServedModel served_;
  StreamClient client_;
  StreamClient other_;
  uint32_t free_blocks_ = 0;
};

TEST_F(BadBlocks, AllocateOfZeroIsInvalid) {
  EXPECT_EQ(Allocate(client_.session(), 0).error_code(), kInvalid);
}

TEST_F(BadBlocks, AllocateOfMoreThanIsFreeTakesNothing) {
  const grpc::Status status = Allocate(client_.session(), free_blocks_ + 1);
  EXPECT_EQ(status.error_code(), kExhausted);
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr(absl::StrCat(free_blocks_ + 1)),
                                            HasSubstr(absl::StrCat(free_blocks_))));
  EXPECT_EQ(free_now(), free_blocks_);
  EXPECT_EQ(Allocate(client_.session(), 4294967295u).error_code(), kExhausted);
}

TEST_F(BadBlocks, UnknownSessionIsNotFound) {
  const std::string unknown(16, 'x');
  EXPECT_EQ(Allocate(unknown, 1).error_code(), kNotFound);
  EXPECT_EQ(Free(unknown, {1}).error_code(), kNotFound);
  EXPECT_EQ(Allocate("", 1).error_code(), kInvalid);
  EXPECT_EQ(Free("1", {1}).error_code(), kInvalid);
  EXPECT_EQ(free_now(), free_blocks_);
}

TEST_F(BadBlocks, FreeOfAnothersBlockFreesNothing) {
  const std::vector<uint32_t> own = client_.Allocate(2);
  const std::vector<uint32_t> others = other_.Allocate(1);
  EXPECT_EQ(Free(client_.session(), {own[0], others[0]}).error_code(), kDenied);
  EXPECT_EQ(free_now(), free_blocks_ - 3);
}

TEST_F(BadBlocks, FreeOfABlockTwiceFreesNothing) {
  const std::vector<uint32_t> own = client_.Allocate(2);
  EXPECT_EQ(Free(client_.session(), {own[0], own[1], own[0]}).error_code(), kInvalid);
  EXPECT_EQ(free_now(), free_blocks_ - 2);
}

TEST_F(BadBlocks, FreeOfABlockThatARowUsesFreesNothing) {
  client_.StartRow(kRow, kOwnPrompt, 2 * kBlockSize);
  int in_use = 0;
  for (uint32_t block = 1; block < served_.engine().pool().num_blocks; ++block) {
    const grpc::Status status = Free(client_.session(), {block});
    if (status.error_code() == kPrecondition) ++in_use;
  }
  EXPECT_EQ(in_use, 2);
  EXPECT_EQ(free_now(), free_blocks_ - 2);
  EXPECT_THAT(Continue(client_, kRow, 2), SizeIs(2));
}

}  // namespace
}  // namespace reprise::service
