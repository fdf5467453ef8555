// SPDX-License-Identifier: Apache-2.0
// SetBuckets: who may call it, what it answers, and that clients' rows and metrics go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/service/scrape.h"
#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ServedModel::Options Allowing() {
  ServedModel::Options options;
  options.server.allow_administration = true;
  options.server.metrics_listen = "127.0.0.1:0";
  return options;
}

grpc::Status SetBuckets(ServedModel& served, const std::vector<uint32_t>& decode,
                        const std::vector<uint32_t>& mixed, v1::SetBucketsResponse* response) {
  const auto stub = v1::StepService::NewStub(served.NewChannel());
  grpc::ClientContext context;
  v1::SetBucketsRequest request;
  request.mutable_decode()->Assign(decode.begin(), decode.end());
  request.mutable_mixed()->Assign(mixed.begin(), mixed.end());
  return stub->SetBuckets(&context, request, response);
}

v1::DescribeResponse Describe(ServedModel& served) {
  const auto stub = v1::StepService::NewStub(served.NewChannel());
  grpc::ClientContext context;
  v1::DescribeResponse response;
  EXPECT_TRUE(stub->Describe(&context, {}, &response).ok());
  return response;
}

std::vector<std::string> NamesOf(const google::protobuf::RepeatedPtrField<v1::Bucket>& buckets) {
  std::vector<std::string> names;
  for (const v1::Bucket& bucket : buckets) names.push_back(bucket.name());
  return names;
}

TEST(SetBuckets, IsForAdministrators) {
  ServedModel served;
  v1::SetBucketsResponse response;
  const grpc::Status status = SetBuckets(served, {3}, {}, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), HasSubstr("buckets: this server has no administrators"));
  EXPECT_EQ(Describe(served).buckets_version(), 1u);
}

TEST(SetBuckets, IsInForceForStepsThatFollow) {
  ServedModel served(Allowing());
  const std::vector<uint32_t> prompt = {5, 9, 2, 17};
  StreamClient client(served.NewChannel());
  std::vector<uint32_t> tokens = {client.StartRow(1, prompt, kMaxContext)};
  const uint32_t mixed = served.engine().info().limits.max_prompt_tokens;

  v1::SetBucketsResponse response;
  ASSERT_TRUE(SetBuckets(served, {3, 2}, {mixed}, &response).ok());
  EXPECT_EQ(response.version(), 2u);
  EXPECT_GT(response.capture_ns(), 0u);
  EXPECT_THAT(NamesOf(response.buckets()),
              ElementsAre("decode/2", "decode/3", "mixed/" + std::to_string(mixed)));
  const v1::DescribeResponse described = Describe(served);
  EXPECT_EQ(described.buckets_version(), 2u);
  EXPECT_EQ(NamesOf(described.buckets()), NamesOf(response.buckets()));

  for (int i = 0; i < 2; ++i) {
    v1::StepRequest step = client.NewStep();
    step.set_continue_all(true);
    const v1::StepResponse answer = client.Step(step);
    tokens.push_back(answer.rows().token(0));
    EXPECT_EQ(answer.report().graph(), "decode/2");
  }
  EXPECT_EQ(tokens, served.Reference(prompt, tokens.size()));

  const Scrape now(served.server().metrics_address());
  EXPECT_EQ(now["reprise_steps_total{graph=\"decode/2\"}"], 2);
  EXPECT_EQ(now["reprise_steps_total{graph=\"other\"}"], 0);
  EXPECT_EQ(now["reprise_bucket_changes_total"], 1);
  EXPECT_EQ(now["reprise_graphs"], 3);
}

TEST(SetBuckets, RefusesWhatWouldChangeTheLimits) {
  ServedModel served(Allowing());
  v1::SetBucketsResponse response;
  const grpc::Status none = SetBuckets(served, {}, {}, &response);
  EXPECT_EQ(none.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(none.error_message(), HasSubstr("got neither decode nor mixed ones"));
  const grpc::Status many = SetBuckets(served, std::vector<uint32_t>(257, 1), {}, &response);
  EXPECT_EQ(many.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(many.error_message(), HasSubstr("decode: got 257 buckets, allowed: at most 256"));
  const grpc::Status large = SetBuckets(served, {UINT32_MAX}, {}, &response);
  EXPECT_EQ(large.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(large.error_message(), HasSubstr("decode bucket is 4294967295; allowed: 1 to "));
  const grpc::Status narrow = SetBuckets(served, {}, {1}, &response);
  EXPECT_EQ(narrow.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(narrow.error_message(), HasSubstr("the largest mixed bucket is 1; allowed: "));
  EXPECT_EQ(Describe(served).buckets_version(), 1u);
}

}  // namespace
}  // namespace reprise::service
