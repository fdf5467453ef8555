// SPDX-License-Identifier: Apache-2.0
// SetAttentionTree: who may call it, what it answers, and that rows keep their bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kTwoLeaves[] = R"({"schema": "reprise-attention-tree/1",
    "rows": {"leaf": "default"},
    "batch": {"ask": "batch_rows", "below": 2, "then": {"leaf": "one", "leaf_overhead": 0},
              "else": {"leaf": "more"}}})";
constexpr char kOtherRows[] = R"({"schema": "reprise-attention-tree/1",
    "rows": {"leaf": "default", "min_split_tokens": 64}, "batch": {"leaf": "all"}})";

ServedModel::Options Allowing() {
  ServedModel::Options options;
  options.server.allow_attention_trees = true;
  return options;
}

grpc::Status SetTree(ServedModel& served, const std::string& text,
                     v1::SetAttentionTreeResponse* response) {
  const auto stub = v1::StepService::NewStub(served.NewChannel());
  grpc::ClientContext context;
  v1::SetAttentionTreeRequest request;
  request.set_text(text);
  return stub->SetAttentionTree(&context, request, response);
}

v1::AttentionTree DescribeTree(ServedModel& served) {
  const auto stub = v1::StepService::NewStub(served.NewChannel());
  grpc::ClientContext context;
  v1::DescribeResponse response;
  EXPECT_TRUE(stub->Describe(&context, {}, &response).ok());
  return response.attention_tree();
}

TEST(SetAttentionTree, IsForServersThatAllowIt) {
  ServedModel served;
  v1::SetAttentionTreeResponse response;
  const grpc::Status status = SetTree(served, kTwoLeaves, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), HasSubstr("--allow-attention-trees"));
  EXPECT_EQ(DescribeTree(served).version(), 1u);
}

TEST(SetAttentionTree, IsInForceForStepsThatFollow) {
  ServedModel served(Allowing());
  const std::vector<uint32_t> prompt = {5, 9, 2, 17};
  StreamClient client(served.NewChannel());
  std::vector<uint32_t> tokens = {client.StartRow(1, prompt, kMaxContext)};
  v1::StepRequest step = client.NewStep();
  step.set_continue_all(true);
  v1::StepResponse answer = client.Step(step);
  tokens.push_back(answer.rows().token(0));
  EXPECT_EQ(answer.report().attention_tree(), 1u);

  v1::SetAttentionTreeResponse response;
  ASSERT_TRUE(SetTree(served, kTwoLeaves, &response).ok());
  EXPECT_EQ(response.version(), 2u);
  const v1::AttentionTree tree = DescribeTree(served);
  EXPECT_EQ(tree.version(), 2u);
  EXPECT_TRUE(tree.batch_invariant());
  EXPECT_THAT(tree.row_leaves(), ElementsAre("default"));
  EXPECT_THAT(tree.batch_leaves(), ElementsAre("one", "more"));
  EXPECT_TRUE(SetTree(served, tree.text(), &response).ok());

  step = client.NewStep();
  step.set_continue_all(true);
  answer = client.Step(step);
  tokens.push_back(answer.rows().token(0));
  EXPECT_EQ(answer.report().attention_tree(), 3u);
  EXPECT_EQ(answer.report().attention_leaf(), 0u);
  EXPECT_EQ(tokens, served.Reference(prompt, tokens.size()));
}

TEST(SetAttentionTree, RefusesWhatIsNoTreeAndWhatWouldChangeRows) {
  ServedModel served(Allowing());
  v1::SetAttentionTreeResponse response;
  const grpc::Status nonsense = SetTree(served, "{}", &response);
  EXPECT_EQ(nonsense.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(nonsense.error_message(), HasSubstr("attention tree: schema: got nothing"));
  const grpc::Status large = SetTree(served, std::string(100 << 10, ' '), &response);
  EXPECT_EQ(large.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(large.error_message(), HasSubstr("got 102400 bytes, allowed 65536"));
  const grpc::Status other = SetTree(served, kOtherRows, &response);
  EXPECT_EQ(other.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(other.error_message(), HasSubstr("its part about rows is another"));
  EXPECT_EQ(DescribeTree(served).version(), 1u);
}

}  // namespace
}  // namespace reprise::service
