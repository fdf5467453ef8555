// SPDX-License-Identifier: Apache-2.0
// The program with identities: a server over TLS, clients that prove who they are, and everything
// that is refused before it starts.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/end_to_end/program.h"
#include "tests/service/certificates.h"

namespace reprise::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kToken[] = "b3BlbiBzZXNhbWU";
// Of kToken, by another program: printf %s b3BlbiBzZXNhbWU | sha256sum
constexpr char kDigest[] = "822fa03bcf38775a2264d680d5675e62ceba9a3a236a391de5a28878e2970fa5";

class IdentityEndToEnd : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model = WriteTinyModel({}, directory_.path() + "/tiny");
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
    const IssuedCertificate server =
        authority_.Issue({.common_name = "server", .names = "IP:127.0.0.1,DNS:localhost"});
    const IssuedCertificate client = authority_.Issue({.common_name = "batch"});
    Write("server.pem", server.certificate);
    Write("server.key", server.key);
    Write("client.pem", client.certificate);
    Write("client.key", client.key);
    Write("ca.pem", authority_.certificate());
    Write("token", absl::StrCat(kToken, "\n"));
    Write("wrong_token", "d3Jvbmc\n");
    Write("identities.json", absl::StrCat(R"({"identities": [
        {"name": "chat", "roles": ["step"], "token_sha256": [")",
                                          kDigest, R"("]},
        {"name": "batch", "roles": ["step"], "certificate_names": ["cn:batch"]}]})"));
  }
  std::string Path(const std::string& name) const { return directory_.path() + "/" + name; }
  void Write(const std::string& name, const std::string& text) {
    WriteSecretFile(Path(name), text);
  }
  std::vector<std::string> Serve(const std::vector<std::string>& flags) const {
    std::vector<std::string> all = {"serve", "--model",  model_,       "--device",
                                    "host",  "--listen", "127.0.0.1:0"};
    all.insert(all.end(), flags.begin(), flags.end());
    return all;
  }
  // Over TLS, with identities.
  std::vector<std::string> ServeToMany() const {
    return Serve({"--identities", Path("identities.json"), "--tls-certificate", Path("server.pem"),
                  "--tls-key", Path("server.key"), "--tls-client-ca", Path("ca.pem")});
  }
  // Where the program serves; "" when it does not come to it.
  static std::string AddressOf(Program& serve) {
    const std::string words = "serving on ";
    if (!serve.AwaitOutput(words)) return "";
    std::string text = serve.stdout_text();
    text = text.substr(text.find(words) + words.size());
    return text.substr(0, text.find('\n'));
  }
  static std::vector<std::string> Sched(const std::string& address,
                                        const std::vector<std::string>& flags) {
    std::vector<std::string> all = {"sched", "--address",        address, "--prompt-tokens",
                                    "5,6,7", "--max-new-tokens", "4",     "--quiet"};
    all.insert(all.end(), flags.begin(), flags.end());
    return all;
  }
  // Exit code and stderr.
  static void Expect(const std::vector<std::string>& arguments, int exit_code,
                     const std::string& says) {
    Program program(arguments);
    EXPECT_EQ(program.Wait(), exit_code) << program.stderr_text();
    EXPECT_THAT(program.stderr_text(), HasSubstr(says));
    EXPECT_THAT(program.stderr_text(), Not(HasSubstr(kToken)));
  }

  TemporaryDirectory directory_;
  const CertificateAuthority authority_{"end to end"};
  std::string model_;
};

TEST_F(IdentityEndToEnd, SchedulersProveWhoTheyAreOverTls) {
  Program serve(ServeToMany());
  const std::string address = AddressOf(serve);
  ASSERT_NE(address, "") << serve.stderr_text();
  const std::string ca = Path("ca.pem");
  EXPECT_EQ(RunProgram({"health", "--address", address, "--tls-ca", ca, "--wait", "30s"}), 0);
  Expect(Sched(address, {"--tls-ca", ca, "--token-file", Path("token")}), 0, "");
  Expect(Sched(address, {"--tls-ca", ca, "--tls-certificate", Path("client.pem"), "--tls-key",
                         Path("client.key")}),
         0, "");
  Expect(Sched(address, {"--tls-ca", ca}), 1, "got no proof of one");
  Expect(Sched(address, {"--tls-ca", ca, "--token-file", Path("wrong_token")}), 1,
         "got a token of no identity");
  Expect(Sched(address, {"--wait", "0"}), 1, "cannot connect to");
  Write("another_ca.pem", CertificateAuthority("another").certificate());
  Expect(Sched(address, {"--wait", "0", "--tls-ca", Path("another_ca.pem")}), 1,
         "cannot connect to");
  EXPECT_THAT(serve.stdout_text() + serve.stderr_text(), Not(HasSubstr(kToken)));
}

TEST_F(IdentityEndToEnd, ATokenGoesOverThisHostsOwnAddressesInPlainText) {
  Write("tokens.json", absl::StrCat(R"({"identities": [
      {"name": "chat", "roles": ["step"], "token_sha256": [")",
                                    kDigest, R"("]}]})"));
  Program serve(Serve({"--identities", Path("tokens.json")}));
  const std::string address = AddressOf(serve);
  ASSERT_NE(address, "") << serve.stderr_text();
  Expect(Sched(address, {"--token-file", Path("token")}), 0, "");
  Expect(Sched(address, {}), 1, "got no proof of one");
}

TEST_F(IdentityEndToEnd, FilesAreReadAgainOnSighupAndForAnAdministrator) {
  const std::string socket = absl::StrCat("unix:", Path("s"));
  const std::string root = absl::StrCat(R"({"name": "root", "roles": ["administer"],
      "unix_users": [)",
                                        ::getuid(), "]}");
  const auto chat = [&](const std::string& more) {
    Write("changing.json", absl::StrCat(R"({"identities": [
        {"name": "chat", "roles": ["step"], "token_sha256": [")",
                                        kDigest, "\"]", more, "},\n", root, "]}"));
  };
  const std::vector<std::string> sched = Sched(socket, {"--token-file", Path("token")});
  Write("changing.json", absl::StrCat("{\"identities\": [", root, "]}"));
  Program serve({"serve", "--model", model_, "--device", "host", "--listen", socket, "--identities",
                 Path("changing.json")});
  ASSERT_NE(AddressOf(serve), "") << serve.stderr_text();
  Expect(sched, 1, "got a token of no identity");
  chat("");
  serve.Signal(SIGHUP);
  ASSERT_TRUE(serve.AwaitOutput("files read again: 1 identity added, 0 changed, 0 removed"));
  Expect(sched, 0, "");
  chat(R"(, "weight": 0)");
  serve.Signal(SIGHUP);
  ASSERT_TRUE(serve.AwaitOutput("what was in force stays: "));
  EXPECT_THAT(serve.stderr_text(), HasSubstr("changing.json: line 2: identities[0].weight: got 0"));
  Expect(sched, 0, "");
  Expect({"reload", "--address", socket}, 1, "line 2: identities[0].weight: got 0, allowed");
  Expect({"reload", "--address", socket, "--token-file", Path("token")}, 1,
         "ReloadFiles: got the identity chat with the roles step");
  chat(R"(, "weight": 2)");
  Program reload({"reload", "--address", socket, "--json", "-"});
  EXPECT_EQ(reload.Wait(), 0) << reload.stderr_text();
  const nlohmann::json json = nlohmann::json::parse(reload.stdout_text());
  EXPECT_EQ(json["identities"]["changed"], 1);
  EXPECT_EQ(json["tls"], false);
  serve.Signal(SIGTERM);
  EXPECT_EQ(serve.Wait(), 0);
  EXPECT_THAT(serve.stderr_text(), HasSubstr("SIGTERM: finishing accepted steps"));
}

TEST_F(IdentityEndToEnd, AdministratorsSetTheAttentionTreeAndOthersSeeIt) {
  const std::string socket = absl::StrCat("unix:", Path("s"));
  Write("both.json", absl::StrCat(R"({"identities": [
      {"name": "chat", "roles": ["step"], "token_sha256": [")",
                                  kDigest, R"("]},
      {"name": "root", "roles": ["administer"], "unix_users": [)",
                                  ::getuid(), "]}]}"));
  Write("tree.json", R"({"schema": "reprise-attention-tree/1", "rows": {"leaf": "default"},
      "batch": {"leaf": "all", "leaf_overhead": 0}})");
  Program serve({"serve", "--model", model_, "--device", "host", "--listen", socket, "--identities",
                 Path("both.json")});
  ASSERT_NE(AddressOf(serve), "") << serve.stderr_text();
  const std::vector<std::string> set = {"tree", "set", Path("tree.json"), "--address", socket};
  std::vector<std::string> as_chat = set;
  as_chat.insert(as_chat.end(), {"--token-file", Path("token")});
  Expect(as_chat, 1, "SetAttentionTree: got the identity chat with the roles step");
  Expect(set, 0, "");
  Program show({"tree", "show", "--address", socket, "--token-file", Path("token")});
  EXPECT_EQ(show.Wait(), 0) << show.stderr_text();
  EXPECT_THAT(show.stdout_text(), HasSubstr("version 2, batch invariant\n"));
}

TEST_F(IdentityEndToEnd, AServerDoesNotStartOnAnAddressThatAnyoneReaches) {
  Expect(Serve({"--listen", "0.0.0.0:0"}), 1, "is open to other hosts: got neither TLS nor");
  Expect(Serve({"--listen", "0.0.0.0:0", "--identities", Path("identities.json")}), 1,
         "got certificate_names without a client CA");
  Program serve(Serve({"--listen", "0.0.0.0:0", "--allow-anyone"}));
  EXPECT_NE(AddressOf(serve), "") << serve.stderr_text();
}

TEST_F(IdentityEndToEnd, FilesThatCannotBeTrustedAreRefused) {
  Write("bad.json", R"({"identities": [{"name": "a", "roles": ["root"], "unix_users": [1]}]})");
  Expect(Serve({"--identities", Path("bad.json")}), 1,
         "bad.json: line 1: identities[0].roles[0]: got \"root\", allowed any of step, observe, "
         "administer");
  ASSERT_EQ(chmod(Path("identities.json").c_str(), 0666), 0);
  Expect(ServeToMany(), 1, "got mode 0666, allowed: none that lets others write it");
  ASSERT_EQ(chmod(Path("token").c_str(), 0644), 0);
  Expect(Sched("127.0.0.1:1", {"--token-file", Path("token")}), 1,
         "got mode 0644, allowed: none that lets others write or read it");
  Write("token", "two words");
  Expect(Sched("127.0.0.1:1", {"--token-file", Path("token")}), 1, "got no token");
  Expect(Serve({"--tls-certificate", Path("server.pem"), "--tls-key", Path("client.key")}), 1,
         "got the key of another certificate");
  Expect(Sched("127.0.0.1:1", {"--tls-ca", Path("token")}), 1, "got no certificate");
}

TEST_F(IdentityEndToEnd, OptionsThatAreWrongTogetherAreUsageErrors) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{"--tls-certificate", "c"}, "got --tls-certificate alone, allowed: with --tls-key"},
      {{"--tls-key", "k"}, "got --tls-key alone"},
      {{"--tls-certificate", "c", "--tls-key", "k"}, "without --tls-ca"},
      {{"--tls-ca", "c", "--address", "unix:/tmp/s"}, "got --tls-ca for unix:/tmp/s"},
      {{"--token-file", "t", "--address", "192.0.2.1:50061"},
       "got --token-file without --tls-ca for 192.0.2.1:50061"}};
  for (const auto& [flags, says] : wrong) {
    for (const char* command : {"health", "sched"}) {
      std::vector<std::string> arguments = {command};
      arguments.insert(arguments.end(), flags.begin(), flags.end());
      if (arguments[0] == "sched") arguments.emplace_back("--demo");
      Expect(arguments, 2, says);
    }
  }
}

TEST_F(IdentityEndToEnd, FilesOfTlsThatNeedAnotherAreUsageErrors) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{"--tls-certificate", "c"}, "TLS: got a certificate alone, allowed: both it and its key"},
      {{"--tls-key", "k"}, "TLS: got a key alone"},
      {{"--tls-client-ca", "a"}, "client CA: got one without TLS"},
      {{"--tls-certificate", "c", "--tls-key", "k", "--tls-client-crl", "l"},
       "client CRL: got one without a client CA"}};
  for (const auto& [flags, says] : wrong) Expect(Serve(flags), 2, says);
}

// What a shell's unset variable leaves does not stand for an open server, or for plain text.
TEST_F(IdentityEndToEnd, AFileWithoutANameIsAUsageError) {
  for (const char* option : {"--identities", "--tls-certificate", "--tls-key", "--tls-client-ca"}) {
    Expect(Serve({option, ""}), 2, absl::StrCat(option, ": got \"\", allowed: its name"));
  }
  for (const char* option : {"--tls-ca", "--tls-certificate", "--tls-key", "--token-file"}) {
    Expect({"health", option, ""}, 2, absl::StrCat(option, ": got \"\", allowed: its name"));
  }
}

}  // namespace
}  // namespace reprise::testing
