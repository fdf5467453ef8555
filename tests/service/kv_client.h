// SPDX-License-Identifier: Apache-2.0
// Calls about KV blocks as a client makes them, for the tests of tests/service.
#ifndef REPRISE_TESTS_SERVICE_KV_CLIENT_H_
#define REPRISE_TESTS_SERVICE_KV_CLIENT_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
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

}  // namespace reprise::service

#endif  // REPRISE_TESTS_SERVICE_KV_CLIENT_H_
