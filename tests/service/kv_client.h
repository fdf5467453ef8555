// SPDX-License-Identifier: Apache-2.0
// Calls about KV blocks as a client makes them, for the tests of tests/service.
#ifndef REPRISE_TESTS_SERVICE_KV_CLIENT_H_
#define REPRISE_TESTS_SERVICE_KV_CLIENT_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/service/served_model.h"

namespace reprise::service {

inline v1::DescribeResponse DescribeOf(StreamClient& client) {
  grpc::ClientContext context;
  v1::DescribeResponse response;
  EXPECT_TRUE(client.stub().Describe(&context, {}, &response).ok());
  return response;
}

// All layers of each block.
inline grpc::Status Read(StreamClient& client, const std::vector<uint32_t>& blocks,
                         v1::ReadBlocksResponse* response) {
  grpc::ClientContext context;
  v1::ReadBlocksRequest request;
  request.set_session(client.session());
  for (const uint32_t block : blocks) request.add_ranges()->set_block(block);
  return client.stub().ReadBlocks(&context, request, response);
}

inline grpc::Status Write(StreamClient& client, v1::WriteBlocksRequest request) {
  grpc::ClientContext context;
  v1::WriteBlocksResponse response;
  request.set_session(client.session());
  return client.stub().WriteBlocks(&context, request, &response);
}

// What was read, to be written into other blocks; parts without tokens are left out.
inline v1::WriteBlocksRequest WriteOf(const v1::ReadBlocksResponse& read,
                                      const std::vector<uint32_t>& blocks) {
  v1::WriteBlocksRequest request;
  *request.mutable_layout() = read.layout();
  for (int i = 0; i < read.parts_size(); ++i) {
    if (read.parts(i).num_tokens() == 0) continue;
    *request.add_parts() = read.parts(i);
    request.mutable_parts()->rbegin()->set_block(blocks[static_cast<size_t>(i)]);
  }
  return request;
}

inline grpc::Status SwapOut(StreamClient& client, const std::vector<uint32_t>& blocks,
                            v1::SwapOutResponse* response) {
  grpc::ClientContext context;
  v1::SwapOutRequest request;
  request.set_session(client.session());
  request.mutable_blocks()->Assign(blocks.begin(), blocks.end());
  return client.stub().SwapOut(&context, request, response);
}

inline grpc::Status SwapIn(StreamClient& client, const std::vector<uint32_t>& swapped,
                           v1::SwapInResponse* response) {
  grpc::ClientContext context;
  v1::SwapInRequest request;
  request.set_session(client.session());
  request.mutable_swapped()->Assign(swapped.begin(), swapped.end());
  return client.stub().SwapIn(&context, request, response);
}

inline grpc::Status FreeSwapped(StreamClient& client, const std::vector<uint32_t>& swapped) {
  grpc::ClientContext context;
  v1::FreeSwappedRequest request;
  v1::FreeSwappedResponse response;
  request.set_session(client.session());
  request.mutable_swapped()->Assign(swapped.begin(), swapped.end());
  return client.stub().FreeSwapped(&context, request, &response);
}

inline grpc::Status Share(StreamClient& client, const std::string& name,
                          const std::vector<uint32_t>& blocks) {
  grpc::ClientContext context;
  v1::ShareBlocksRequest request;
  v1::ShareBlocksResponse response;
  request.set_session(client.session());
  request.set_name(name);
  request.mutable_blocks()->Assign(blocks.begin(), blocks.end());
  return client.stub().ShareBlocks(&context, request, &response);
}

inline grpc::Status Adopt(StreamClient& client, const std::string& name,
                          std::vector<uint32_t>* blocks) {
  grpc::ClientContext context;
  v1::AdoptBlocksRequest request;
  v1::AdoptBlocksResponse response;
  request.set_session(client.session());
  request.set_name(name);
  const grpc::Status status = client.stub().AdoptBlocks(&context, request, &response);
  blocks->assign(response.blocks().begin(), response.blocks().end());
  return status;
}

inline grpc::Status Release(StreamClient& client, const std::string& name) {
  grpc::ClientContext context;
  v1::ReleaseBlocksRequest request;
  v1::ReleaseBlocksResponse response;
  request.set_session(client.session());
  request.set_name(name);
  return client.stub().ReleaseBlocks(&context, request, &response);
}

// Runs the tokens as a row's over blocks of its own, and drops the row: the blocks, which hold
// them.
inline std::vector<uint32_t> Filled(StreamClient& client, const std::vector<uint32_t>& tokens) {
  const auto count = (static_cast<uint32_t>(tokens.size()) + kBlockSize - 1) / kBlockSize;
  std::vector<uint32_t> blocks = client.Allocate(count);
  v1::StepRequest step = client.NewStep();
  v1::AddRow* add = step.add_add();
  add->set_row(kRow);
  add->mutable_blocks()->Assign(blocks.begin(), blocks.end());
  v1::Chunk* chunk = step.add_chunks();
  chunk->set_row(kRow);
  chunk->mutable_tokens()->Assign(tokens.begin(), tokens.end());
  client.Step(step);
  v1::StepRequest drop = client.NewStep();
  drop.add_drop(kRow);
  client.Step(drop);
  return blocks;
}

// `token`: of a bearer; "": none.
inline grpc::Status Export(StreamClient& client, const std::vector<uint32_t>& blocks,
                           std::vector<std::string>* tickets, const std::string& token = "") {
  grpc::ClientContext context;
  AddToken(token, &context);
  v1::ExportBlocksRequest request;
  v1::ExportBlocksResponse response;
  request.set_session(client.session());
  request.mutable_blocks()->Assign(blocks.begin(), blocks.end());
  const grpc::Status status = client.stub().ExportBlocks(&context, request, &response);
  tickets->assign(response.tickets().begin(), response.tickets().end());
  return status;
}

inline grpc::Status Import(StreamClient& client, const std::vector<uint32_t>& blocks,
                           const std::vector<std::string>& tickets,
                           std::vector<uint32_t>* num_tokens, const std::string& token = "") {
  grpc::ClientContext context;
  AddToken(token, &context);
  v1::ImportBlocksRequest request;
  v1::ImportBlocksResponse response;
  request.set_session(client.session());
  request.mutable_blocks()->Assign(blocks.begin(), blocks.end());
  for (const std::string& ticket : tickets) request.add_tickets(ticket);
  const grpc::Status status = client.stub().ImportBlocks(&context, request, &response);
  num_tokens->assign(response.num_tokens().begin(), response.num_tokens().end());
  return status;
}

inline grpc::Status FreeExported(StreamClient& client, const std::vector<std::string>& tickets) {
  grpc::ClientContext context;
  v1::FreeExportedRequest request;
  v1::FreeExportedResponse response;
  request.set_session(client.session());
  for (const std::string& ticket : tickets) request.add_tickets(ticket);
  return client.stub().FreeExported(&context, request, &response);
}

// A row over blocks that hold its context, which goes on with its last sampled token.
inline uint32_t GoOn(StreamClient& client, uint32_t row, const std::vector<uint32_t>& blocks,
                     uint32_t context_length, uint32_t last_token) {
  v1::StepRequest step = client.NewStep();
  v1::AddRow* add = step.add_add();
  add->set_row(row);
  add->mutable_blocks()->Assign(blocks.begin(), blocks.end());
  add->set_context_length(context_length);
  v1::Chunk* chunk = step.add_chunks();
  chunk->set_row(row);
  chunk->add_tokens(last_token);
  chunk->set_sample(true);
  return client.Step(step).rows().token(0);
}

}  // namespace reprise::service

#endif  // REPRISE_TESTS_SERVICE_KV_CLIENT_H_
