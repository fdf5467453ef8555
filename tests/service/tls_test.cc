// SPDX-License-Identifier: Apache-2.0
// TLS: who gets through the handshake, who is known by a certificate, and what a handshake that
// never ends holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "service/transport/tls_files.h"
#include "tests/service/certificates.h"
#include "tests/service/refusal.h"
#include "tests/service/served_model.h"
#include "tests/service/tls_client.h"
#include "tests/testing/status_matchers.h"

namespace reprise::service {
namespace {

using testing::CertificateAuthority;
using ::testing::HasSubstr;
using testing::IssuedCertificate;

Identity Stepper(const std::string& name) {
  Identity identity{.name = name};
  identity.roles.Add(Role::kStep);
  return identity;
}

Identity NamedByCertificate(const std::string& name, const std::string& certificate_name) {
  Identity identity = Stepper(name);
  identity.certificate_names = {certificate_name};
  return identity;
}

class Tls : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "OpenSSL is not instrumented, and what orders its threads cannot be seen";
#endif
  }
  ServedModel::Options Options(bool clients, std::vector<Identity> identities = {}) const {
    ServedModel::Options options;
    options.server.listen = {"127.0.0.1:0"};
    options.server.tls = files_.files(clients);
    options.server.identities = std::move(identities);
    return options;
  }
  const std::string& root() const { return files_.authority().certificate(); }
  std::shared_ptr<grpc::Channel> Channel(const ServedModel& served,
                                         const IssuedCertificate& client = {}) const {
    return TlsChannel(served.address(), root(), client);
  }
  grpc::Status Describe(const ServedModel& served, const IssuedCertificate& client = {},
                        const std::string& token = "") const {
    return CallWithBytes(Channel(served, client), "Describe", "", token);
  }
  IssuedCertificate Issue(const std::string& common_name, const std::string& names = "") const {
    return files_.authority().Issue({.common_name = common_name, .names = names});
  }

  const TlsServerFiles files_;
};

TEST_F(Tls, CarriesASession) {
  ServedModel served(Options(false));
  StreamClient client(Channel(served));
  ASSERT_TRUE(client.opened());
  std::vector<uint32_t> tokens = {client.StartRow(kRow, kOwnPrompt, kMaxContext)};
  for (const uint32_t token : Continue(client, kRow, 5)) tokens.push_back(token);
  EXPECT_EQ(tokens, served.Reference(kOwnPrompt, tokens.size()));
  EXPECT_EQ(CheckHealth(Channel(served)), grpc::health::v1::HealthCheckResponse::SERVING);
}

TEST_F(Tls, CarriesTokens) {
  Identity identity = Stepper("chat");
  identity.tokens = {TokenDigest::Of("secret")};
  ServedModel served(Options(false, {identity}));
  EXPECT_TRUE(StreamClient(Channel(served), "secret").opened());
  EXPECT_TRUE(Describe(served, {}, "secret").ok());
  EXPECT_EQ(Describe(served, {}, "wrong").error_code(), kUnknown);
  EXPECT_EQ(Describe(served).error_code(), kUnknown);
}

TEST_F(Tls, IsForTcpAlone) {
  ServedModel::Options options = Options(false);
  options.server.listen = {absl::StrCat("unix:", files_.directory(), "/s"), "127.0.0.1:0"};
  ServedModel served(options);
  EXPECT_TRUE(CallWithBytes(served.NewChannel(), "Describe", "").ok());
}

TEST_F(Tls, AServerOfAnotherAuthorityIsNotTrusted) {
  ServedModel served(Options(false));
  const CertificateAuthority other("another");
  EXPECT_EQ(
      CallWithBytes(TlsChannel(served.address(), other.certificate()), "Describe", "").error_code(),
      kUnavailable);
}

TEST_F(Tls, APlainClientGetsNowhere) {
  ServedModel served(Options(false));
  EXPECT_EQ(CallWithBytes(served.NewChannel(), "Describe", "").error_code(), kUnavailable);
  Http2Client raw(served.address());
  EXPECT_TRUE(raw.Send(Http2Opening()));
  EXPECT_TRUE(raw.AwaitEnd());
  EXPECT_TRUE(Describe(served).ok());
}

TEST_F(Tls, AClientOfTlsGetsNowhereOnAPlainPort) {
  ServedModel::Options options;
  options.server.listen = {"127.0.0.1:0"};
  ServedModel served(options);
  EXPECT_EQ(Describe(served).error_code(), kUnavailable);
  EXPECT_TRUE(CallWithBytes(served.NewChannel(), "Describe", "").ok());
}

// ---- client certificates ----

TEST_F(Tls, ClientsAreKnownByTheNamesOfTheirCertificates) {
  ServedModel served(Options(true, {NamedByCertificate("dns", "dns:chat.example"),
                                    NamedByCertificate("uri", "uri:spiffe://example/batch"),
                                    NamedByCertificate("cn", "cn:old client")}));
  EXPECT_TRUE(Describe(served, Issue("x", "DNS:chat.example,DNS:another.example")).ok());
  EXPECT_TRUE(Describe(served, Issue("x", "URI:spiffe://example/batch")).ok());
  EXPECT_TRUE(Describe(served, Issue("old client")).ok());
  EXPECT_TRUE(StreamClient(Channel(served, Issue("old client"))).opened());
  // The kind of a name counts.
  for (const IssuedCertificate& stranger :
       {Issue("chat.example"), Issue("x", "DNS:old client"), Issue("x"),
        Issue("x", "URI:chat.example"), Issue("x", "DNS:sub.chat.example"),
        Issue("x", "DNS:*.example"), Issue("x", "email:a@chat.example")}) {
    const grpc::Status status = Describe(served, stranger);
    EXPECT_EQ(status.error_code(), kUnknown) << status.error_message();
  }
}

TEST_F(Tls, ACertificateOfSeveralIdentitiesIsNobodys) {
  ServedModel served(
      Options(true, {NamedByCertificate("a", "dns:a.example"), NamedByCertificate("b", "cn:b")}));
  const grpc::Status status = Describe(served, Issue("b", "DNS:a.example"));
  EXPECT_EQ(status.error_code(), kUnknown);
  EXPECT_THAT(status.error_message(), HasSubstr("names of several identities"));
}

TEST_F(Tls, ClientsOfAnotherAuthorityDoNotGetThroughTheHandshake) {
  ServedModel served(Options(true, {NamedByCertificate("chat", "cn:chat")}));
  const CertificateAuthority other("test authority");  // of the same name
  EXPECT_EQ(Describe(served, other.Issue({.common_name = "chat"})).error_code(), kUnavailable);
  EXPECT_TRUE(Describe(served, Issue("chat")).ok());
}

TEST_F(Tls, CertificatesThatHaveEndedOrNotBegunAreNone) {
  ServedModel served(Options(true, {NamedByCertificate("chat", "cn:chat")}));
  const CertificateAuthority& authority = files_.authority();
  EXPECT_EQ(Describe(served, authority.Issue(
                                 {.common_name = "chat", .begins_in_days = -3, .ends_in_days = -1}))
                .error_code(),
            kUnavailable);
  EXPECT_EQ(Describe(served, authority.Issue(
                                 {.common_name = "chat", .begins_in_days = 1, .ends_in_days = 3}))
                .error_code(),
            kUnavailable);
}

TEST_F(Tls, WhereACertificateIsTheOnlyProofTheHandshakeNeedsOne) {
  ServedModel served(Options(true, {NamedByCertificate("chat", "cn:chat")}));
  EXPECT_EQ(Describe(served).error_code(), kUnavailable);
}

TEST_F(Tls, WhereTokensAreProofsTooACertificateMayBeMissing) {
  Identity with_token = Stepper("batch");
  with_token.tokens = {TokenDigest::Of("secret")};
  ServedModel served(Options(true, {NamedByCertificate("chat", "cn:chat"), with_token}));
  EXPECT_EQ(Describe(served).error_code(), kUnknown);
  EXPECT_TRUE(Describe(served, {}, "secret").ok());
  EXPECT_TRUE(Describe(served, Issue("chat")).ok());
  EXPECT_TRUE(Describe(served, Issue("nobody"), "secret").ok());
  const CertificateAuthority other("another");
  EXPECT_EQ(Describe(served, other.Issue({.common_name = "chat"}), "secret").error_code(),
            kUnavailable);
}

TEST_F(Tls, CertificatesAreNotAskedForWithoutAnAuthority) {
  Identity with_token = Stepper("batch");
  with_token.tokens = {TokenDigest::Of("secret")};
  ServedModel served(Options(false, {with_token}));
  EXPECT_EQ(Describe(served, Issue("batch")).error_code(), kUnknown);
}

// ---- handshakes ----

TEST_F(Tls, AHandshakeThatDoesNotEndCountsAndIsEnded) {
  ServedModel::Options options = Options(false);
  options.server.connections.max_connections = 8;
  options.server.connections.max_connections_per_peer = 3;
  ServedModel served(options);
  std::vector<std::unique_ptr<Http2Client>> silent;
  for (int i = 0; i < 3; ++i) {
    silent.push_back(std::make_unique<Http2Client>(served.address()));
    EXPECT_TRUE(silent.back()->connected());
  }
  // The beginning of a record that never comes.
  EXPECT_TRUE(silent[0]->Send(std::string_view("\x16\x03\x01\x40\x00\x01", 6)));
  EXPECT_EQ(Describe(served).error_code(), kUnavailable);
  const auto start = std::chrono::steady_clock::now();
  for (const auto& client : silent) {
    while (!client->AwaitEnd() &&
           std::chrono::steady_clock::now() - start < std::chrono::seconds(30)) {
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_TRUE(Eventually([&] { return Describe(served).ok(); }));
}

// ---- files ----

absl::Status StartWith(const TlsFiles& files) {
  ServerOptions options;
  options.listen = {"127.0.0.1:0"};
  options.tls = files;
  return Server::Start(options).status();
}

TEST_F(Tls, FilesThatAreNotWhatTheyShouldBeAreRefusedAtTheStart) {
  const std::string& directory = files_.directory();
  const IssuedCertificate another = Issue("another");
  const IssuedCertificate ended =
      files_.authority().Issue({.common_name = "x", .begins_in_days = -3, .ends_in_days = -1});
  const auto file = [&](const std::string& name, const std::string& text) {
    return testing::WriteSecretFile(absl::StrCat(directory, "/", name), text);
  };
  const TlsFiles good = files_.files();
  const std::vector<std::pair<TlsFiles, std::string>> refused = {
      {{.certificate = file("no.pem", "text"), .key = good.key}, "no.pem: got no certificate"},
      {{.certificate = good.certificate, .key = file("no.key", "text")}, "no.key: got no key"},
      {{.certificate = good.certificate, .key = file("another.key", another.key)},
       "another.key: got the key of another certificate"},
      {{.certificate = file("ended.pem", ended.certificate), .key = file("ended.key", ended.key)},
       "ended.pem: got a certificate that ended at "},
      {{.certificate = directory + "/none", .key = good.key}, "TLS certificate file "},
      {{.certificate = good.certificate}, "got a certificate alone"},
      {{.key = good.key}, "got a key alone"}};
  for (const auto& [files, words] : refused) {
    const absl::Status status = StartWith(files);
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }
  EXPECT_EQ(chmod(good.key.c_str(), 0644), 0);
  EXPECT_EQ(StartWith(good).code(), absl::StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace reprise::service
