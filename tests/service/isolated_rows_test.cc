// SPDX-License-Identifier: Apache-2.0
// Requests whose bad rows are refused alone, over a socket. What is whose fault is tested in
// tests/engine/isolated_rows_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/service/refusal.h"
#include "tests/service/scrape.h"
#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kUnknownRow = 77;

TEST(IsolatedRows, OthersRunWithTheirTokensAndTheBadOneIsNamed) {
  ServedModel::Options options;
  options.server.metrics_listen = "127.0.0.1:0";
  ServedModel served(options);
  StreamClient client(served.NewChannel());
  std::vector<uint32_t> tokens = {client.StartRow(kRow, kOwnPrompt, 32)};
  for (int i = 0; i < 5; ++i) {
    v1::StepRequest step = client.NewStep();
    step.set_continue_all(true);
    step.add_chunks()->set_row(kUnknownRow);
    EXPECT_EQ(client.Refused(step).code(), static_cast<int>(kNotFound));
    step.set_isolate_bad_rows(true);
    const v1::StepResponse response = client.Step(step);
    ASSERT_EQ(response.rows().token_size(), 1);
    tokens.push_back(response.rows().token(0));
    ASSERT_EQ(response.row_errors_size(), 1);
    EXPECT_EQ(response.row_errors(0).row(), kUnknownRow);
    EXPECT_EQ(response.row_errors(0).code(), static_cast<int>(kNotFound));
    EXPECT_THAT(response.row_errors(0).message(), HasSubstr("row 77 is not resident"));
  }
  EXPECT_EQ(tokens, served.Reference(kOwnPrompt, 6));
  EXPECT_EQ(Scrape(served.server().metrics_address())["reprise_rows_refused_total"], 5);
  // Nothing of it is left for a step without bad rows.
  v1::StepRequest step = client.NewStep();
  step.set_continue_all(true);
  EXPECT_EQ(client.Step(step).row_errors_size(), 0);
}

TEST(IsolatedRows, OfAUnaryStepToo) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kOwnPrompt, 32);
  v1::StepRequest step = client.NewStep();
  step.add_continue_rows(kRow);
  step.add_continue_rows(kUnknownRow);
  step.set_isolate_bad_rows(true);
  grpc::ClientContext context;
  v1::StepResponse response;
  const grpc::Status status = client.stub().Step(&context, step, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.rows().row_size(), 1);
  ASSERT_EQ(response.row_errors_size(), 1);
  EXPECT_EQ(response.row_errors(0).row(), kUnknownRow);
}

// What does not convert is no row's.
TEST(IsolatedRows, AMalformedEntryRefusesTheWholeRequest) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kOwnPrompt, 32);
  v1::StepRequest step = client.NewStep();
  step.set_isolate_bad_rows(true);
  step.add_continue_rows(kRow);
  v1::AddRow* add = step.add_add();
  add->set_row(9);
  add->mutable_sampling()->add_logit_bias_token(1);
  EXPECT_EQ(client.Refused(step).code(), static_cast<int>(kInvalid));
}

}  // namespace
}  // namespace reprise::service
