// SPDX-License-Identifier: Apache-2.0
// Which servers start: what an address needs that other hosts reach, and what of TLS and identities
// goes together.
#include "service/exposure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/service/tls_client.h"

namespace reprise::service {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Identity WithToken() {
  Identity identity{.name = "chat", .tokens = {TokenDigest::Of("secret")}};
  identity.roles.Add(Role::kStep);
  return identity;
}

class Exposure : public ::testing::Test {
 protected:
  absl::Status Start(const std::string& address, bool tls, bool identities, bool anyone = false) {
    ServerOptions options;
    options.listen = {address};
    if (tls) options.tls = files_.files();
    if (identities) options.identities = {WithToken()};
    options.allow_anyone = anyone;
    return Server::Start(options).status();
  }

  const TlsServerFiles files_;
};

TEST_F(Exposure, AnAddressThatOthersReachNeedsTlsAndIdentities) {
  const absl::Status plain = Start("0.0.0.0:0", false, false);
  EXPECT_EQ(plain.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(plain.message()),
              AllOf(HasSubstr("listen address 0.0.0.0:"), HasSubstr("open to other hosts"),
                    HasSubstr("got neither TLS nor identities"), HasSubstr("--allow-anyone")));
  EXPECT_THAT(std::string(Start("0.0.0.0:0", true, false).message()),
              HasSubstr("got TLS without identities"));
  EXPECT_THAT(std::string(Start("0.0.0.0:0", false, true).message()),
              HasSubstr("got identities without TLS"));
  EXPECT_TRUE(Start("0.0.0.0:0", true, true).ok());
}

TEST_F(Exposure, AnyoneIsAllowedByNameAlone) {
  EXPECT_TRUE(Start("0.0.0.0:0", false, false, true).ok());
  EXPECT_TRUE(Start("0.0.0.0:0", true, false, true).ok());
  EXPECT_TRUE(Start("0.0.0.0:0", false, true, true).ok());
}

TEST_F(Exposure, ThisHostsOwnAddressesNeedNothing) {
  const std::vector<std::string> addresses = {"127.0.0.1:0", "127.9.8.7:0", "localhost:0",
                                              absl::StrCat("unix:", files_.directory(), "/s")};
  for (const std::string& address : addresses) {
    EXPECT_TRUE(Start(address, false, false).ok()) << address;
    EXPECT_TRUE(Start(address, false, true).ok()) << address;
    EXPECT_TRUE(Start(address, true, false).ok()) << address;
  }
}

TEST_F(Exposure, OneAddressThatIsOpenIsEnough) {
  ServerOptions options;
  options.listen = {"127.0.0.1:0", "0.0.0.0:0"};
  EXPECT_EQ(Server::Start(options).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(Exposure, MetricsAreForThisHostUnlessAnyoneIsAllowed) {
  ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  options.tls = files_.files();
  options.identities = {WithToken()};
  options.metrics_listen = "0.0.0.0:0";
  const absl::Status open = Server::Start(options).status();
  EXPECT_EQ(open.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(open.message()),
              AllOf(HasSubstr("metrics address 0.0.0.0:"), HasSubstr("got plain HTTP"),
                    HasSubstr("allowed: "), HasSubstr("--allow-anyone")));
  options.allow_anyone = true;
  EXPECT_TRUE(Server::Start(options).ok());
  options.allow_anyone = false;
  options.metrics_listen = "127.0.0.1:0";
  EXPECT_TRUE(Server::Start(options).ok());
  options.metrics_listen = absl::StrCat("unix:", files_.directory(), "/m");
  EXPECT_TRUE(Server::Start(options).ok());
}

TEST_F(Exposure, AServerThatIsRefusedLeavesNothingBehind) {
  const std::string log = absl::StrCat(files_.directory(), "/access.jsonl");
  const std::string socket = absl::StrCat(files_.directory(), "/s");
  ServerOptions options;
  options.listen = {absl::StrCat("unix:", socket), "0.0.0.0:0"};
  options.access_log = log;
  EXPECT_EQ(Server::Start(options).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(::access(log.c_str(), F_OK), 0);
  EXPECT_NE(::access(socket.c_str(), F_OK), 0);
}

TEST_F(Exposure, IdentitiesAreCheckedWhereverTheyComeFrom) {
  ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  options.identities = {WithToken()};
  options.identities[0].weight = 0;
  const absl::Status status = Server::Start(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("identities[0].weight: got 0"));
}

TEST_F(Exposure, CertificateNamesAndAClientAuthorityNeedEachOther) {
  ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  options.identities = {WithToken()};
  options.tls = files_.files(true);
  EXPECT_THAT(std::string(Server::Start(options).status().message()),
              HasSubstr("client CA: got one that no identity needs"));
  options.identities[0].certificate_names = {"cn:chat"};
  EXPECT_TRUE(Server::Start(options).ok());
  options.tls = files_.files(false);
  EXPECT_THAT(std::string(Server::Start(options).status().message()),
              HasSubstr("identity chat: got certificate_names without a client CA"));
  options.tls = {.certificate = "", .key = "", .client_ca = files_.files(true).client_ca};
  EXPECT_THAT(std::string(Server::Start(options).status().message()),
              HasSubstr("client CA: got one without TLS"));
}

}  // namespace
}  // namespace reprise::service
