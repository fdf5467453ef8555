// SPDX-License-Identifier: Apache-2.0
// Bad calls about KV blocks over a socket: what does not fit, is damaged or is another's is refused
// with a typed error, nothing has changed, and rows beside it do not notice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "service/kv/kv_wire.h"
#include "tests/service/kv_client.h"
#include "tests/service/refusal.h"
#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

using ::testing::HasSubstr;

ServedModel::Options WithSwapSpace() {
  ServedModel::Options options;
  options.swap_bytes = 64 << 10;
  return options;
}

class BadKvCalls : public ::testing::Test {
 protected:
  BadKvCalls()
      : served_(WithSwapSpace()), client_(served_.NewChannel()), other_(served_.NewChannel()) {
    client_.StartRow(kRow, kOwnPrompt, kMaxContext);
    others_ = other_.Allocate(1);
    own_ = client_.Allocate(2);
    for (uint32_t block = 1; source_ == 0; ++block) {
      v1::ReadBlocksResponse read;
      if (Read(client_, {block}, &read).ok() && read.parts(0).num_tokens() == kBlockSize) {
        source_ = block;
        *good_.mutable_layout() = read.layout();
        *good_.mutable_parts() = read.parts();
        good_.mutable_parts(0)->set_block(own_[0]);
      }
    }
  }
  // The row goes on as if nothing had been asked.
  ~BadKvCalls() override {
    std::vector<uint32_t> tokens = Continue(client_, kRow, 3);
    const std::vector<uint32_t> want = served_.Reference(kOwnPrompt, 4);
    EXPECT_EQ(tokens, std::vector<uint32_t>(want.begin() + 1, want.end()));
  }

  void ExpectRefused(const v1::WriteBlocksRequest& request, grpc::StatusCode code,
                     const std::string& says) {
    const grpc::Status status = Write(client_, request);
    EXPECT_EQ(status.error_code(), code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(says));
  }
  // With the checksum that belongs to what was changed.
  v1::WriteBlocksRequest Changed(const std::function<void(v1::KvPart&)>& change) {
    v1::WriteBlocksRequest request = good_;
    change(*request.mutable_parts(0));
    request.mutable_parts(0)->set_crc32(Crc32Of(request.parts(0)));
    return request;
  }

  ServedModel served_;
  StreamClient client_, other_;
  std::vector<uint32_t> own_, others_;
  uint32_t source_ = 0;  // a block of the row's
  v1::WriteBlocksRequest good_;
};

TEST_F(BadKvCalls, WhatIsGoodIsTaken) {
  const grpc::Status status = Write(client_, good_);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(BadKvCalls, DamagedContentsAreRefused) {
  for (const size_t at : {size_t{0}, good_.parts(0).contents().size() - 1}) {
    v1::WriteBlocksRequest request = good_;
    (*request.mutable_parts(0)->mutable_contents())[at] ^= 1;
    ExpectRefused(request, kDamaged, "crc32: got");
  }
  v1::WriteBlocksRequest request = good_;
  request.mutable_parts(0)->set_num_tokens(3);  // the checksum covers it
  ExpectRefused(request, kDamaged, "crc32: got");
  request = good_;
  request.mutable_parts(0)->clear_crc32();
  ExpectRefused(request, kDamaged, "crc32: got 0");
}

TEST_F(BadKvCalls, AnotherLayoutIsRefusedByName) {
  const auto refused = [this](const std::function<void(v1::KvLayout&)>& change,
                              const std::string& field) {
    v1::WriteBlocksRequest request = good_;
    change(*request.mutable_layout());
    ExpectRefused(request, kPrecondition, "layout." + field + ": got ");
  };
  refused([](v1::KvLayout& layout) { layout.set_version(2); }, "version");
  refused([](v1::KvLayout& layout) { layout.set_num_layers(3); }, "num_layers");
  refused([](v1::KvLayout& layout) { layout.set_num_kv_heads(1); }, "num_kv_heads");
  refused([](v1::KvLayout& layout) { layout.set_head_dim(0); }, "head_dim");
  refused([](v1::KvLayout& layout) { layout.set_block_size(16); }, "block_size");
  refused([](v1::KvLayout& layout) { layout.set_dtype("fp8_e4m3"); }, "dtype");
  refused([](v1::KvLayout& layout) { layout.set_dtype(std::string(5000, 'x')); }, "dtype");
  refused([](v1::KvLayout& layout) { layout.mutable_model()->back() ^= 1; }, "model");
  v1::WriteBlocksRequest request = good_;
  request.clear_layout();
  ExpectRefused(request, kPrecondition, "layout.version: got 0, allowed 1");
}

TEST_F(BadKvCalls, AnotherModelsContentsAreRefused) {
  ServedModel::Options options;
  options.model_seed = 2;
  ServedModel strange(options);
  StreamClient client(strange.NewChannel());
  v1::ReadBlocksResponse read;
  ASSERT_TRUE(Read(client, client.Allocate(1), &read).ok());
  v1::WriteBlocksRequest request = good_;
  *request.mutable_layout() = read.layout();
  ExpectRefused(request, kPrecondition, "layout.model: got another model");
}

TEST_F(BadKvCalls, BlocksOfOthersStayOutOfReach) {
  v1::ReadBlocksResponse read;
  EXPECT_EQ(Read(client_, others_, &read).error_code(), kDenied);
  EXPECT_EQ(Read(client_, {own_[0], others_[0]}, &read).error_code(), kDenied);
  EXPECT_EQ(Read(other_, {source_}, &read).error_code(), kDenied);
  EXPECT_EQ(Read(client_, {0}, &read).error_code(), kRange);
  EXPECT_EQ(Read(client_, {4294967295u}, &read).error_code(), kRange);
  EXPECT_EQ(read.parts_size(), 0);
  ExpectRefused(Changed([this](v1::KvPart& part) { part.set_block(others_[0]); }), kDenied,
                "another session holds it");
  v1::SwapOutResponse out;
  EXPECT_EQ(SwapOut(client_, others_, &out).error_code(), kDenied);
  ASSERT_TRUE(SwapOut(other_, others_, &out).ok());
  v1::SwapInResponse in;
  EXPECT_EQ(SwapIn(client_, {out.swapped(0)}, &in).error_code(), kDenied);
  EXPECT_EQ(SwapIn(client_, {4294967295u}, &in).error_code(), kRange);
}

TEST_F(BadKvCalls, BlocksOfRowsAreNotWrittenAndNotSwapped) {
  ExpectRefused(Changed([this](v1::KvPart& part) { part.set_block(source_); }), kPrecondition,
                "is in the table of 1 resident row(s)");
  v1::SwapOutResponse out;
  EXPECT_EQ(SwapOut(client_, {source_}, &out).error_code(), kPrecondition);
}

TEST_F(BadKvCalls, NumbersThatDoNotFitAreRefused) {
  const auto set = [](uint32_t first, uint32_t layers, uint32_t tokens) {
    return [=](v1::KvPart& part) {
      part.set_first_layer(first);
      part.set_num_layers(layers);
      part.set_num_tokens(tokens);
    };
  };
  ExpectRefused(Changed(set(0, 2, 3)), kInvalid, "contents: got");
  ExpectRefused(Changed(set(0, 1, 4)), kInvalid, "contents: got");
  ExpectRefused(Changed(set(0, 3, 4)), kRange, "3 layers from layer 0 on");
  ExpectRefused(Changed(set(2, 2, 4)), kRange, "2 layers from layer 2 on");
  ExpectRefused(Changed(set(0, ~0u, ~0u)), kRange, "layers from layer 0 on");
  ExpectRefused(Changed(set(0, 2, 5)), kRange, "5 tokens; allowed: 1 to 4");
  ExpectRefused(Changed(set(0, 2, ~0u)), kRange, "tokens; allowed: 1 to 4");
  v1::WriteBlocksRequest none = good_;
  none.clear_parts();
  ExpectRefused(none, kRange, "names 0 parts of KV blocks; allowed: 1 to 256");
  v1::WriteBlocksRequest many = good_;
  for (int i = 0; i < 256; ++i) *many.add_parts() = good_.parts(0);
  ExpectRefused(many, kRange, "parts: got more than 256 entries");
}

// One bad part: none of them is written.
TEST_F(BadKvCalls, AllOrNothing) {
  v1::WriteBlocksRequest request = good_;
  *request.add_parts() = good_.parts(0);
  request.mutable_parts(1)->set_block(others_[0]);
  ExpectRefused(request, kDenied, "another session");
  v1::ReadBlocksResponse read;
  ASSERT_TRUE(Read(client_, {own_[0]}, &read).ok());
  EXPECT_EQ(read.parts(0).num_tokens(), 0u);
}

TEST_F(BadKvCalls, SessionsAndBytesThatAreNoneAreRefused) {
  v1::ReadBlocksRequest request;
  request.add_ranges()->set_block(own_[0]);
  const auto call = [&](const std::string& session) {
    grpc::ClientContext context;
    v1::ReadBlocksResponse response;
    request.set_session(session);
    return client_.stub().ReadBlocks(&context, request, &response).error_code();
  };
  EXPECT_EQ(call(std::string(16, 'x')), kNotFound);
  EXPECT_EQ(call(""), kInvalid);
  EXPECT_EQ(call("short"), kInvalid);
  for (const char* method : {"ReadBlocks", "WriteBlocks", "SwapOut", "SwapIn", "FreeSwapped"}) {
    SCOPED_TRACE(method);
    const auto channel = served_.NewChannel();
    EXPECT_EQ(CallWithBytes(channel, method, "\xff\xff\xff garbage").error_code(), kInvalid);
    EXPECT_EQ(CallWithBytes(channel, method, "").error_code(), kInvalid);
  }
}

TEST_F(BadKvCalls, AServerThatDoesNotKnowItsModelMovesNothing) {
  ServedModel::Options options;
  options.knows_model = false;
  ServedModel served(options);
  StreamClient client(served.NewChannel());
  EXPECT_EQ(DescribeOf(client).kv_layout().model(), "");
  v1::ReadBlocksResponse read;
  const grpc::Status status = Read(client, client.Allocate(1), &read);
  EXPECT_EQ(status.error_code(), kPrecondition);
  EXPECT_THAT(status.error_message(), HasSubstr("was not told which model it serves"));
}

// Clients that ask for much and go: what they held is free, and others' rows are what they were.
TEST_F(BadKvCalls, ClientsThatVanishLeaveNothing) {
  std::vector<std::thread> clients;
  for (int i = 0; i < 6; ++i) {
    clients.emplace_back([this] {
      const auto channel = served_.NewChannel();
      StreamClient client(channel);
      const std::vector<uint32_t> blocks = client.Allocate(2);
      for (int call = 0; call < 20; ++call) {
        grpc::ClientContext context;
        if (call % 2 == 1)
          context.set_deadline(std::chrono::system_clock::now() + std::chrono::microseconds(300));
        v1::ReadBlocksRequest request;
        request.set_session(client.session());
        for (const uint32_t block : blocks) request.add_ranges()->set_block(block);
        v1::ReadBlocksResponse response;
        client.stub().ReadBlocks(&context, request, &response);
      }
      client.Cancel();
    });
  }
  for (std::thread& client : clients) client.join();
  const uint32_t free_blocks = served_.engine().pool().free_blocks;
  EXPECT_TRUE(Eventually([&] {
    return served_.engine().pool().free_blocks ==
           served_.engine().pool().num_blocks - 1 - kMaxContext / kBlockSize - 3;
  })) << free_blocks;
}

}  // namespace
}  // namespace reprise::service
