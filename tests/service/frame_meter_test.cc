// SPDX-License-Identifier: Apache-2.0
// service/transport/frame_meter.h, without a connection.
#include "service/transport/frame_meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "tests/service/http2_client.h"

namespace reprise::service {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSecond = 1'000'000'000;

FrameRates Rates(double burst) {
  const Rate rate = {.per_second = 10, .burst = burst};
  return {.call = rate, .reset = rate, .ping = rate, .settings = rate, .other = rate};
}

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
};
class FrameMeterKinds : public ::testing::TestWithParam<Kind> {};

TEST_P(FrameMeterKinds, TakesTheBurstAndNotOneMore) {
  FrameMeter meter(Rates(5), 0);
  ASSERT_TRUE(Receive(meter, Http2Opening()));  // SETTINGS among it
  const int left = GetParam().name == "Settings" ? 4 : 5;
  EXPECT_TRUE(Receive(meter, Times(left, GetParam().frame)));
  EXPECT_FALSE(Receive(meter, GetParam().frame));
  EXPECT_THAT(meter.Excess(), HasSubstr(GetParam().words));
}

TEST_P(FrameMeterKinds, HasRoomAgainAsTimePasses) {
  FrameMeter meter(Rates(5), 0);
  ASSERT_TRUE(Receive(meter, Http2Opening()));
  for (uint64_t tenth = 1; tenth < 100; ++tenth) {
    EXPECT_TRUE(Receive(meter, GetParam().frame, tenth * kSecond / 10)) << tenth;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Each, FrameMeterKinds,
    ::testing::Values(Kind{"Call", CallHeaders(1, "/a/b"), "HEADERS"},
                      Kind{"Reset", Reset(1), "RST_STREAM"},
                      Kind{"Ping", Frame(FrameType::kPing, 0, 0, "12345678"), "PING"},
                      Kind{"PingAnswer", Frame(FrameType::kPing, 1, 0, "12345678"), "PING"},
                      Kind{"Settings", Frame(FrameType::kSettings, 0, 0, ""), "SETTINGS"},
                      Kind{"WindowUpdate",
                           Frame(FrameType::kWindowUpdate, 0, 0, "\x01\x01\x01\x01"), "without"},
                      Kind{"EmptyData", Frame(FrameType::kData, 0, 1, ""), "without"},
                      Kind{"Unknown", Frame(static_cast<FrameType>(77), 0, 1, "xyz"), "without"}),
    [](const auto& info) { return info.param.name; });

TEST(FrameMeter, DataWithAPayloadIsNotCounted) {
  FrameMeter meter(Rates(1), 0);
  ASSERT_TRUE(Receive(meter, Http2Opening()));
  EXPECT_TRUE(Receive(meter, Times(1000, Frame(FrameType::kData, 0, 1, "payload"))));
}

TEST(FrameMeter, ByteByByteIsTheSame) {
  FrameMeter meter(Rates(3), 0);
  // A payload that looks like frames is none.
  const std::string pings = Times(3, Frame(FrameType::kPing, 0, 0, "12345678"));
  const std::string bytes = Http2Opening() + Frame(FrameType::kData, 0, 1, pings) + pings;
  for (const char byte : bytes) EXPECT_TRUE(Receive(meter, {&byte, 1}));
  const std::string one_more = Frame(FrameType::kPing, 0, 0, "12345678");
  EXPECT_TRUE(Receive(meter, one_more.substr(0, 8)));
  EXPECT_FALSE(Receive(meter, one_more.substr(8, 1)));
}

}  // namespace
}  // namespace reprise::service
