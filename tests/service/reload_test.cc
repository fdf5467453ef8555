// SPDX-License-Identifier: Apache-2.0
// Files that are read again while the server runs: identities, TLS, and a file that is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "service/identity/callers.h"
#include "tests/service/certificates.h"
#include "tests/service/refusal.h"
#include "tests/service/scrape.h"
#include "tests/service/served_model.h"
#include "tests/service/tls_client.h"
#include "tests/testing/status_matchers.h"

namespace reprise::service {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IssuedCertificate;
using testing::StatusIs;

constexpr absl::StatusCode kRefused = absl::StatusCode::kFailedPrecondition;
constexpr char kStays[] = "files read again and refused, what was in force stays: ";

// An entry of the file. Its token is "token-" and the name.
std::string Entry(const std::string& name, const std::string& role, const std::string& more = "") {
  const TokenDigest digest = TokenDigest::Of("token-" + name);
  return absl::StrCat(R"({"name": ")", name, R"(", "roles": [")", role, R"("], "token_sha256": [")",
                      absl::BytesToHexString(std::string(digest.bytes())), "\"]", more, "}");
}

class Reload : public ::testing::Test {
 protected:
  Reload() { Write({Entry("chat", "step"), Entry("ops", "administer")}); }
  void Write(const std::vector<std::string>& entries) {
    WriteText(absl::StrCat("{\"identities\": [\n", absl::StrJoin(entries, ",\n"), "]}\n"));
  }
  void WriteText(const std::string& text) { testing::WriteSecretFile(file_, text); }
  ServedModel::Options Options() {
    ServedModel::Options options;
    options.server.identities_file = file_;
    options.server.metrics_listen = "127.0.0.1:0";
    options.server.report = [this](const std::string& what) { reports_.push_back(what); };
    return options;
  }
  static grpc::Status Describe(const ServedModel& served, const std::string& token) {
    return CallWithBytes(served.NewChannel(), "Describe", "", token);
  }
  static grpc::StatusCode CodeOf(const ServedModel& served, const std::string& token) {
    return Describe(served, token).error_code();
  }

  testing::TemporaryDirectory directory_;
  const std::string file_ = directory_.path() + "/who.json";
  std::vector<std::string> reports_;
};

TEST_F(Reload, AddsAndTakesOutIdentitiesAndTokens) {
  ServedModel served(Options());
  EXPECT_EQ(CodeOf(served, "token-batch"), kUnknown);
  Write({Entry("ops", "administer"), Entry("batch", "observe")});
  const auto change = served.server().Reload();
  ASSERT_TRUE(change.ok()) << change.status();
  EXPECT_EQ(change->identities_added, 1u);
  EXPECT_EQ(change->identities_changed, 0u);
  EXPECT_EQ(change->identities_removed, 1u);
  EXPECT_FALSE(change->tls);
  EXPECT_TRUE(Describe(served, "token-batch").ok());
  EXPECT_TRUE(Describe(served, "token-ops").ok());
  EXPECT_EQ(CodeOf(served, "token-chat"), kUnknown);
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0],
            "files read again: 1 identity added, 0 changed, 1 removed, 0 sessions ended");
}

TEST_F(Reload, ChangesRoles) {
  ServedModel served(Options());
  EXPECT_EQ(CallWithBytes(served.NewChannel(), "ListSessions", "", "token-chat").error_code(),
            kDenied);
  Write({Entry("chat", "administer"), Entry("ops", "administer")});
  ASSERT_TRUE(served.server().Reload().ok());
  EXPECT_TRUE(CallWithBytes(served.NewChannel(), "ListSessions", "", "token-chat").ok());
}

TEST_F(Reload, EndsSessionsOfAnIdentityThatIsGoneAndNoOthers) {
  Write({Entry("chat", "step"), Entry("batch", "step"), Entry("eval", "step")});
  ServedModel served(Options());
  StreamClient gone(served.NewChannel(), OpenWithGrace(60000), "token-chat");
  StreamClient demoted(served.NewChannel(), "token-eval");
  StreamClient stays(served.NewChannel(), "token-batch");
  gone.StartRow(kRow, kOwnPrompt, kMaxContext);
  const uint32_t first = stays.StartRow(kRow, kOwnPrompt, kMaxContext);
  const uint32_t free_blocks = served.engine().pool().free_blocks;
  Write({Entry("batch", "step"), Entry("eval", "observe")});
  const auto change = served.server().Reload();
  ASSERT_TRUE(change.ok()) << change.status();
  EXPECT_EQ(change->sessions_ended, 2u);
  const grpc::Status ended = gone.Finish();
  EXPECT_EQ(ended.error_code(), kAborted);
  EXPECT_EQ(ended.error_message(),
            "the session was ended, because its identity chat was taken out");
  EXPECT_EQ(demoted.Finish().error_code(), kAborted);
  EXPECT_TRUE(Eventually([&] { return served.engine().pool().free_blocks > free_blocks; }));
  EXPECT_EQ(Continue(stays, kRow, 3), std::vector<uint32_t>([&] {
              const std::vector<uint32_t> all = served.Reference(kOwnPrompt, 4);
              EXPECT_EQ(all[0], first);
              return std::vector<uint32_t>(all.begin() + 1, all.end());
            }()));
  // It cannot come back to the session, not even once it is an identity again.
  EXPECT_EQ(StreamClient(served.NewChannel(), ResumeOf(gone.session(), 0), "token-chat")
                .Finish()
                .error_code(),
            kUnknown);
  Write({Entry("chat", "step"), Entry("batch", "step")});
  ASSERT_TRUE(served.server().Reload().ok());
  StreamClient again(served.NewChannel(), ResumeOf(gone.session(), 0), "token-chat");
  EXPECT_FALSE(again.opened());
  EXPECT_EQ(again.Finish().error_code(), kAborted);
  EXPECT_TRUE(StreamClient(served.NewChannel(), "token-chat").opened());
}

TEST_F(Reload, QuotasHoldForTheNextRequest) {
  ServedModel served(Options());
  StreamClient client(served.NewChannel(), "token-chat");
  EXPECT_EQ(client.Allocate(6).size(), 6u);
  const auto allocate = [&] {
    grpc::ClientContext context;
    AddToken("token-chat", &context);
    v1::AllocateRequest request;
    request.set_session(client.session());
    request.set_count(1);
    v1::AllocateResponse response;
    return client.stub().Allocate(&context, request, &response);
  };
  Write({Entry("chat", "step", R"(, "max_blocks": 6, "max_sessions": 1, "max_rows": 1)")});
  const auto change = served.server().Reload();
  ASSERT_TRUE(change.ok()) << change.status();
  EXPECT_EQ(change->identities_changed, 1u);
  EXPECT_EQ(change->sessions_ended, 0u);
  EXPECT_THAT(allocate().error_message(), HasSubstr("hold 6 of the 6 that they may have"));
  StreamClient second(served.NewChannel(), "token-chat");
  EXPECT_FALSE(second.opened());
  EXPECT_EQ(second.Finish().error_message(), "sessions of chat: 1 are open; allowed: 1");
  Write({Entry("chat", "step", R"(, "max_blocks": 7)")});
  ASSERT_TRUE(served.server().Reload().ok());
  EXPECT_TRUE(allocate().ok());
  EXPECT_EQ(allocate().error_code(), kExhausted);
  EXPECT_TRUE(StreamClient(served.NewChannel(), "token-chat").opened());
}

TEST_F(Reload, PrioritiesAndWeightsMayChangeWhileStepsWait) {
  ServedModel::Options options = Options();
  options.max_delay_us = 200;
  Write({Entry("chat", "step"), Entry("batch", "step")});
  ServedModel served(options);
  StreamClient chat(served.NewChannel(), "token-chat");
  StreamClient batch(served.NewChannel(), "token-batch");
  chat.StartRow(kRow, kOwnPrompt, kMaxContext);
  batch.StartRow(kRow, kOwnPrompt, kMaxContext);
  std::vector<uint32_t> chat_tokens, batch_tokens;
  std::thread other([&] { batch_tokens = Continue(batch, kRow, 40); });
  for (int i = 0; i < 20; ++i) {
    Write({Entry("chat", "step", absl::StrCat(", \"weight\": ", 1 + i % 5)),
           Entry("batch", "step", absl::StrCat(", \"priority\": ", i % 10))});
    ASSERT_TRUE(served.server().Reload().ok());
    for (const uint32_t token : Continue(chat, kRow, 2)) chat_tokens.push_back(token);
  }
  other.join();
  EXPECT_EQ(chat_tokens, batch_tokens);
}

TEST_F(Reload, AFileThatIsWrongIsRefusedWholeByNameAndLine) {
  ServedModel served(Options());
  Write({Entry("chat", "observe"), Entry("batch", "step", R"(, "weight": 101)")});
  const auto refused = served.server().Reload();
  const std::string message(refused.status().message());
  EXPECT_THAT(message, AllOf(HasSubstr("what was in force stays: " + file_ + ": line 3: "),
                             HasSubstr("identities[1].weight: got 101, allowed")));
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0], message);
  EXPECT_TRUE(StreamClient(served.NewChannel(), "token-chat").opened());
  EXPECT_EQ(CodeOf(served, "token-batch"), kUnknown);
  for (const std::string text : {"", "{}", "{\"identities\": []}", "{\"identities\": [\n7]}"}) {
    WriteText(text);
    EXPECT_THAT(served.server().Reload().status(), StatusIs(kRefused, kStays));
  }
  ASSERT_EQ(::unlink(file_.c_str()), 0);
  EXPECT_THAT(served.server().Reload().status(), StatusIs(kRefused, kStays));
  EXPECT_TRUE(StreamClient(served.NewChannel(), "token-chat").opened());
  const Scrape now(served.server().metrics_address());
  EXPECT_EQ(now["reprise_reloads_total{result=\"refused\"}"], 6);
  EXPECT_EQ(now["reprise_reloads_total{result=\"taken\"}"], 0);
}

TEST_F(Reload, IsForAdministrators) {
  ServedModel served(Options());
  EXPECT_EQ(CallWithBytes(served.NewChannel(), "ReloadFiles", "", "token-chat").error_code(),
            kDenied);
  Write({Entry("ops", "administer")});
  grpc::ClientContext context;
  AddToken("token-ops", &context);
  v1::ReloadFilesResponse response;
  const grpc::Status status = v1::StepService::NewStub(served.NewChannel())
                                  ->ReloadFiles(&context, v1::ReloadFilesRequest(), &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.identities_removed(), 1u);
  EXPECT_EQ(CodeOf(served, "token-chat"), kUnknown);
  WriteText("none");
  EXPECT_EQ(CallWithBytes(served.NewChannel(), "ReloadFiles", "", "token-ops").error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
}

TEST_F(Reload, AServerWithoutFilesHasNothingToReadAgain) {
  ServedModel served;
  EXPECT_THAT(served.server().Reload().status(),
              StatusIs(kRefused, "without files of identities or TLS"));
  EXPECT_EQ(CallWithBytes(served.NewChannel(), "ReloadFiles", "").error_code(), kDenied);
}

TEST_F(Reload, HoldsForAServerThatStillLoads) {
  ServedModel::Options options = Options();
  options.attach = false;
  ServedModel served(options);
  Write({Entry("batch", "step")});
  ASSERT_TRUE(served.server().Reload().ok());
  EXPECT_EQ(CodeOf(served, "token-chat"), kUnknown);
  EXPECT_EQ(CodeOf(served, "token-batch"), kUnavailable);
}

TEST_F(Reload, UsersOfUnixSocketsComeAndGo) {
  const std::string user = absl::StrCat(::getuid());
  const auto by_user = [&](const std::string& name, const std::string& users) {
    return absl::StrCat(R"({"name": ")", name, R"(", "roles": ["step"], "unix_users": [)", users,
                        "]}");
  };
  ServedModel served(Options());
  EXPECT_EQ(CodeOf(served, ""), kUnknown);
  Write({by_user("me", user)});
  ASSERT_TRUE(served.server().Reload().ok());
  const auto channel = served.NewChannel();
  EXPECT_TRUE(CallWithBytes(channel, "Describe", "").ok());
  Write({by_user("other", "12345")});
  ASSERT_TRUE(served.server().Reload().ok());
  EXPECT_EQ(CallWithBytes(channel, "Describe", "").error_code(), kUnknown);
  Write({by_user("again", user)});
  ASSERT_TRUE(served.server().Reload().ok());
  EXPECT_TRUE(CallWithBytes(channel, "Describe", "").ok());
  // Users of whom no connection was made ready.
  std::string many = "20000";
  for (size_t i = 1; i < Callers::kMaxMoreUsers; ++i) absl::StrAppend(&many, ",", 20000 + i);
  Write({by_user("many", many)});
  const auto refused = served.server().Reload();
  EXPECT_THAT(refused.status(), StatusIs(kRefused, kStays));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("unix_users: got 66 different"));
  EXPECT_TRUE(CallWithBytes(channel, "Describe", "").ok());
}

TEST_F(Reload, CallsGoOnWhileFilesAreReadAgain) {
  ServedModel served(Options());
  std::atomic<bool> stop = false;
  std::thread reloads([&] {
    for (int i = 0; !stop; ++i) {
      Write({Entry("chat", "step"), Entry(absl::StrCat("n", i % 7), "step")});
      served.server().Reload().IgnoreError();
    }
  });
  StreamClient client(served.NewChannel(), "token-chat");
  const uint32_t first = client.StartRow(kRow, kOwnPrompt, kMaxContext);
  std::vector<uint32_t> tokens = {first};
  for (int i = 0; i < 10; ++i) {
    for (const uint32_t token : Continue(client, kRow, 3)) tokens.push_back(token);
    EXPECT_TRUE(Describe(served, "token-chat").ok());
  }
  stop = true;
  reloads.join();
  EXPECT_EQ(tokens, served.Reference(kOwnPrompt, tokens.size()));
}

// ---- TLS ----

class ReloadTls : public Reload {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "OpenSSL is not instrumented, and what orders its threads cannot be seen";
#endif
    Write({Entry("chat", "step"), CertificateEntry("batch")});
  }
  // Its certificate's common name is its name.
  static std::string CertificateEntry(const std::string& name) {
    return absl::StrCat(R"({"name": ")", name,
                        R"(", "roles": ["step"], "certificate_names": ["cn:)", name, "\"]}");
  }
  ServedModel::Options TlsOptions(bool with_crl = false) {
    ServedModel::Options options = Options();
    options.server.listen = {"127.0.0.1:0"};
    options.server.tls = files_.files(/*clients=*/true);
    if (with_crl) options.server.tls.client_crl = Path("revoked.pem");
    return options;
  }
  std::string Path(const std::string& name) const { return files_.directory() + "/" + name; }
  void WriteServer(const testing::CertificateAuthority& authority) {
    const IssuedCertificate server =
        authority.Issue({.common_name = "server", .names = "IP:127.0.0.1"});
    testing::WriteSecretFile(Path("server.pem"), server.certificate);
    testing::WriteSecretFile(Path("server.key"), server.key);
  }
  grpc::StatusCode Ask(const ServedModel& served, const testing::CertificateAuthority& root,
                       const IssuedCertificate& client, const std::string& token = "") const {
    return CallWithBytes(TlsChannel(served.address(), root.certificate(), client), "Describe", "",
                         token)
        .error_code();
  }
  const testing::CertificateAuthority& authority() const { return files_.authority(); }

  const TlsServerFiles files_;
};

TEST_F(ReloadTls, NewConnectionsGetTheNewCertificateAndOldOnesGoOn) {
  ServedModel served(TlsOptions());
  const auto old_channel = TlsChannel(served.address(), authority().certificate());
  StreamClient client(old_channel, "token-chat");
  ASSERT_TRUE(client.opened());
  const testing::CertificateAuthority next("next authority");
  WriteServer(next);
  const auto change = served.server().Reload();
  ASSERT_TRUE(change.ok()) << change.status();
  EXPECT_TRUE(change->tls);
  EXPECT_EQ(Ask(served, next, {}, "token-chat"), grpc::StatusCode::OK);
  EXPECT_EQ(Ask(served, authority(), {}, "token-chat"), kUnavailable);
  client.StartRow(kRow, kOwnPrompt, kMaxContext);
  EXPECT_EQ(Continue(client, kRow, 2).size(), 2u);
}

TEST_F(ReloadTls, AKeyOfAnotherCertificateIsRefusedWithAllElse) {
  ServedModel served(TlsOptions());
  testing::WriteSecretFile(Path("server.key"), authority().Issue({.common_name = "x"}).key);
  Write({Entry("other", "step"), CertificateEntry("batch")});
  const auto refused = served.server().Reload();
  EXPECT_THAT(refused.status(), StatusIs(kRefused, kStays));
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("server.key: got the key of another certificate"));
  EXPECT_EQ(Ask(served, authority(), {}, "token-chat"), grpc::StatusCode::OK);
  EXPECT_EQ(Ask(served, authority(), {}, "token-other"), kUnknown);
}

TEST_F(ReloadTls, TheClientsAuthorityMayChange) {
  ServedModel served(TlsOptions());
  const testing::CertificateAuthority next("next authority");
  const IssuedCertificate old_client = authority().Issue({.common_name = "batch"});
  const IssuedCertificate new_client = next.Issue({.common_name = "batch"});
  EXPECT_EQ(Ask(served, authority(), old_client), grpc::StatusCode::OK);
  EXPECT_EQ(Ask(served, authority(), new_client), kUnavailable);
  testing::WriteSecretFile(Path("ca.pem"), next.certificate());
  ASSERT_TRUE(served.server().Reload().ok());
  EXPECT_EQ(Ask(served, authority(), old_client), kUnavailable);
  EXPECT_EQ(Ask(served, authority(), new_client), grpc::StatusCode::OK);
  // Both, as while clients move.
  testing::WriteSecretFile(Path("ca.pem"), next.certificate() + authority().certificate());
  ASSERT_TRUE(served.server().Reload().ok());
  EXPECT_EQ(Ask(served, authority(), old_client), grpc::StatusCode::OK);
  EXPECT_EQ(Ask(served, authority(), new_client), grpc::StatusCode::OK);
}

TEST_F(ReloadTls, WhetherACertificateIsNeededFollowsTheIdentities) {
  ServedModel served(TlsOptions());
  EXPECT_EQ(Ask(served, authority(), {}, "token-chat"), grpc::StatusCode::OK);
  Write({CertificateEntry("batch")});
  ASSERT_TRUE(served.server().Reload().ok());
  EXPECT_EQ(Ask(served, authority(), {}, "token-chat"), kUnavailable);
  EXPECT_EQ(Ask(served, authority(), authority().Issue({.common_name = "batch"})),
            grpc::StatusCode::OK);
  // The authority would be nobody's.
  Write({Entry("chat", "step")});
  EXPECT_THAT(std::string(served.server().Reload().status().message()),
              HasSubstr("client CA: got one that no identity needs"));
}

TEST_F(ReloadTls, RevokedCertificatesDoNotGetThroughTheHandshake) {
  const IssuedCertificate good = authority().Issue({.common_name = "batch"});
  const IssuedCertificate bad = authority().Issue({.common_name = "batch"});
  testing::WriteSecretFile(Path("revoked.pem"), authority().Revoke({}));
  ServedModel served(TlsOptions(/*with_crl=*/true));
  EXPECT_EQ(Ask(served, authority(), good), grpc::StatusCode::OK);
  EXPECT_EQ(Ask(served, authority(), bad), grpc::StatusCode::OK);
  testing::WriteSecretFile(Path("revoked.pem"), authority().Revoke({bad}));
  ASSERT_TRUE(served.server().Reload().ok());
  EXPECT_EQ(Ask(served, authority(), good), grpc::StatusCode::OK);
  EXPECT_EQ(Ask(served, authority(), bad), kUnavailable);
}

TEST_F(ReloadTls, ListsThatCannotBeReliedOnAreRefused) {
  testing::WriteSecretFile(Path("revoked.pem"), authority().Revoke({}));
  ServedModel served(TlsOptions(/*with_crl=*/true));
  const testing::CertificateAuthority other("other authority");
  const testing::CertificateAuthority same_name("test authority");
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"text", "revoked.pem: got no list, allowed: one or more lists of revoked certificates"},
      {authority().Revoke({}, -1), "whose next was due at"},
      {other.Revoke({}), "got no list that \"CN=test authority\" of the client CA file has signed"},
      {same_name.Revoke({}), "got no list that \"CN=test authority\""},
      {authority().Revoke({}) + "-----BEGIN X509 CRL-----\n", "got no list behind the first 1"}};
  for (const auto& [text, words] : refused) {
    testing::WriteSecretFile(Path("revoked.pem"), text);
    EXPECT_THAT(std::string(served.server().Reload().status().message()), HasSubstr(words));
  }
  EXPECT_EQ(Ask(served, authority(), authority().Issue({.common_name = "batch"})),
            grpc::StatusCode::OK);
  ServerOptions alone;
  alone.listen = {"127.0.0.1:0"};
  alone.tls = files_.files();
  alone.tls.client_crl = Path("revoked.pem");
  EXPECT_THAT(std::string(Server::Start(alone).status().message()),
              HasSubstr("client CRL: got one without a client CA"));
}

}  // namespace
}  // namespace reprise::service
