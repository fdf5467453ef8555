// SPDX-License-Identifier: Apache-2.0
// service/transport/connection_admission.h and what a peer is, without a connection.
#include "service/transport/connection_admission.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "service/transport/peer.h"

namespace reprise::service {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSecond = 1'000'000'000;

ConnectionLimits Limits() {
  return {.max_connections = 5,
          .max_connections_per_peer = 3,
          .accepts_per_peer = {.per_second = 2, .burst = 10},
          .accepts_per_cut = 4};
}

std::string Refusal(ConnectionAdmission& admission, const std::string& peer, uint64_t now_ns = 0) {
  const absl::Status status = admission.Admit(peer, now_ns).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  return std::string(status.message());
}

TEST(ConnectionAdmission, OnePeerLeavesRoomForOthers) {
  ConnectionAdmission admission(Limits());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(admission.Admit("a", 0).ok());
  EXPECT_THAT(Refusal(admission, "a"), HasSubstr("of a: got one more with 3 open, allowed 3"));
  EXPECT_TRUE(admission.Admit("b", 0).ok());
  EXPECT_TRUE(admission.Admit("b", 0).ok());
  EXPECT_THAT(Refusal(admission, "c"), HasSubstr("got one more with 5 open, allowed 5"));
  EXPECT_EQ(admission.num_connections(), 5u);
  admission.Leave("a");
  EXPECT_TRUE(admission.Admit("c", 0).ok());
}

TEST(ConnectionAdmission, APeerThatComesAndGoesIsSlowedDown) {
  ConnectionAdmission admission(Limits());
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(admission.Admit("a", 0).ok());
    admission.Leave("a");
  }
  EXPECT_THAT(Refusal(admission, "a"), HasSubstr("allowed 10 at once and 2 a second"));
  EXPECT_TRUE(admission.Admit("b", 0).ok());
  EXPECT_TRUE(admission.Admit("a", kSecond / 2).ok());
  Refusal(admission, "a", kSecond / 2);
}

TEST(ConnectionAdmission, APeerPaysForConnectionsThatWereCutOff) {
  ConnectionAdmission admission(Limits());
  for (int i = 0; i < 4; ++i) admission.Punish("a", 0);  // 16 of 10
  Refusal(admission, "a", 3 * kSecond);                  // at 0
  EXPECT_TRUE(admission.Admit("a", 4 * kSecond).ok());
}

TEST(ConnectionAdmission, QuietPeersAreForgottenAndOthersAreNot) {
  ConnectionAdmission admission(Limits());
  ASSERT_TRUE(admission.Admit("stays", 0).ok());
  for (int i = 0; i < 100; ++i) admission.Punish(absl::StrCat("peer ", i), 0);
  EXPECT_EQ(admission.num_peers(), 101u);
  admission.ForgetQuiet(kSecond);
  EXPECT_EQ(admission.num_peers(), 101u);
  admission.ForgetQuiet(100 * kSecond);
  EXPECT_EQ(admission.num_peers(), 1u);
  admission.Leave("stays");
  EXPECT_EQ(admission.num_connections(), 0u);
}

std::string PeerOfText(const std::string& text) {
  sockaddr_storage address{};
  if (text.find(':') == text.npos) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(address);
    v4.sin_family = AF_INET;
    EXPECT_EQ(inet_pton(AF_INET, text.c_str(), &v4.sin_addr), 1);
  } else {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
    v6.sin6_family = AF_INET6;
    EXPECT_EQ(inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr), 1);
  }
  return PeerOfAddress(address);
}

TEST(Peer, IsAHostHoweverManyAddressesItHas) {
  EXPECT_EQ(PeerOfText("192.0.2.7"), "192.0.2.7");
  EXPECT_EQ(PeerOfText("::ffff:192.0.2.7"), "192.0.2.7");
  EXPECT_EQ(PeerOfText("2001:db8:0:1:2:3:4:5"), "2001:db8:0:1::/64");
  EXPECT_EQ(PeerOfText("2001:db8:0:1:ffff::"), PeerOfText("2001:db8:0:1::1"));
  EXPECT_NE(PeerOfText("2001:db8:0:1::"), PeerOfText("2001:db8:0:2::"));
}

}  // namespace
}  // namespace reprise::service
