// SPDX-License-Identifier: Apache-2.0
// A message's bytes as they are looked at before anything is built of them.
#include "service/wire/scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpcpp/support/slice.h"
#include "reprise/v1/step_service.pb.h"

namespace reprise::service {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kMaxEntries = 8;

absl::Status Scan(const std::string& bytes, WireHead* head,
                  const google::protobuf::Descriptor& type = *v1::StepRequest::descriptor()) {
  const grpc::Slice slice(bytes);
  return ScanWire(grpc::ByteBuffer(&slice, 1), type, kMaxEntries, head);
}

absl::Status Scan(const std::string& bytes) {
  WireHead head;
  return Scan(bytes, &head);
}

// Something of every field.
v1::StepRequest FullRequest() {
  v1::StepRequest step;
  step.set_session("0123456789abcdef");
  step.set_sequence(42);
  step.add_drop(3);
  v1::AddRow* add = step.add_add();
  add->set_row(1);
  add->add_blocks(300);
  add->mutable_sampling()->set_temperature(0.5f);
  add->mutable_sampling()->set_seed(~uint64_t{0});
  add->mutable_sampling()->add_logit_bias_token(7);
  add->mutable_sampling()->add_logit_bias(1.5f);
  add->mutable_sampling()->set_allowed_tokens("mask");
  step.add_append()->add_blocks(4);
  v1::Chunk* chunk = step.add_chunks();
  chunk->add_tokens(70000);
  chunk->set_next_token(5);
  step.add_masks()->set_allowed_tokens("mask");
  step.add_continue_rows(9);
  step.set_continue_all(true);
  step.set_mode(v1::EXECUTION_MODE_EAGER);
  return step;
}

TEST(ScanWire, ReadsTheHeadOfAStep) {
  WireHead head;
  ASSERT_TRUE(Scan(FullRequest().SerializeAsString(), &head).ok());
  EXPECT_EQ(head.session, "0123456789abcdef");
  EXPECT_EQ(head.sequence, 42u);
}

TEST(ScanWire, ReadsTheHeadOfAStepOnAStream) {
  v1::StepStreamRequest message;
  *message.mutable_step() = FullRequest();
  WireHead head;
  ASSERT_TRUE(Scan(message.SerializeAsString(), &head, *v1::StepStreamRequest::descriptor()).ok());
  EXPECT_EQ(head.sequence, 42u);
}

TEST(ScanWire, ReadsAMessageInPieces) {
  const std::string bytes = FullRequest().SerializeAsString();
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    const grpc::Slice pieces[] = {grpc::Slice(bytes.substr(0, cut)),
                                  grpc::Slice(bytes.substr(cut))};
    WireHead head;
    EXPECT_TRUE(
        ScanWire(grpc::ByteBuffer(pieces, 2), *v1::StepRequest::descriptor(), kMaxEntries, &head)
            .ok())
        << cut;
    EXPECT_EQ(head.sequence, 42u) << cut;
  }
}

TEST(ScanWire, TakesNumbersOneByOneAsWellAsPacked) {
  // continue_rows (field 8) as three numbers of their own.
  EXPECT_TRUE(Scan(std::string("\x40\x01\x40\x02\x40\x03", 6)).ok());
}

// A parser that takes a message apart must find the same end as protobuf's, or refuse it.
TEST(ScanWire, RefusesWhateverProtobufDoesNotParse) {
  const std::string bytes = FullRequest().SerializeAsString();
  v1::StepRequest parsed;
  int refused = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (int flip = 1; flip < 256; flip <<= 1) {
      std::string bad = bytes;
      bad[at] = static_cast<char>(bad[at] ^ flip);
      for (const std::string& text : {bad, bad.substr(0, at)}) {
        const bool scanned = Scan(text).ok();
        if (scanned) continue;
        ++refused;
        if (!parsed.ParseFromString(text)) continue;
        // What protobuf would have kept as unknown.
        EXPECT_FALSE(Scan(text).message().empty());
      }
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(ScanWire, RefusesGarbage) {
  const absl::Status status = Scan("\xff\xff\xff\xff garbage");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("reprise.v1.StepRequest"));
}

TEST(ScanWire, RefusesTruncatedMessage) {
  std::string bytes = FullRequest().SerializeAsString();
  bytes.resize(bytes.size() - 1);
  EXPECT_EQ(Scan(bytes).code(), absl::StatusCode::kInvalidArgument);
}

TEST(ScanWire, RefusesMoreEntriesThanAStepCanNeed) {
  // add (field 5), empty, again and again: each of two bytes would become a whole AddRow.
  std::string bytes;
  for (uint32_t i = 0; i < kMaxEntries; ++i) bytes += std::string("\x2a\x00", 2);
  EXPECT_TRUE(Scan(bytes).ok());
  bytes += std::string("\x2a\x00", 2);
  const absl::Status status = Scan(bytes);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), HasSubstr("add: got more than 8"));
}

TEST(ScanWire, CountsEntriesOfAllPiecesOfAMessage) {
  // protobuf merges repeated occurrences of StepStreamRequest.step into one.
  v1::StepStreamRequest message;
  for (uint32_t i = 0; i < kMaxEntries; ++i) message.mutable_step()->add_append();
  WireHead head;
  const std::string once = message.SerializeAsString();
  EXPECT_TRUE(Scan(once, &head, *v1::StepStreamRequest::descriptor()).ok());
  EXPECT_EQ(Scan(once + once, &head, *v1::StepStreamRequest::descriptor()).code(),
            absl::StatusCode::kOutOfRange);
}

TEST(ScanWire, RefusesAKnownFieldOfAnotherKind) {
  // add (field 5) as a number: protobuf would keep it as an unknown field, sixteen bytes each.
  const absl::Status status = Scan(std::string("\x28\x01", 2));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("StepRequest.add"));
}

struct UnknownFieldCase {
  std::string name;
  std::function<google::protobuf::Message*(v1::StepRequest&)> message;
};

class UnknownField : public ::testing::TestWithParam<UnknownFieldCase> {};

TEST_P(UnknownField, IsUnimplementedByNumber) {
  v1::StepRequest wire = FullRequest();
  google::protobuf::Message* message = GetParam().message(wire);
  message->GetReflection()->MutableUnknownFields(message)->AddVarint(1234, 1);
  const absl::Status status = Scan(wire.SerializeAsString());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("reprise.v1.", GetParam().name, ": field 1234")));
}

INSTANTIATE_TEST_SUITE_P(
    Messages, UnknownField,
    ::testing::Values(
        UnknownFieldCase{"StepRequest", [](v1::StepRequest& wire) { return &wire; }},
        UnknownFieldCase{"AddRow", [](v1::StepRequest& wire) { return wire.mutable_add(0); }},
        UnknownFieldCase{
            "Sampling",
            [](v1::StepRequest& wire) { return wire.mutable_add(0)->mutable_sampling(); }},
        UnknownFieldCase{"AppendBlocks",
                         [](v1::StepRequest& wire) { return wire.mutable_append(0); }},
        UnknownFieldCase{"Chunk", [](v1::StepRequest& wire) { return wire.mutable_chunks(0); }},
        UnknownFieldCase{"SetAllowedTokens",
                         [](v1::StepRequest& wire) { return wire.mutable_masks(0); }}),
    [](const auto& info) { return info.param.name; });

// In as many pieces as there are bytes, and in one.
absl::Status ScanName(const std::string& name) {
  v1::AdoptBlocksRequest request;
  request.set_session("0123456789abcdef");
  const std::string bytes = absl::StrCat(request.SerializeAsString(), "\x12",
                                         std::string(1, static_cast<char>(name.size())), name);
  std::vector<grpc::Slice> slices;
  for (const char byte : bytes) slices.emplace_back(std::string(1, byte));
  WireHead head;
  const absl::Status whole = Scan(bytes, &head, *v1::AdoptBlocksRequest::descriptor());
  const absl::Status pieces = ScanWire(grpc::ByteBuffer(slices.data(), slices.size()),
                                       *v1::AdoptBlocksRequest::descriptor(), kMaxEntries, &head);
  EXPECT_EQ(whole, pieces);
  // What passes parses; what does not would be refused there, and logged.
  if (whole.ok()) {
    EXPECT_TRUE(request.ParseFromString(bytes));
    EXPECT_EQ(request.name(), name);
  }
  return whole;
}

TEST(ScanWire, TakesTextOfUtf8Alone) {
  for (const std::string name :
       {"", "plain", "na\xc3\xafve", "\xe2\x82\xac", "\xf0\x9f\x8e\xb5 song", "\xed\x9f\xbf",
        "\xee\x80\x80", "\xf4\x8f\xbf\xbf", "\x7f"}) {
    EXPECT_TRUE(ScanName(name).ok()) << name;
  }
  for (const std::string name :
       {"\xff", "a\xfe", "\xc3", "\xc3(", "\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf",
        "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "ab\xe2\x82",
        "\xe2\x82z", "\xf0\x9f\x8e"}) {
    const absl::Status status = ScanName(name);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("AdoptBlocksRequest.name: got bytes that are no UTF-8, allowed: text"));
  }
}

}  // namespace
}  // namespace reprise::service
