// SPDX-License-Identifier: Apache-2.0
// Who may call what: every call with every role and without one, tokens, users of unix sockets, and
// sessions that are another identity's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpc/reflection/v1/reflection.grpc.pb.h"
#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "tests/service/refusal.h"
#include "tests/service/scrape.h"
#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Identity IdentityOf(const std::string& name, const std::vector<Role>& roles,
                    const std::string& token) {
  Identity identity{.name = name};
  for (const Role role : roles) identity.roles.Add(role);
  if (!token.empty()) identity.tokens = {TokenDigest::Of(token)};
  return identity;
}

// Tokens are "token-" and the name.
std::vector<Identity> Everyone() {
  std::vector<Identity> identities = {
      IdentityOf("stepper", {Role::kStep}, "token-stepper"),
      IdentityOf("other", {Role::kStep}, "token-other"),
      IdentityOf("observer", {Role::kObserve}, "token-observer"),
      IdentityOf("admin", {Role::kAdminister}, "token-admin"),
  };
  identities[0].tokens.push_back(TokenDigest::Of("token-stepper-new"));
  return identities;
}

ServedModel::Options With(std::vector<Identity> identities) {
  ServedModel::Options options;
  options.server.identities = std::move(identities);
  return options;
}

// ---- every call with every role ----

template <typename Service, typename Request, typename Response>
grpc::Status Reflect(const std::shared_ptr<grpc::Channel>& channel, const std::string& token) {
  grpc::ClientContext context;
  AddToken(token, &context);
  const auto stub = Service::NewStub(channel);
  const auto stream = stub->ServerReflectionInfo(&context);
  Request request;
  Response response;
  request.set_list_services("");
  if (stream->Write(request)) stream->Read(&response);
  stream->WritesDone();
  return stream->Finish();
}

grpc::Status OpenStream(const std::shared_ptr<grpc::Channel>& channel, const std::string& token) {
  StreamClient client(channel, token);
  return client.Finish();
}

struct Call {
  std::string name;
  Role role;
  std::function<grpc::Status(const std::shared_ptr<grpc::Channel>&, const std::string& token)> make;
};

Call Unary(const std::string& name, Role role) {
  return {name, role, [name](const auto& channel, const std::string& token) {
            return CallWithBytes(channel, name, "", token);
          }};
}

class EveryCall : public ::testing::TestWithParam<Call> {
 protected:
  grpc::Status Make(const std::string& token) {
    return GetParam().make(served_.NewChannel(), token);
  }
  ServedModel served_{With(Everyone())};
};

TEST_P(EveryCall, NeedsItsRole) {
  const std::vector<std::pair<std::string, std::vector<Role>>> callers = {
      {"stepper", {Role::kStep, Role::kObserve}},
      {"observer", {Role::kObserve}},
      {"admin", {Role::kAdminister, Role::kObserve}}};
  for (const auto& [name, roles] : callers) {
    SCOPED_TRACE(name);
    const bool allowed = std::find(roles.begin(), roles.end(), GetParam().role) != roles.end();
    const grpc::Status status = Make("token-" + name);
    EXPECT_NE(status.error_code(), kUnknown);
    EXPECT_EQ(status.error_code() == kDenied, !allowed) << status.error_message();
    if (allowed) continue;
    EXPECT_THAT(status.error_message(),
                AllOf(HasSubstr("got the identity " + name), HasSubstr("allowed with the role "),
                      HasSubstr(std::string(NameOf(GetParam().role)))));
  }
}

TEST_P(EveryCall, NeedsAnIdentity) {
  const grpc::Status status = Make("");
  EXPECT_EQ(status.error_code(), kUnknown);
  EXPECT_THAT(status.error_message(),
              AllOf(HasSubstr("got no proof"), HasSubstr("allowed: a bearer token")));
}

TEST_P(EveryCall, RefusesATokenOfNobodyWithoutRepeatingIt) {
  const grpc::Status status = Make("token-of-nobody");
  EXPECT_EQ(status.error_code(), kUnknown);
  EXPECT_THAT(status.error_message(),
              AllOf(HasSubstr("got a token of no identity"), Not(HasSubstr("nobody"))));
}

INSTANTIATE_TEST_SUITE_P(
    Each, EveryCall,
    ::testing::Values(
        Unary("Describe", Role::kObserve), Unary("Step", Role::kStep),
        Unary("Allocate", Role::kStep), Unary("Free", Role::kStep),
        Unary("ShareBlocks", Role::kStep), Unary("AdoptBlocks", Role::kStep),
        Unary("ReleaseBlocks", Role::kStep), Unary("SetAttentionTree", Role::kAdminister),
        Unary("ListSessions", Role::kAdminister), Unary("EvictSession", Role::kAdminister),
        Unary("ReloadFiles", Role::kAdminister), Unary("SetBuckets", Role::kAdminister),
        Unary("StartProfile", Role::kAdminister), Unary("ReadTelemetry", Role::kAdminister),
        Unary("SwapOutState", Role::kStep), Call{"StepStream", Role::kStep, OpenStream},
        Call{"Reflection", Role::kObserve,
             Reflect<grpc::reflection::v1::ServerReflection,
                     grpc::reflection::v1::ServerReflectionRequest,
                     grpc::reflection::v1::ServerReflectionResponse>},
        Call{"OldReflection", Role::kObserve,
             Reflect<grpc::reflection::v1alpha::ServerReflection,
                     grpc::reflection::v1alpha::ServerReflectionRequest,
                     grpc::reflection::v1alpha::ServerReflectionResponse>}),
    [](const auto& info) { return info.param.name; });

TEST(Identity, HealthIsForEveryone) {
  ServedModel served(With(Everyone()));
  EXPECT_EQ(CheckHealth(served.NewChannel()), grpc::health::v1::HealthCheckResponse::SERVING);
}

TEST(Identity, StrangersAreNotToldThatTheServerLoads) {
  ServedModel::Options options = With(Everyone());
  options.attach = false;
  ServedModel served(options);
  EXPECT_EQ(CallWithBytes(served.NewChannel(), "Describe", "").error_code(), kUnknown);
  EXPECT_EQ(OpenStream(served.NewChannel(), "").error_code(), kUnknown);
  EXPECT_EQ(CallWithBytes(served.NewChannel(), "Describe", "", "token-admin").error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST(Identity, WithoutAnyEveryoneMayDoEverythingWhateverTheySend) {
  ServedModel served;
  EXPECT_TRUE(CallWithBytes(served.NewChannel(), "Describe", "", "token-of-nobody").ok());
  EXPECT_TRUE(StreamClient(served.NewChannel(), "token-of-nobody").opened());
}

TEST(Identity, CallsThatAreDeniedAreCountedByCode) {
  ServedModel::Options options = With(Everyone());
  options.server.metrics_listen = "127.0.0.1:0";
  ServedModel served(options);
  const auto channel = served.NewChannel();
  for (const char* method : {"Describe", "Step"}) {
    EXPECT_EQ(CallWithBytes(channel, method, "").error_code(), kUnknown);
  }
  EXPECT_EQ(OpenStream(channel, "token-of-nobody").error_code(), kUnknown);
  EXPECT_EQ(OpenStream(channel, "token-observer").error_code(), kDenied);
  EXPECT_TRUE(CallWithBytes(channel, "Describe", "", "token-observer").ok());
  const Scrape now(served.server().metrics_address());
  EXPECT_EQ(now["reprise_calls_denied_total{code=\"UNAUTHENTICATED\"}"], 3);
  EXPECT_EQ(now["reprise_calls_denied_total{code=\"PERMISSION_DENIED\"}"], 1);
}

// ---- tokens ----

grpc::Status DescribeWith(const ServedModel& served, const std::vector<std::string>& headers) {
  grpc::ClientContext context;
  for (const std::string& header : headers) context.AddMetadata("authorization", header);
  v1::DescribeResponse response;
  return v1::StepService::NewStub(served.NewChannel())
      ->Describe(&context, v1::DescribeRequest(), &response);
}

TEST(Tokens, AnIdentityMayHaveSeveral) {
  ServedModel served(With(Everyone()));
  EXPECT_TRUE(CallWithBytes(served.NewChannel(), "Describe", "", "token-stepper").ok());
  EXPECT_TRUE(CallWithBytes(served.NewChannel(), "Describe", "", "token-stepper-new").ok());
}

TEST(Tokens, TheSchemeIsBearerInAnyCase) {
  ServedModel served(With(Everyone()));
  EXPECT_TRUE(DescribeWith(served, {"bearer token-admin"}).ok());
  EXPECT_TRUE(DescribeWith(served, {"BEARER token-admin"}).ok());
  const std::vector<std::vector<std::string>> refused = {
      {"token-admin"},
      {"Basic token-admin"},
      {"Bearer"},
      {"Bearer "},
      {"Bearer  token-admin"},
      {"Bearer token-admin token-admin"},
      {absl::StrCat("Bearer ", std::string(513, 'a'))},
      {"Bearer token-admin", "Bearer token-admin"},
      {"Bearer token-admi"},
      {"Bearer token-admin1"},
      {"Bearer Token-admin"}};
  for (const std::vector<std::string>& headers : refused) {
    const grpc::Status status = DescribeWith(served, headers);
    EXPECT_EQ(status.error_code(), kUnknown) << headers[0];
    EXPECT_THAT(status.error_message(), Not(HasSubstr("admi")));
  }
}

// ---- users of unix sockets ----

Identity OfUser(const std::string& name, uint32_t user) {
  Identity identity = IdentityOf(name, {Role::kStep}, "");
  identity.unix_users = {user};
  return identity;
}

TEST(UnixUsers, AreKnownByTheKernelsWord) {
  ServedModel served(With({OfUser("me", geteuid()), OfUser("another", geteuid() + 1)}));
  StreamClient client(served.NewChannel());
  ASSERT_TRUE(client.opened());
  std::vector<uint32_t> tokens = {client.StartRow(kRow, kOwnPrompt, kMaxContext)};
  for (const uint32_t token : Continue(client, kRow, 5)) tokens.push_back(token);
  EXPECT_EQ(tokens, served.Reference(kOwnPrompt, tokens.size()));
}

TEST(UnixUsers, ThatNobodyNamedAreStrangers) {
  ServedModel served(With({OfUser("another", geteuid() + 1)}));
  EXPECT_EQ(CallWithBytes(served.NewChannel(), "Describe", "").error_code(), kUnknown);
}

// What a client sends cannot stand for what the server writes into the connection.
TEST(UnixUsers, CannotBeClaimedByMetadata) {
  ServedModel served(With({OfUser("another", geteuid() + 1)}));
  for (const char* name : {"reprise_account", "x-reprise-account", "transport_security_type",
                           "x509_common_name", "peer_dns"}) {
    grpc::ClientContext context;
    context.AddMetadata(name, "0");
    v1::DescribeResponse response;
    const grpc::Status status = v1::StepService::NewStub(served.NewChannel())
                                    ->Describe(&context, v1::DescribeRequest(), &response);
    EXPECT_EQ(status.error_code(), kUnknown) << name;
  }
}

TEST(UnixUsers, AreNobodyOverTcp) {
  ServedModel::Options options = With({OfUser("me", geteuid())});
  options.server.listen = {"127.0.0.1:0"};
  ServedModel served(options);
  EXPECT_EQ(CallWithBytes(served.NewChannel(), "Describe", "").error_code(), kUnknown);
}

TEST(UnixUsers, ATokenGoesBeforeTheUser) {
  ServedModel served(
      With({OfUser("me", geteuid()), IdentityOf("admin", {Role::kAdminister}, "t")}));
  EXPECT_EQ(CallWithBytes(served.NewChannel(), "Allocate", "", "t").error_code(), kDenied);
  EXPECT_EQ(CallWithBytes(served.NewChannel(), "Describe", "", "wrong").error_code(), kUnknown);
}

TEST(UnixUsers, ManyCallsOfOneConnectionAtOnceAreOneUsers) {
  ServedModel served(With({OfUser("me", geteuid())}));
  const auto channel = served.NewChannel();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&channel] {
      for (int j = 0; j < 50; ++j) EXPECT_TRUE(CallWithBytes(channel, "Describe", "").ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// ---- sessions ----

TEST(Sessions, OfAnotherIdentityAreLikeThoseThatDoNotExist) {
  ServedModel served(With(Everyone()));
  StreamClient owner(served.NewChannel(), "token-stepper");
  StreamClient other(served.NewChannel(), "token-other");
  owner.StartRow(kRow, kOwnPrompt, kMaxContext);
  const auto call = [&other](const std::string& session, const std::string& token) {
    std::vector<grpc::Status> all;
    const auto context_of = [&token] {
      auto context = std::make_unique<grpc::ClientContext>();
      AddToken(token, context.get());
      return context;
    };
    v1::AllocateRequest allocate;
    allocate.set_session(session);
    allocate.set_count(1);
    v1::AllocateResponse allocated;
    all.push_back(other.stub().Allocate(context_of().get(), allocate, &allocated));
    v1::FreeRequest free;
    free.set_session(session);
    v1::FreeResponse freed;
    all.push_back(other.stub().Free(context_of().get(), free, &freed));
    v1::StepRequest step;
    step.set_session(session);
    step.set_sequence(2);
    step.set_continue_all(true);
    v1::StepResponse stepped;
    all.push_back(other.stub().Step(context_of().get(), step, &stepped));
    return all;
  };
  const std::vector<grpc::Status> stolen = call(owner.session(), "token-other");
  const std::vector<grpc::Status> unknown = call(std::string(16, 'x'), "token-other");
  for (size_t i = 0; i < stolen.size(); ++i) {
    EXPECT_EQ(stolen[i].error_code(), kNotFound) << i;
    EXPECT_EQ(stolen[i].error_message(), unknown[i].error_message()) << i;
  }
  for (const grpc::Status& status : call(owner.session(), "token-stepper")) {
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  EXPECT_EQ(other
                .Refused([&] {
                  v1::StepRequest step = other.NewStep();
                  step.set_session(owner.session());
                  return step;
                }())
                .code(),
            kDenied);
}

TEST(Sessions, AreTheIdentitysOnAllOfItsConnections) {
  ServedModel served(With(Everyone()));
  StreamClient owner(served.NewChannel(), "token-stepper");
  grpc::ClientContext context;
  AddToken("token-stepper-new", &context);
  v1::AllocateRequest request;
  request.set_session(owner.session());
  request.set_count(1);
  v1::AllocateResponse response;
  EXPECT_TRUE(
      v1::StepService::NewStub(served.NewChannel())->Allocate(&context, request, &response).ok());
}

}  // namespace
}  // namespace reprise::service
