// SPDX-License-Identifier: Apache-2.0
// Blocks that sessions of one identity share: rows over them say what they would have said, nobody
// writes them, no other identity reads them, and nobody who comes later finds what was in them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/service/kv_client.h"
#include "tests/service/refusal.h"
#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

// Two full blocks, and what follows them.
const std::vector<uint32_t> kSystem = {5, 80, 33, 12, 96, 7, 41, 2};
const std::vector<uint32_t> kQuestion = {9, 61, 17};

std::vector<uint32_t> Whole() {
  std::vector<uint32_t> prompt = kSystem;
  prompt.insert(prompt.end(), kQuestion.begin(), kQuestion.end());
  return prompt;
}

// A session, and the bearer token that its calls carry.
struct Client {
  Client(const ServedModel& served, std::string of = "")
      : token(std::move(of)), stream(served.NewChannel(), token) {}

  template <typename Request, typename Response>
  grpc::Status Call(grpc::Status (v1::StepService::Stub::*method)(grpc::ClientContext*,
                                                                  const Request&, Response*),
                    Request request, Response* response) {
    grpc::ClientContext context;
    AddToken(token, &context);
    request.set_session(stream.session());
    return (stream.stub().*method)(&context, request, response);
  }
  grpc::Status Share(const std::string& name, const std::vector<uint32_t>& blocks) {
    v1::ShareBlocksRequest request;
    request.set_name(name);
    request.mutable_blocks()->Assign(blocks.begin(), blocks.end());
    v1::ShareBlocksResponse response;
    return Call(&v1::StepService::Stub::ShareBlocks, request, &response);
  }
  grpc::Status Adopt(const std::string& name, std::vector<uint32_t>* blocks = nullptr) {
    v1::AdoptBlocksRequest request;
    request.set_name(name);
    v1::AdoptBlocksResponse response;
    const grpc::Status status = Call(&v1::StepService::Stub::AdoptBlocks, request, &response);
    if (blocks != nullptr) blocks->assign(response.blocks().begin(), response.blocks().end());
    return status;
  }
  grpc::Status Release(const std::string& name) {
    v1::ReleaseBlocksRequest request;
    request.set_name(name);
    v1::ReleaseBlocksResponse response;
    return Call(&v1::StepService::Stub::ReleaseBlocks, request, &response);
  }
  std::vector<uint32_t> Allocate(uint32_t count) {
    v1::AllocateRequest request;
    request.set_count(count);
    v1::AllocateResponse response;
    const grpc::Status status = Call(&v1::StepService::Stub::Allocate, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return {response.blocks().begin(), response.blocks().end()};
  }
  // Two blocks full of kSystem, of no row.
  std::vector<uint32_t> Fill() {
    std::vector<uint32_t> blocks = Allocate(2);
    v1::StepRequest step = stream.NewStep();
    v1::AddRow* add = step.add_add();
    add->set_row(kRow);
    add->mutable_blocks()->Assign(blocks.begin(), blocks.end());
    v1::Chunk* chunk = step.add_chunks();
    chunk->set_row(kRow);
    chunk->mutable_tokens()->Assign(kSystem.begin(), kSystem.end());
    stream.Step(step);
    v1::StepRequest drop = stream.NewStep();
    drop.add_drop(kRow);
    stream.Step(drop);
    return blocks;
  }
  // A step that adds a row over `shared`, with room behind it, and runs kQuestion.
  v1::StepRequest Ask(const std::vector<uint32_t>& shared) {
    std::vector<uint32_t> table = shared;
    for (const uint32_t block : Allocate(3)) table.push_back(block);
    v1::StepRequest step = stream.NewStep();
    v1::AddRow* add = step.add_add();
    add->set_row(kRow);
    add->mutable_blocks()->Assign(table.begin(), table.end());
    add->set_context_length(static_cast<uint32_t>(kSystem.size()));
    v1::Chunk* chunk = step.add_chunks();
    chunk->set_row(kRow);
    chunk->mutable_tokens()->Assign(kQuestion.begin(), kQuestion.end());
    chunk->set_sample(true);
    return step;
  }
  std::vector<uint32_t> TokensOf(const v1::StepRequest& first) {
    std::vector<uint32_t> tokens = {stream.Step(first).rows().token(0)};
    for (const uint32_t token : Continue(stream, kRow, 4)) tokens.push_back(token);
    return tokens;
  }

  const std::string token;
  StreamClient stream;
};

ServedModel::Options TwoIdentities() {
  ServedModel::Options options;
  for (const char* name : {"chat", "batch"}) {
    Identity identity{.name = name, .tokens = {TokenDigest::Of(name)}};
    identity.roles.Add(Role::kStep);
    options.server.identities.push_back(identity);
  }
  return options;
}

TEST(SharedBlockCalls, RowsOverThemSayWhatTheyWouldHaveSaid) {
  ServedModel served(TwoIdentities());
  Client first(served, "chat"), second(served, "chat");
  const std::vector<uint32_t> blocks = first.Fill();
  const grpc::Status status = first.Share("system", blocks);
  ASSERT_TRUE(status.ok()) << status.error_message();
  std::vector<uint32_t> adopted;
  ASSERT_TRUE(second.Adopt("system", &adopted).ok());
  EXPECT_EQ(adopted, blocks);
  const std::vector<uint32_t> expected = served.Reference(Whole(), 5);
  EXPECT_EQ(second.TokensOf(second.Ask(adopted)), expected);
  EXPECT_EQ(first.TokensOf(first.Ask(blocks)), expected);
  // They outlive the session that shared them.
  EXPECT_TRUE(first.stream.Finish().ok());
  Client third(served, "chat");
  ASSERT_TRUE(third.Adopt("system", &adopted).ok());
  EXPECT_EQ(third.TokensOf(third.Ask(adopted)), expected);
}

TEST(SharedBlockCalls, NobodyWritesThem) {
  ServedModel served;
  Client first(served), second(served);
  const std::vector<uint32_t> blocks = first.Fill();
  ASSERT_TRUE(first.Share("system", blocks).ok());
  ASSERT_TRUE(second.Adopt("system").ok());
  for (Client* client : {&first, &second}) {
    v1::StepRequest step = client->Ask(blocks);
    step.mutable_add(0)->set_context_length(6);  // goes on within a shared block
    const v1::StepError error = client->stream.Refused(step);
    EXPECT_EQ(error.code(), static_cast<int>(kPrecondition));
    EXPECT_THAT(error.message(), HasSubstr("which sessions share"));
    v1::StepRequest copy = client->stream.NewStep();
    copy.add_copy_blocks(blocks[0]);
    copy.add_copy_blocks(blocks[1]);
    EXPECT_THAT(client->stream.Refused(copy).message(), HasSubstr("is shared"));
    v1::FreeRequest free;
    free.add_blocks(blocks[0]);
    v1::FreeResponse freed;
    EXPECT_EQ(client->Call(&v1::StepService::Stub::Free, free, &freed).error_code(), kPrecondition);
    v1::ReadBlocksResponse read;
    ASSERT_TRUE(Read(client->stream, blocks, &read).ok());
    EXPECT_EQ(Write(client->stream, WriteOf(read, blocks)).error_code(), kPrecondition);
  }
  EXPECT_EQ(second.TokensOf(second.Ask(blocks)), served.Reference(Whole(), 5));
}

TEST(SharedBlockCalls, AnotherIdentityCannotTellThatTheyExist) {
  ServedModel served(TwoIdentities());
  Client mine(served, "chat"), other(served, "batch");
  const grpc::Status before = other.Adopt("system");
  EXPECT_EQ(before.error_code(), kNotFound);
  const std::vector<uint32_t> blocks = mine.Fill();
  ASSERT_TRUE(mine.Share("system", blocks).ok());
  const grpc::Status after = other.Adopt("system");
  EXPECT_EQ(after.error_code(), kNotFound);
  EXPECT_EQ(after.error_message(), before.error_message());
  EXPECT_EQ(other.Release("system").error_message(), before.error_message());
  // Nor by the blocks' numbers, which stand for nothing.
  EXPECT_EQ(other.stream.Refused(other.Ask(blocks)).code(), static_cast<int>(kDenied));
  v1::ReadBlocksRequest request;
  request.add_ranges()->set_block(blocks[0]);
  v1::ReadBlocksResponse response;
  EXPECT_EQ(other.Call(&v1::StepService::Stub::ReadBlocks, request, &response).error_code(),
            kDenied);
  // Its own go by the same name.
  const std::vector<uint32_t> own = other.Fill();
  EXPECT_TRUE(other.Share("system", own).ok());
  std::vector<uint32_t> adopted;
  ASSERT_TRUE(other.Adopt("system", &adopted).ok());
  EXPECT_THAT(adopted, ElementsAreArray(own));
}

TEST(SharedBlockCalls, AreClearedBeforeAnyoneElseReadsThem) {
  ServedModel served;
  const uint32_t free_blocks = served.engine().pool().free_blocks;
  std::vector<uint32_t> blocks;
  {
    Client first(served), second(served);
    blocks = first.Fill();
    ASSERT_TRUE(first.Share("system", blocks).ok());
    ASSERT_TRUE(second.Adopt("system").ok());
    v1::StepResponse ran = second.stream.Step(second.Ask(blocks));
    EXPECT_EQ(second.Release("system").error_code(), kPrecondition);
    ASSERT_TRUE(first.Release("system").ok());
    EXPECT_EQ(first.Release("system").error_code(), kNotFound);
    EXPECT_TRUE(second.stream.Finish().ok());
  }
  ASSERT_TRUE(Eventually([&] { return served.engine().pool().free_blocks == free_blocks; }));
  Client next(served);
  EXPECT_EQ(next.Adopt("system").error_code(), kNotFound);
  const std::vector<uint32_t> taken = next.Allocate(5);
  for (const uint32_t block : blocks) EXPECT_THAT(taken, ::testing::Contains(block));
  v1::ReadBlocksResponse read;
  ASSERT_TRUE(Read(next.stream, taken, &read).ok());
  for (const v1::KvPart& part : read.parts()) EXPECT_EQ(part.num_tokens(), 0u);
  EXPECT_THAT(next.stream.Refused(next.Ask({taken[0], taken[1]})).message(),
              HasSubstr("this session has written 0 there"));
}

TEST(SharedBlockCalls, RefusalsSayWhatIsAllowed) {
  ServedModel served;
  Client client(served);
  const std::vector<uint32_t> blocks = client.Fill();
  const std::vector<uint32_t> empty = client.Allocate(1);
  EXPECT_THAT(client.Share("", blocks).error_message(), HasSubstr("got 0 bytes, allowed 1 to 64"));
  EXPECT_THAT(client.Share("p", {}).error_message(), HasSubstr("blocks: got 0, allowed 1 to "));
  EXPECT_THAT(client.Share("p", {blocks[0], empty[0]}).error_message(),
              AllOf(HasSubstr("written 0 of its 4 tokens"), HasSubstr("blocks that are full")));
  ASSERT_TRUE(client.Share("p", {blocks[0]}).ok());
  EXPECT_EQ(client.Share("p", {blocks[1]}).error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_THAT(client.Share("q", blocks).error_message(), HasSubstr("is shared"));
}

}  // namespace
}  // namespace reprise::service
