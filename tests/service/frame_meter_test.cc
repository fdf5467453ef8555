// SPDX-License-Identifier: Apache-2.0
// service/transport/frame_meter.h, without a connection.
#include "service/transport/frame_meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tests/service/http2_client.h"

namespace reprise::service {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSecond = 1'000'000'000;

FrameLimits Limits(double burst) {
  const Rate rate = {.per_second = 10, .burst = burst};
  return {.call = rate,
          .reset = rate,
          .ping = rate,
          .settings = rate,
          .other = rate,
          .max_header_bytes = 1000,
          .max_unfinished_bytes = 2000,
          .max_calls_before_settings = 3};
}

FrameMeter NewMeter(double burst) { return {Limits(burst), nullptr, 0}; }

bool Receive(FrameMeter& meter, std::string_view bytes, uint64_t now_ns = 0) {
  return meter.Receive(std::as_bytes(std::span(bytes)), now_ns);
}

std::string Times(int count, const std::string& frame) {
  std::string all;
  for (int i = 0; i < count; ++i) all += frame;
  return all;
}

struct Kind {
  std::string name;
  std::string frame;
  std::string words;  // of what was too many
  std::string reason;
};
class FrameMeterKinds : public ::testing::TestWithParam<Kind> {};

TEST_P(FrameMeterKinds, TakesTheBurstAndNotOneMore) {
  FrameMeter meter = NewMeter(5);
  ASSERT_TRUE(Receive(meter, Http2Opening()));  // SETTINGS among it
  const int left = GetParam().name == "Settings" ? 3 : 5;
  EXPECT_TRUE(Receive(meter, Times(left, GetParam().frame)));
  EXPECT_FALSE(Receive(meter, GetParam().frame));
  EXPECT_THAT(meter.excess(), HasSubstr(GetParam().words));
  EXPECT_EQ(NameOf(meter.cut_reason()), GetParam().reason);
}

TEST_P(FrameMeterKinds, HasRoomAgainAsTimePasses) {
  FrameMeter meter = NewMeter(5);
  ASSERT_TRUE(Receive(meter, Http2Opening()));
  for (uint64_t tenth = 1; tenth < 100; ++tenth) {
    EXPECT_TRUE(Receive(meter, GetParam().frame, tenth * kSecond / 10)) << tenth;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Each, FrameMeterKinds,
    ::testing::Values(
        Kind{"Call", CallHeaders(1, "/a/b"), "HEADERS", "calls"},
        Kind{"Reset", Reset(1), "RST_STREAM", "resets"},
        Kind{"Ping", Frame(FrameType::kPing, 0, 0, "12345678"), "PING", "pings"},
        Kind{"PingAnswer", Frame(FrameType::kPing, 1, 0, "12345678"), "PING", "pings"},
        Kind{"Settings", Frame(FrameType::kSettings, 0, 0, ""), "SETTINGS", "settings"},
        Kind{"WindowUpdate", Frame(FrameType::kWindowUpdate, 0, 0, "\x01\x01\x01\x01"), "without",
             "other_frames"},
        Kind{"EmptyData", Frame(FrameType::kData, 0, 1, ""), "without", "other_frames"},
        Kind{"Unknown", Frame(static_cast<FrameType>(77), 0, 1, "xyz"), "without", "other_frames"}),
    [](const auto& info) { return info.param.name; });

// A message as gRPC frames it, or its first bytes.
std::string Message(uint32_t length, size_t bytes) {
  std::string text = {'\0', static_cast<char>(length >> 24), static_cast<char>(length >> 16),
                      static_cast<char>(length >> 8), static_cast<char>(length)};
  return text + std::string(bytes, 'x');
}

std::string Data(uint32_t stream, const std::string& payload, uint8_t flags = 0) {
  return Frame(FrameType::kData, flags, stream, payload);
}

TEST(FrameMeter, WholeMessagesAreNotCountedHoweverTheyAreCut) {
  FrameMeter meter = NewMeter(3);
  ASSERT_TRUE(Receive(meter, Http2Opening()));
  EXPECT_TRUE(Receive(meter, Times(1000, Data(1, Message(7, 7)))));
  EXPECT_TRUE(Receive(meter, Times(1000, Data(1, Message(700, 300)) + Data(3, Message(300, 290)) +
                                             Data(1, std::string(400, 'x')) +
                                             Data(3, std::string(10, 'x') + Message(0, 0)))));
  // Two in one frame, a prefix across two, and padding, which is no message's.
  EXPECT_TRUE(Receive(meter, Times(1000, Data(5, Message(3, 3) + Message(900, 900)))));
  EXPECT_TRUE(
      Receive(meter, Times(1000, Data(7, Message(300, 300) + Message(1500, 0).substr(0, 2)) +
                                     Data(7, Message(1500, 1500).substr(2)))));
  EXPECT_TRUE(Receive(meter, Times(1000, Data(9, "\x03" + Message(1200, 1200) + "pad", 8))));
}

TEST(FrameMeter, MessagesThatDoNotComeWholeAreBoundedAllCallsTogether) {
  FrameMeter meter = NewMeter(3);
  ASSERT_TRUE(Receive(meter, Http2Opening()));
  EXPECT_TRUE(Receive(meter, Data(1, Message(~0u, 1500))));
  EXPECT_TRUE(Receive(meter, Data(3, Message(600, 400))));
  EXPECT_FALSE(Receive(meter, Data(5, Message(600, 1))));
  EXPECT_EQ(meter.cut_reason(), CutReason::kUnfinishedBytes);
  EXPECT_THAT(meter.excess(), HasSubstr("not come whole: more than 2000 bytes"));
}

TEST(FrameMeter, SmallPiecesOfMessagesAreCounted) {
  FrameMeter meter = NewMeter(5);
  ASSERT_TRUE(Receive(meter, Http2Opening()));
  EXPECT_TRUE(Receive(meter, Data(1, Message(6, 1)) + Times(4, Data(1, "x")) + Data(1, "x")));
  EXPECT_FALSE(Receive(meter, Data(3, Message(6, 1))));
  EXPECT_THAT(meter.excess(), HasSubstr("small pieces"));
}

TEST(FrameMeter, PiecesTakeMoreThanTheirBytes) {
  FrameMeter meter = NewMeter(1000);
  ASSERT_TRUE(Receive(meter, Http2Opening()));
  EXPECT_TRUE(Receive(meter, Data(1, Message(~0u, 0)) + Times(25, Data(1, "x"))));
  EXPECT_FALSE(Receive(meter, Times(10, Data(1, "x"))));
  EXPECT_THAT(meter.excess(), HasSubstr("not come whole: more than 2000 bytes"));
}

TEST(FrameMeter, OnePingForEachPayloadIsFree) {
  FrameMeter meter = NewMeter(3);
  ASSERT_TRUE(Receive(meter, Http2Opening()));
  const std::string ping = Frame(FrameType::kPing, 0, 0, "12345678");
  EXPECT_TRUE(Receive(meter, Times(1000, Data(1, Message(7, 7)) + ping)));
  EXPECT_TRUE(Receive(meter, Times(3, ping)));
  EXPECT_FALSE(Receive(meter, ping));
}

TEST(FrameMeter, CallsThatEndTakeTheirMessagesWithThem) {
  FrameMeter meter = NewMeter(1000);
  ASSERT_TRUE(Receive(meter, Http2Opening()));
  for (uint32_t stream = 1; stream < 100; stream += 4) {
    EXPECT_TRUE(Receive(meter, Data(stream, Message(~0u, 900)) + Reset(stream)));
    EXPECT_TRUE(Receive(meter, Data(stream + 2, Message(~0u, 900), 1)));
  }
}

TEST(FrameMeter, HeadersOfACallAreBoundedOverAllTheirFrames) {
  constexpr auto kContinuation = static_cast<FrameType>(9);
  constexpr uint8_t kEnd = 4;
  FrameMeter meter = NewMeter(1000);
  ASSERT_TRUE(Receive(meter, Http2Opening()));
  const std::string part(400, 'x');
  for (uint32_t stream = 1; stream < 100; stream += 2) {
    EXPECT_TRUE(Receive(meter, Frame(FrameType::kHeaders, 0, stream, part) +
                                   Frame(kContinuation, kEnd, stream, part)));
  }
  EXPECT_TRUE(Receive(meter, Frame(FrameType::kHeaders, 0, 101, part)));
  EXPECT_TRUE(Receive(meter, Frame(kContinuation, 0, 101, part)));
  EXPECT_FALSE(Receive(meter, Frame(kContinuation, 0, 101, part)));
  EXPECT_THAT(meter.excess(), HasSubstr("headers of a call"));
  EXPECT_EQ(meter.cut_reason(), CutReason::kHeaderBytes);
}

TEST(FrameMeter, WhoDoesNotAcknowledgeTheSettingsOpensFewCalls) {
  FrameMeter meter = NewMeter(1000);
  const std::string acknowledgement = Frame(FrameType::kSettings, 1, 0, "");
  const std::string opening = Http2Opening();
  ASSERT_TRUE(Receive(meter, opening.substr(0, opening.size() - acknowledgement.size())));
  for (uint32_t i = 0; i < 3; ++i) EXPECT_TRUE(Receive(meter, CallHeaders(2 * i + 1, "/a/b")));
  EXPECT_FALSE(Receive(meter, CallHeaders(7, "/a/b")));
  EXPECT_THAT(meter.excess(), HasSubstr("SETTINGS"));
  FrameMeter other = NewMeter(1000);
  ASSERT_TRUE(Receive(other, opening));
  for (uint32_t i = 0; i < 100; ++i) EXPECT_TRUE(Receive(other, CallHeaders(2 * i + 1, "/a/b")));
}

TEST(FrameMeter, ConnectionsOfAPeerShareItsCallsAndResets) {
  const auto peer = std::make_shared<PeerMeter>(Rate{.per_second = 1, .burst = 100},
                                                Rate{.per_second = 1, .burst = 12}, 0);
  int cut = 0;
  for (int i = 0; i < 10; ++i) {
    FrameMeter meter(Limits(1000), peer, 0);
    ASSERT_TRUE(Receive(meter, Http2Opening()));
    for (uint32_t j = 0; j < 2; ++j) {
      if (Receive(meter, CallHeaders(2 * j + 1, "/a/b") + Reset(2 * j + 1))) continue;
      ++cut;
      EXPECT_THAT(meter.excess(), HasSubstr("RST_STREAM frames of all its connections"));
      break;
    }
  }
  EXPECT_EQ(cut, 4);
}

TEST(FrameMeter, ByteByByteIsTheSame) {
  FrameMeter meter = NewMeter(3);
  // A payload that looks like frames is none.
  const std::string ping = Frame(FrameType::kPing, 0, 0, "12345678");
  const std::string pings = Times(3, ping);
  const std::string message = Message(static_cast<uint32_t>(pings.size()), 0) + pings;
  const std::string bytes = Http2Opening() + Data(1, message) + Times(4, ping);
  for (const char byte : bytes) EXPECT_TRUE(Receive(meter, {&byte, 1}));
  EXPECT_TRUE(Receive(meter, ping.substr(0, 8)));
  EXPECT_FALSE(Receive(meter, ping.substr(8, 1)));
}

}  // namespace
}  // namespace reprise::service
