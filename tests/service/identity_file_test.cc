// SPDX-License-Identifier: Apache-2.0
// The file of identities: what it may say, every refusal, and who may be able to write it.
#include "service/identity/identity_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "service/identity/private_file.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/tiny_model.h"

namespace reprise::service {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSecret[] = "correct-horse-battery-staple";
// Of kSecret.
constexpr char kDigest[] = "87cbebfeebc05f7c54ac9336c4b4bbec831227a641951a4bde7edd56020f8590";
constexpr char kEmptyDigest[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

std::string FileOf(const std::string& identities) {
  return absl::StrCat("{\"identities\": [", identities, "]}");
}

// One that is right, with `fields` besides its name and role.
std::string With(const std::string& fields) {
  return FileOf(absl::StrCat(R"({"name": "chat", "roles": ["step"], )", fields, "}"));
}

std::string Refusal(const std::string& text) {
  const auto parsed = ParseIdentities(text, "who.json");
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
  const std::string message(parsed.status().message());
  EXPECT_THAT(message, AllOf(HasSubstr("who.json: "), HasSubstr("got "), HasSubstr("allowed ")));
  EXPECT_THAT(message, Not(HasSubstr(kSecret)));
  return message;
}

TEST(IdentityFile, SaysWhoTheyAreAndWhatTheyGet) {
  const auto parsed = ParseIdentities(
      absl::StrReplaceAll(
          FileOf(R"({"name": "chat", "roles": ["step", "observe"], "token_sha256": ["DIGEST"],
                     "unix_users": [0, 1000], "certificate_names": ["dns:chat.example", "cn:chat",
                     "uri:spiffe://example/chat"], "max_sessions": 2, "max_rows": 8,
                     "max_blocks": 100, "weight": 3, "priority": 9},
                    {"name": "ops.1_b-c", "roles": ["administer"], "unix_users": [7]})"),
          {{"DIGEST", kDigest}}),
      "who.json");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->size(), 2u);
  const Identity& chat = (*parsed)[0];
  EXPECT_EQ(chat.name, "chat");
  EXPECT_EQ(chat.roles.ToText(), "step, observe");
  ASSERT_EQ(chat.tokens.size(), 1u);
  EXPECT_TRUE(chat.tokens[0].Is(*TokenDigest::FromHex(kDigest)));
  EXPECT_THAT(chat.unix_users, ElementsAre(0, 1000));
  EXPECT_THAT(chat.certificate_names,
              ElementsAre("dns:chat.example", "cn:chat", "uri:spiffe://example/chat"));
  EXPECT_EQ(chat.quota.max_sessions, 2u);
  EXPECT_EQ(chat.quota.max_rows, 8u);
  EXPECT_EQ(chat.quota.max_blocks, 100u);
  EXPECT_EQ(chat.weight, 3u);
  EXPECT_EQ(chat.priority, 9u);
  const Identity& ops = (*parsed)[1];
  EXPECT_EQ(ops.roles.ToText(), "administer");
  EXPECT_EQ(ops.quota.max_sessions, 0u);
  EXPECT_EQ(ops.weight, 1u);
  EXPECT_EQ(ops.priority, 0u);
}

TEST(IdentityFile, RolesImplyToObserveAndNothingElse) {
  Roles step, observe, administer;
  step.Add(Role::kStep);
  observe.Add(Role::kObserve);
  administer.Add(Role::kAdminister);
  for (const Roles& roles : {step, observe, administer}) EXPECT_TRUE(roles.Allow(Role::kObserve));
  EXPECT_TRUE(step.Allow(Role::kStep));
  EXPECT_FALSE(observe.Allow(Role::kStep));
  EXPECT_FALSE(administer.Allow(Role::kStep));
  EXPECT_FALSE(step.Allow(Role::kAdminister));
  EXPECT_FALSE(observe.Allow(Role::kAdminister));
  EXPECT_FALSE(Roles().Allow(Role::kObserve));
}

// The parser looks one character ahead of a number, which may be the line's end.
TEST(IdentityFile, ErrorsNameTheLine) {
  const std::string file =
      "{\n\"identities\":\n[\n{\"name\": \"a\", \"roles\": [\"step\"],\n\"unix_users\":\n[1,\n2],\n"
      "\"weight\": 1\n,\"max_rows\":\n4},\n\n{\"name\": \"b\",\n\"roles\": [\"step\"],\n"
      "\"unix_users\": [3]}]}";
  ASSERT_TRUE(ParseIdentities(file, "who.json").ok());
  const std::vector<std::pair<std::pair<std::string, std::string>, std::string>> changes = {
      {{"\"weight\": 1", "\"weight\": 1000"}, "line 8: identities[0].weight: got 1000"},
      {{"4}", "0}"}, "line 10: identities[0].max_rows: got 0"},
      {{"2]", "-2]"}, "line 7: identities[0].unix_users[1]: got -2"},
      {{"[1,", "[\"u\","}, "line 6: identities[0].unix_users[0]: got a text"},
      {{"\"b\",\n\"roles\": [\"step\"]", "\"b\",\n\"roles\": [\"s\"]"},
       "line 13: identities[1].roles[0]: got \"s\""},
      {{"\"b\"", "\"a\""}, "line 12: identities[1].name: got \"a\" again"},
      {{"[3]", "[2]"}, "line 14: identities[1].unix_users: got one that stands before"},
      {{"\"b\",\n\"roles\": [\"step\"]", "\"b\""},
       "line 12: identities[1]: got no field \"roles\""},
      {{"\"max_rows\":\n4", "\"name\":\n\"c\""}, "line 9: got the field \"name\" twice"}};
  for (const auto& [change, says] : changes) {
    const std::string wrong = absl::StrReplaceAll(file, {change});
    ASSERT_NE(wrong, file);
    EXPECT_THAT(Refusal(wrong), HasSubstr("who.json: " + says));
  }
}

struct BadFile {
  std::string name;
  std::string text;
  std::string says;
};

class BadFiles : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadFiles, AreRefusedByPlace) {
  EXPECT_THAT(Refusal(GetParam().text), HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    Each, BadFiles,
    ::testing::Values(
        BadFile{"Empty", "", "line 1, column 1: got no JSON"},
        BadFile{"NoJson", "{\n  \"identities\": [\n  correct-horse-battery-staple", "line 3"},
        BadFile{"AList", "[]", "got a list, allowed an object with the fields identities"},
        BadFile{"NoIdentities", "{}", "got no field \"identities\""},
        BadFile{"UnknownFieldAbove", R"({"identity": []})", "got the field \"identity\", allowed"},
        BadFile{"EmptyList", FileOf(""), "identities: got an empty list"},
        BadFile{"NotAList", R"({"identities": {}})", "identities: got an object, allowed a list"},
        BadFile{"NotAnObject", FileOf("7"), "identities[0]: got a number, allowed an object"},
        BadFile{"UnknownField", With(R"("unix_users": [1], "tokens": [])"),
                "identities[0]: got the field \"tokens\", allowed certificate_names, max_blocks"},
        BadFile{"FieldTwice", With(R"("unix_users": [1], "name": "other")"),
                "got the field \"name\" twice in one object"},
        BadFile{"NoName", FileOf(R"({"roles": ["step"], "unix_users": [1]})"),
                "identities[0]: got no field \"name\""},
        BadFile{"NameOfNumber", FileOf(R"({"name": 3, "roles": ["step"], "unix_users": [1]})"),
                "identities[0].name: got a number"},
        BadFile{"NameWithSpace",
                FileOf(R"({"name": "a b\n", "roles": ["step"], "unix_users": [1]})"),
                R"(identities[0].name: got "a b\n")"},
        BadFile{"EmptyName", FileOf(R"({"name": "", "roles": ["step"], "unix_users": [1]})"),
                "identities[0].name: got \"\""},
        BadFile{"NoRoles", FileOf(R"({"name": "a", "unix_users": [1]})"),
                "identities[0]: got no field \"roles\", allowed any of step, observe, administer"},
        BadFile{"EmptyRoles", FileOf(R"({"name": "a", "roles": [], "unix_users": [1]})"),
                "identities[0].roles: got an empty list"},
        BadFile{"UnknownRole", FileOf(R"({"name": "a", "roles": ["root"], "unix_users": [1]})"),
                "identities[0].roles[0]: got \"root\""},
        BadFile{"RoleTwice",
                FileOf(R"({"name": "a", "roles": ["step", "step"], "unix_users": [1]})"),
                "identities[0].roles[1]: got \"step\" again"},
        BadFile{"NoProof", FileOf(R"({"name": "a", "roles": ["step"]})"),
                "identities[0]: got nothing that proves it"},
        BadFile{"EmptyProof", With(R"("unix_users": [1], "token_sha256": [])"),
                "identities[0].token_sha256: got an empty list"},
        BadFile{"PlainToken", With(R"("token_sha256": ["correct-horse-battery-staple"])"),
                "identities[0].token_sha256[0]: got another text, of 28 bytes, allowed 64"},
        BadFile{"TokenOfNumber", With(R"("token_sha256": [3])"),
                "identities[0].token_sha256[0]: got a number"},
        BadFile{"DigestOfNothing",
                With(absl::StrCat(R"("token_sha256": [")", kEmptyDigest, R"("])")),
                "identities[0].token_sha256[0]: got that of an empty text"},
        BadFile{"TokenTwice",
                With(absl::StrCat(R"("token_sha256": [")", kDigest, R"(", ")", kDigest, R"("])")),
                "identities[0].token_sha256: got one that stands before"},
        BadFile{"UserByName", With(R"("unix_users": ["root"])"),
                "identities[0].unix_users[0]: got a text, allowed the number of a user"},
        BadFile{"NegativeUser", With(R"("unix_users": [-1])"),
                "identities[0].unix_users[0]: got -1"},
        BadFile{"NoUserAtAll", With(R"("unix_users": [4294967295])"),
                "identities[0].unix_users[0]: got 4294967295"},
        BadFile{"UserOfOtherNamespaces", With(R"("unix_users": [65534])"),
                "identities[0].unix_users[0]: got 65534, whom the system names"},
        BadFile{"CertificateNameWithoutKind", With(R"("certificate_names": ["chat"])"),
                "identities[0].certificate_names[0]: got \"chat\", allowed \"dns:NAME\""},
        BadFile{"EmptyCertificateName", With(R"("certificate_names": ["dns:"])"),
                "identities[0].certificate_names[0]: got \"dns:\""},
        BadFile{"Wildcard", With(R"("certificate_names": ["dns:*.example"])"), "without '*'"},
        BadFile{"NameTwice", FileOf(R"({"name": "a", "roles": ["step"], "unix_users": [1]},
                          {"name": "a", "roles": ["step"], "unix_users": [2]})"),
                "identities[1].name: got \"a\" again"},
        BadFile{"UserOfTwo", FileOf(R"({"name": "a", "roles": ["step"], "unix_users": [1]},
                          {"name": "b", "roles": ["step"], "unix_users": [1]})"),
                "identities[1].unix_users: got one that stands before"},
        BadFile{"CertificateNameOfTwo",
                FileOf(R"({"name": "a", "roles": ["step"], "certificate_names": ["cn:x"]},
                          {"name": "b", "roles": ["step"], "certificate_names": ["cn:x"]})"),
                "identities[1].certificate_names: got one that stands before"},
        BadFile{"NoSessions", With(R"("unix_users": [1], "max_sessions": 0)"),
                "identities[0].max_sessions: got 0, allowed a whole number from 1 to 65536"},
        BadFile{"QuotaOfText", With(R"("unix_users": [1], "max_rows": "8")"),
                "identities[0].max_rows: got a text"},
        BadFile{"NegativeQuota", With(R"("unix_users": [1], "max_blocks": -8)"),
                "identities[0].max_blocks: got -8"},
        BadFile{"HalfAWeight", With(R"("unix_users": [1], "weight": 0.5)"),
                "identities[0].weight: got 0.5, allowed a whole number from 1 to 100"},
        BadFile{"TooHeavy", With(R"("unix_users": [1], "weight": 101)"),
                "identities[0].weight: got 101"},
        BadFile{"TooUrgent", With(R"("unix_users": [1], "priority": 10)"),
                "identities[0].priority: got 10, allowed a whole number from 0 to 9"}),
    [](const auto& info) { return info.param.name; });

TEST(CheckIdentities, HoldsForThoseThatNoFileBrought) {
  const Identity good{.name = "chat", .tokens = {TokenDigest::Of(kSecret)}};
  const auto says = [&](const auto& change) {
    Identity bad{.name = "other"};
    change(bad);
    const absl::Status status = CheckIdentities({good, bad});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_TRUE(CheckIdentities({}).ok());
  EXPECT_TRUE(CheckIdentities({good, {.name = "other"}}).ok());
  EXPECT_EQ(says([](Identity& bad) { bad.weight = 0; }),
            "identities[1].weight: got 0, allowed a whole number from 1 to 100");
  EXPECT_THAT(says([](Identity& bad) { bad.weight = 101; }), HasSubstr("got 101"));
  EXPECT_EQ(says([](Identity& bad) { bad.priority = 10; }),
            "identities[1].priority: got 10, allowed a whole number from 0 to 9");
  EXPECT_THAT(says([](Identity& bad) { bad.name = ""; }), HasSubstr("identities[1].name: got "));
  EXPECT_THAT(says([](Identity& bad) { bad.name = "a\n"; }), HasSubstr("identities[1].name: got "));
  EXPECT_THAT(says([](Identity& bad) { bad.name = "chat"; }), HasSubstr("got \"chat\" again"));
  EXPECT_EQ(says([](Identity& bad) { bad.tokens = {TokenDigest::Of(kSecret)}; }),
            "identities[1].token_sha256: got one that stands before, allowed each once");
  EXPECT_THAT(says([](Identity& bad) { bad.unix_users = {7, 7}; }), HasSubstr("unix_users: got "));
}

TEST(TokenDigest, IsTheSha256OfTheToken) {
  // FIPS 180-2, appendix B.1.
  const auto abc =
      TokenDigest::FromHex("BA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  ASSERT_TRUE(abc.has_value());
  EXPECT_TRUE(abc->Is(TokenDigest::Of("abc")));
  EXPECT_FALSE(abc->Is(TokenDigest::Of("abd")));
  EXPECT_FALSE(TokenDigest::FromHex("BA78").has_value());
  EXPECT_FALSE(TokenDigest::FromHex(std::string(64, 'g')).has_value());
}

TEST(TokenDigest, TokensAreOfTheCharactersThatBearersSend) {
  EXPECT_TRUE(IsBearerToken("aZ09-._~+/="));
  EXPECT_FALSE(IsBearerToken(""));
  EXPECT_FALSE(IsBearerToken("a b"));
  EXPECT_FALSE(IsBearerToken("a\n"));
  EXPECT_TRUE(IsBearerToken(std::string(512, 'a')));
  EXPECT_FALSE(IsBearerToken(std::string(513, 'a')));
}

class PrivateFiles : public ::testing::Test {
 protected:
  absl::StatusOr<std::string> Read(mode_t mode, FileKind kind) {
    std::ofstream(path_) << "text";
    EXPECT_EQ(chmod(path_.c_str(), mode), 0);
    return ReadPrivateFile("token", path_, kind);
  }

  testing::TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/file";
};

TEST_F(PrivateFiles, ThatOthersMayWriteAreRefused) {
  for (const mode_t mode : {0600u, 0644u, 0444u, 0640u}) {
    const auto text = Read(mode, FileKind::kTrusted);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(*text, "text");
  }
  for (const mode_t mode : {0620u, 0602u, 0666u}) {
    const absl::Status status = Read(mode, FileKind::kTrusted).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << mode;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(absl::StrCat("token file ", path_)), HasSubstr("got mode 06"),
                      HasSubstr("allowed: none that lets others write it")));
  }
}

TEST_F(PrivateFiles, SecretsThatOthersMayReadAreRefused) {
  EXPECT_TRUE(Read(0600, FileKind::kSecret).ok());
  EXPECT_TRUE(Read(0640, FileKind::kSecret).ok());
  for (const mode_t mode : {0644u, 0604u, 0660u}) {
    EXPECT_EQ(Read(mode, FileKind::kSecret).status().code(), absl::StatusCode::kPermissionDenied);
  }
}

TEST_F(PrivateFiles, OfSomebodyElseAreRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may give a file away";
  ASSERT_TRUE(Read(0600, FileKind::kTrusted).ok());
  ASSERT_EQ(chown(path_.c_str(), 12345, static_cast<gid_t>(-1)), 0);
  const auto read = ReadPrivateFile("token", path_, FileKind::kTrusted);
  EXPECT_EQ(read.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(read.status().message()), HasSubstr("got a file of user 12345"));
}

TEST_F(PrivateFiles, HaveToBeThere) {
  EXPECT_EQ(ReadPrivateFile("token", path_, FileKind::kTrusted).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadPrivateFile("token", directory_.path(), FileKind::kTrusted).status().code(),
            absl::StatusCode::kInvalidArgument);
  std::ofstream(path_) << std::string((1 << 20) + 1, 'x');
  EXPECT_EQ(ReadPrivateFile("token", path_, FileKind::kTrusted).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(PrivateFiles, AreNoPipesAndAreNotWaitedFor) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const absl::Status status = ReadPrivateFile("token", path_, FileKind::kSecret).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("got a pipe, allowed: a regular file"));
  EXPECT_THAT(
      std::string(ReadPrivateFile("token", "/dev/null", FileKind::kTrusted).status().message()),
      HasSubstr("got a device"));
}

TEST_F(PrivateFiles, IdentitiesAreReadFromThem) {
  std::ofstream(path_) << With(R"("unix_users": [1])");
  ASSERT_EQ(chmod(path_.c_str(), 0644), 0);
  EXPECT_TRUE(ReadIdentities(path_).ok());
  ASSERT_EQ(chmod(path_.c_str(), 0666), 0);
  EXPECT_EQ(ReadIdentities(path_).status().code(), absl::StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace reprise::service
