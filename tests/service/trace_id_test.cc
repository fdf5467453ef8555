// SPDX-License-Identifier: Apache-2.0
// Ids of traces: as headers and steps carry them, and back in answers.
#include "service/trace_id.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

using ::testing::HasSubstr;

constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr char kTraceparent[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const std::string kOwn = "0123456789abcdef";

TEST(TraceId, IsReadFromATraceparent) {
  const TraceId id = TraceId::FromTraceparent(kTraceparent);
  EXPECT_FALSE(id.empty());
  EXPECT_EQ(id.bytes(), absl::HexStringToBytes(kTrace));
  EXPECT_EQ(id.Hex(), kTrace);
  // A later version may say more.
  EXPECT_EQ(TraceId::FromTraceparent(absl::StrCat("01", &kTraceparent[2], "-more")).Hex(), kTrace);
}

TEST(TraceId, IsNoneWhereTheHeaderIsMalformed) {
  const std::string good = kTraceparent;
  std::vector<std::string> bad = {"",
                                  "00",
                                  good.substr(0, good.size() - 1),
                                  good + "0",
                                  good + "-more",
                                  "ff" + good.substr(2),
                                  "0g" + good.substr(2)};
  for (const size_t dash : {2, 35, 52}) {
    bad.push_back(good);
    bad.back()[dash] = '_';
  }
  for (const size_t digit : {4, 40, 54}) {
    bad.push_back(good);
    bad.back()[digit] = 'A';
  }
  bad.push_back("00-" + std::string(32, '0') + good.substr(35));
  bad.push_back(good.substr(0, 36) + std::string(16, '0') + "-01");
  for (const std::string& header : bad)
    EXPECT_TRUE(TraceId::FromTraceparent(header).empty()) << header;
}

TEST(TraceId, HasSixteenBytesOrNone) {
  EXPECT_TRUE(TraceId::FromBytes("").empty());
  EXPECT_EQ(TraceId::FromBytes(kOwn).bytes(), kOwn);
  EXPECT_TRUE(CheckTraceId("").ok());
  EXPECT_TRUE(CheckTraceId(kOwn).ok());
  for (const size_t size : {1, 15, 17, 64}) {
    const absl::Status status = CheckTraceId(std::string(size, 'x'));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), absl::StrCat("trace_id: got ", size, " bytes, allowed 16 or none"));
  }
}

v1::StepRequest NextStep(const StreamClient& client, const std::string& trace) {
  v1::StepRequest step = client.NewStep();
  step.set_continue_all(true);
  step.set_trace_id(trace);
  return step;
}

TEST(TraceIdOfAStep, ComesBackWithItsAnswerAndNoOther) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kPrompt, kMaxContext);
  EXPECT_EQ(client.Step(NextStep(client, kOwn)).trace_id(), kOwn);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(client.Step(NextStep(client, "")).trace_id(), "");
  v1::StepRequest refused = NextStep(client, kOwn);
  refused.set_sequence(99);
  EXPECT_EQ(client.Refused(refused).trace_id(), kOwn);
  refused.clear_trace_id();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(client.Refused(refused).trace_id(), "");
}

TEST(TraceIdOfAStep, OfAnotherSizeIsRefused) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kPrompt, kMaxContext);
  const v1::StepError error = client.Refused(NextStep(client, "short"));
  EXPECT_EQ(error.code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(error.message(), "trace_id: got 5 bytes, allowed 16 or none");
  EXPECT_EQ(error.trace_id(), "");
  client.Step(NextStep(client, kOwn));
}

TEST(TraceIdOfAStream, CountsWhereAStepHasNone) {
  ServedModel served;
  StreamClient client(served.NewChannel(), "", {{"traceparent", kTraceparent}});
  client.StartRow(kRow, kPrompt, kMaxContext);
  const std::string of_call = absl::HexStringToBytes(kTrace);
  EXPECT_EQ(client.Step(NextStep(client, "")).trace_id(), of_call);
  EXPECT_EQ(client.Step(NextStep(client, kOwn)).trace_id(), kOwn);
  EXPECT_EQ(client.Refused(NextStep(client, "short")).trace_id(), of_call);
}

TEST(TraceIdOfAStream, IsNoneWhereThereAreTwo) {
  ServedModel served;
  StreamClient client(served.NewChannel(), "",
                      {{"traceparent", kTraceparent}, {"traceparent", kTraceparent}});
  client.StartRow(kRow, kPrompt, kMaxContext);
  EXPECT_EQ(client.Step(NextStep(client, "")).trace_id(), "");
}

TEST(TraceIdOfAUnaryStep, IsTheFieldsOrTheCalls) {
  ServedModel served;
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kPrompt, kMaxContext);
  const auto call = [&client](const std::string& trace, v1::StepResponse* response) {
    grpc::ClientContext context;
    context.AddMetadata("traceparent", kTraceparent);
    return client.stub().Step(&context, NextStep(client, trace), response);
  };
  v1::StepResponse response;
  ASSERT_TRUE(call("", &response).ok());
  EXPECT_EQ(response.trace_id(), absl::HexStringToBytes(kTrace));
  client.CountStep();
  ASSERT_TRUE(call(kOwn, &response).ok());
  EXPECT_EQ(response.trace_id(), kOwn);
  client.CountStep();
  const grpc::Status refused = call("short", &response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(), HasSubstr("trace_id: got 5 bytes"));
}

}  // namespace
}  // namespace reprise::service
