// SPDX-License-Identifier: Apache-2.0
// Sessions that outlive their streams: a client that lost its connection goes on where it was, no
// answer is lost or repeated, and what nobody comes back for is freed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "grpcpp/create_channel.h"
#include "tests/service/proxy.h"
#include "tests/service/refusal.h"
#include "tests/service/scrape.h"
#include "tests/service/served_model.h"

namespace reprise::service {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kHourMs = 3'600'000;
constexpr uint32_t kMaxKept = 4;  // twice the pipeline's depth

ServedModel::Options Patient(int max_delay_us = 0) {
  ServedModel::Options options;
  options.server.max_resume_grace_ms = kHourMs;
  options.server.allow_administration = true;
  options.server.metrics_listen = "127.0.0.1:0";
  options.max_delay_us = max_delay_us;
  return options;
}

v1::StepRequest ContinueAll(const StreamClient& client) {
  v1::StepRequest step = client.NewStep();
  step.set_continue_all(true);
  return step;
}

// What a client has of its row, by the sequence number of the step.
using Tokens = std::map<uint64_t, uint32_t>;

void Take(const v1::StepStreamResponse& response, Tokens* tokens) {
  ASSERT_TRUE(response.has_step()) << response.ShortDebugString();
  ASSERT_EQ(response.step().rows().token_size(), 1);
  const bool is_new =
      tokens->emplace(response.step().sequence(), response.step().rows().token(0)).second;
  EXPECT_TRUE(is_new) << "answer " << response.step().sequence() << " came twice";
}

// Reads an answer; false at the end of the stream.
bool TakeNext(StreamClient& client, Tokens* tokens) {
  v1::StepStreamResponse response;
  if (!client.Receive(&response)) return false;
  Take(response, tokens);
  return true;
}

// Resumes behind what the client has, and takes the answers that it has not seen.
std::unique_ptr<StreamClient> Resume(ServedModel& served, const std::string& session,
                                     Tokens* tokens) {
  const uint64_t last_seen = tokens->empty() ? 0 : tokens->rbegin()->first;
  auto client = std::make_unique<StreamClient>(served.NewChannel(), ResumeOf(session, last_seen));
  EXPECT_TRUE(client->first_answer().has_resumed());
  const v1::Resumed& resumed = client->first_answer().resumed();
  EXPECT_EQ(resumed.last_sequence(), last_seen + resumed.num_answers());
  for (uint32_t i = 0; i < resumed.num_answers(); ++i) {
    EXPECT_TRUE(TakeNext(*client, tokens));
    EXPECT_EQ(tokens->rbegin()->first, last_seen + i + 1);
  }
  return client;
}

// The tokens of a row that lives until it has `count`, one at a time.
void GoOn(StreamClient& client, uint64_t count, Tokens* tokens) {
  while (tokens->size() < count) {
    ASSERT_TRUE(client.Send(ContinueAll(client)));
    client.CountStep();
    ASSERT_TRUE(TakeNext(client, tokens));
  }
}

void ExpectReference(ServedModel& served, const Tokens& tokens) {
  std::vector<uint32_t> values;
  uint64_t next = 1;
  for (const auto& [sequence, token] : tokens) {
    EXPECT_EQ(sequence, next++);
    values.push_back(token);
  }
  EXPECT_EQ(values, served.Reference(kOwnPrompt, tokens.size()));
}

v1::ListSessionsResponse List(ServedModel& served) {
  grpc::ClientContext context;
  v1::ListSessionsResponse response;
  const grpc::Status status = v1::StepService::NewStub(served.NewChannel())
                                  ->ListSessions(&context, v1::ListSessionsRequest(), &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

bool BecomesDetached(ServedModel& served) {
  return Eventually([&] {
    const v1::ListSessionsResponse sessions = List(served);
    return sessions.sessions_size() == 1 && !sessions.sessions(0).attached();
  });
}

bool BecomesFree(ServedModel& served) {
  return Eventually([&] {
    const engine::PoolInfo pool = served.engine().pool();
    return pool.free_blocks == pool.num_blocks - 1;
  });
}

// ---- nothing is lost, nothing comes twice ----

// A client that sends `sent` steps, of which it reads `read`, and is gone.
struct Loss {
  uint32_t sent;
  uint32_t read;
};

void LoseAndResume(ServedModel& served, const Loss& loss) {
  SCOPED_TRACE(::testing::Message() << loss.sent << " sent, " << loss.read << " read");
  constexpr uint64_t kCount = 12;
  Tokens tokens;
  std::string session;
  {
    StreamClient client(served.NewChannel(), OpenWithGrace(kHourMs));
    session = client.session();
    tokens[1] = client.StartRow(kRow, kOwnPrompt, 32);
    uint32_t num_read = 0;
    for (uint32_t i = 0; i < loss.sent; ++i) {
      ASSERT_TRUE(client.Send(ContinueAll(client)));
      client.CountStep();
      if (num_read < loss.read && i + 1 - num_read >= kMaxKept) {
        ASSERT_TRUE(TakeNext(client, &tokens));
        ++num_read;
      }
    }
    for (; num_read < loss.read; ++num_read) ASSERT_TRUE(TakeNext(client, &tokens));
    client.Cancel();
  }
  const auto resumed = Resume(served, session, &tokens);
  ASSERT_TRUE(resumed->opened());
  GoOn(*resumed, kCount, &tokens);
  ExpectReference(served, tokens);
  EXPECT_TRUE(resumed->Finish().ok());
  EXPECT_TRUE(BecomesFree(served));
}

TEST(Resume, NoAnswerIsLostOrRepeatedWhereverTheConnectionIsLost) {
  ServedModel served(Patient());
  for (uint32_t sent = 0; sent <= 7; ++sent) {
    for (uint32_t read = sent - std::min(sent, kMaxKept); read <= sent; ++read)
      LoseAndResume(served, {.sent = sent, .read = read});
  }
}

TEST(Resume, NoAnswerIsLostOrRepeatedWhileStepsAreInFlight) {
  ServedModel served(Patient(/*max_delay_us=*/300));
  for (int round = 0; round < 4; ++round) {
    for (uint32_t read = 1; read <= 5; ++read) LoseAndResume(served, {.sent = 5, .read = read});
  }
}

TEST(Resume, AfterABrokenConnectionTheTokensAreThoseOfAnUndisturbedLife) {
  ServedModel::Options options = Patient();
  options.server.listen = {"127.0.0.1:0"};
  ServedModel served(options);
  Tokens tokens;
  std::string session;
  {
    auto proxy = std::make_unique<Proxy>(PortOf(served.address()));
    StreamClient client(grpc::CreateChannel(proxy->address(), grpc::InsecureChannelCredentials()),
                        OpenWithGrace(kHourMs));
    session = client.session();
    EXPECT_EQ(client.first_answer().opened().resume_grace_ms(), kHourMs);
    EXPECT_EQ(client.first_answer().opened().max_kept_answers(), kMaxKept);
    tokens[1] = client.StartRow(kRow, kOwnPrompt, 32);
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(client.Send(ContinueAll(client)));
      client.CountStep();
    }
    proxy.reset();  // in the middle of everything
  }
  ASSERT_TRUE(BecomesDetached(served));
  EXPECT_EQ(Scrape(served.server().metrics_address())["reprise_sessions_detached"], 1);
  const auto resumed = Resume(served, session, &tokens);
  GoOn(*resumed, 8, &tokens);
  ExpectReference(served, tokens);
  EXPECT_EQ(Scrape(served.server().metrics_address())["reprise_sessions_detached"], 0);
  EXPECT_EQ(Scrape(served.server().metrics_address())["reprise_sessions_resumed_total"], 1);
}

TEST(Resume, AgainAndAgain) {
  ServedModel served(Patient(/*max_delay_us=*/100));
  Tokens tokens;
  auto client = std::make_unique<StreamClient>(served.NewChannel(), OpenWithGrace(kHourMs));
  const std::string session = client->session();
  tokens[1] = client->StartRow(kRow, kOwnPrompt, kMaxContext);
  while (tokens.size() < 30) {
    ASSERT_TRUE(client->Send(ContinueAll(*client)));
    client->Cancel();
    client = Resume(served, session, &tokens);
    ASSERT_TRUE(client->opened());
  }
  ExpectReference(served, tokens);
}

TEST(Resume, RefusedStepsAreNotAnsweredAgain) {
  ServedModel served(Patient());
  StreamClient client(served.NewChannel(), OpenWithGrace(kHourMs));
  Tokens tokens = {{1, client.StartRow(kRow, kOwnPrompt, 32)}};
  v1::StepRequest bad = client.NewStep();
  bad.add_drop(99);
  client.Refused(bad);
  client.Cancel();
  const auto resumed = Resume(served, client.session(), &tokens);
  EXPECT_EQ(resumed->first_answer().resumed().num_answers(), 0u);
  GoOn(*resumed, 3, &tokens);
  ExpectReference(served, tokens);
}

// ---- who has the session ----

TEST(Resume, TakesOverFromAStreamThatStillHasTheSession) {
  ServedModel served(Patient());
  StreamClient first(served.NewChannel(), OpenWithGrace(kHourMs));
  Tokens tokens = {{1, first.StartRow(kRow, kOwnPrompt, 32)}};
  const auto second = Resume(served, first.session(), &tokens);
  const grpc::Status status = first.Finish();
  EXPECT_EQ(status.error_code(), kAborted);
  EXPECT_THAT(status.error_message(), HasSubstr("another stream"));
  GoOn(*second, 5, &tokens);
  ExpectReference(served, tokens);
}

// The server learns by the keepalive alone that the first is gone, long after the test.
TEST(Resume, TakesOverFromAConnectionThatIsHalfOpen) {
  ServedModel::Options options = Patient();
  options.server.listen = {"127.0.0.1:0"};
  options.server.keepalive_ms = kHourMs;
  ServedModel served(options);
  Proxy proxy(PortOf(served.address()));
  StreamClient first(grpc::CreateChannel(proxy.address(), grpc::InsecureChannelCredentials()),
                     OpenWithGrace(kHourMs));
  Tokens tokens = {{1, first.StartRow(kRow, kOwnPrompt, 32)}};
  proxy.Freeze();
  const auto second = Resume(served, first.session(), &tokens);
  GoOn(*second, 5, &tokens);
  ExpectReference(served, tokens);
}

TEST(Resume, NeedsTheRightTokenAndDisturbsNobodyWithoutIt) {
  ServedModel served(Patient());
  StreamClient owner(served.NewChannel(), OpenWithGrace(kHourMs));
  Tokens tokens = {{1, owner.StartRow(kRow, kOwnPrompt, 32)}};
  std::string other = owner.session();
  other[3] = static_cast<char>(other[3] ^ 1);
  StreamClient guess(served.NewChannel(), ResumeOf(other, 1));
  EXPECT_EQ(guess.Finish().error_code(), kNotFound);
  StreamClient malformed(served.NewChannel(), ResumeOf("abc", 1));
  EXPECT_EQ(malformed.Finish().error_code(), kInvalid);
  GoOn(owner, 4, &tokens);
  ExpectReference(served, tokens);
}

TEST(Resume, NeedsTheIdentityThatOpenedTheSession) {
  ServedModel::Options options = Patient();
  for (const std::string name : {"owner", "thief"}) {
    Identity identity{.name = name, .tokens = {TokenDigest::Of(name)}};
    identity.roles.Add(Role::kStep);
    options.server.identities.push_back(identity);
  }
  ServedModel served(options);
  StreamClient owner(served.NewChannel(), OpenWithGrace(kHourMs), "owner");
  Tokens tokens = {{1, owner.StartRow(kRow, kOwnPrompt, 32)}};
  StreamClient thief(served.NewChannel(), ResumeOf(owner.session(), 1), "thief");
  EXPECT_EQ(thief.Finish().error_code(), kNotFound);
  GoOn(owner, 3, &tokens);
  owner.Cancel();
  StreamClient late(served.NewChannel(), ResumeOf(owner.session(), 3), "thief");
  EXPECT_EQ(late.Finish().error_code(), kNotFound);
  StreamClient again(served.NewChannel(), ResumeOf(owner.session(), 3), "owner");
  EXPECT_TRUE(again.opened());
  GoOn(again, 5, &tokens);
  ExpectReference(served, tokens);
}

TEST(Resume, FromAStepThatHasNotRunIsRefusedAndDisturbsNobody) {
  ServedModel served(Patient());
  StreamClient owner(served.NewChannel(), OpenWithGrace(kHourMs));
  Tokens tokens = {{1, owner.StartRow(kRow, kOwnPrompt, 32)}};
  StreamClient ahead(served.NewChannel(), ResumeOf(owner.session(), 2));
  const grpc::Status status = ahead.Finish();
  EXPECT_EQ(status.error_code(), kRange);
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr("got 2"), HasSubstr("at most 1")));
  GoOn(owner, 4, &tokens);
  ExpectReference(served, tokens);
}

TEST(Resume, FromBeforeWhatIsKeptIsRefusedAndMayBeTriedAgain) {
  ServedModel served(Patient());
  StreamClient owner(served.NewChannel(), OpenWithGrace(kHourMs));
  Tokens tokens = {{1, owner.StartRow(kRow, kOwnPrompt, 32)}};
  GoOn(owner, 8, &tokens);
  owner.Cancel();
  StreamClient behind(served.NewChannel(), ResumeOf(owner.session(), 3));
  const grpc::Status status = behind.Finish();
  EXPECT_EQ(status.error_code(), kRange);
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr("got 3"), HasSubstr("at least 4")));
  Tokens kept = {{4, tokens[4]}};
  const auto resumed = Resume(served, owner.session(), &kept);
  for (const auto& [sequence, token] : kept) EXPECT_EQ(token, tokens[sequence]);
  EXPECT_EQ(kept.size(), 5u);
  GoOn(*resumed, 10, &tokens);
  ExpectReference(served, tokens);
}

TEST(Resume, IsForSessionsThatWereOpenedForItAlone) {
  ServedModel served(Patient());
  StreamClient owner(served.NewChannel());
  EXPECT_EQ(owner.first_answer().opened().resume_grace_ms(), 0u);
  Tokens tokens = {{1, owner.StartRow(kRow, kOwnPrompt, 32)}};
  StreamClient other(served.NewChannel(), ResumeOf(owner.session(), 1));
  EXPECT_EQ(other.Finish().error_code(), kPrecondition);
  GoOn(owner, 3, &tokens);
  ExpectReference(served, tokens);
  owner.Cancel();
  EXPECT_TRUE(BecomesFree(served));
}

TEST(Resume, ServerGrantsNoMoreThanItsOwnGraceTime) {
  ServedModel::Options options;
  options.server.max_resume_grace_ms = 7000;
  ServedModel served(options);
  const auto granted = [&served](uint64_t asked) {
    return StreamClient(served.NewChannel(), OpenWithGrace(asked))
        .first_answer()
        .opened()
        .resume_grace_ms();
  };
  EXPECT_EQ(granted(0), 0u);
  EXPECT_EQ(granted(6999), 6999u);
  EXPECT_EQ(granted(7001), 7000u);
  EXPECT_EQ(granted(~uint64_t{0}), 7000u);
  options.server.max_resume_grace_ms = 0;
  ServedModel none(options);
  StreamClient client(none.NewChannel(), OpenWithGrace(5));
  EXPECT_EQ(client.first_answer().opened().resume_grace_ms(), 0u);
  client.StartRow(kRow, kOwnPrompt, 32);
  client.Cancel();
  EXPECT_TRUE(BecomesFree(none));
}

// ---- the end ----

TEST(Resume, AStreamThatIsClosedEndsItsSession) {
  ServedModel served(Patient());
  StreamClient client(served.NewChannel(), OpenWithGrace(kHourMs));
  client.StartRow(kRow, kOwnPrompt, 32);
  EXPECT_TRUE(client.Finish().ok());
  EXPECT_TRUE(BecomesFree(served));
  StreamClient late(served.NewChannel(), ResumeOf(client.session(), 1));
  EXPECT_EQ(late.Finish().error_code(), kNotFound);
}

TEST(Resume, AfterTheGraceTimeWhatTheSessionHeldIsFree) {
  ServedModel served(Patient());
  StreamClient client(served.NewChannel(), OpenWithGrace(1));
  client.StartRow(kRow, kOwnPrompt, 32);
  client.Cancel();
  EXPECT_TRUE(BecomesFree(served));
  EXPECT_EQ(served.engine().num_resident_rows(), 0u);
  StreamClient late(served.NewChannel(), ResumeOf(client.session(), 1));
  const grpc::Status status = late.Finish();
  EXPECT_EQ(status.error_code(), kNotFound);
  EXPECT_THAT(status.error_message(), HasSubstr("grace time of 1 ms"));
  // Counted a moment after what it held is free.
  EXPECT_TRUE(Eventually([&] {
    const Scrape now(served.server().metrics_address());
    return now["reprise_sessions_ended_total{reason=\"expired\"}"] == 1;
  }));
  EXPECT_EQ(List(served).sessions_size(), 0);
}

TEST(Resume, DetachedSessionsCountAsOpen) {
  ServedModel::Options options = Patient();
  options.server.max_sessions = 1;
  ServedModel served(options);
  StreamClient client(served.NewChannel(), OpenWithGrace(kHourMs));
  Tokens tokens = {{1, client.StartRow(kRow, kOwnPrompt, 32)}};
  client.Cancel();
  ASSERT_TRUE(BecomesDetached(served));
  StreamClient other(served.NewChannel());
  EXPECT_EQ(other.Finish().error_code(), kExhausted);
  const auto resumed = Resume(served, client.session(), &tokens);
  EXPECT_TRUE(resumed->Finish().ok());
  EXPECT_TRUE(BecomesFree(served));
  EXPECT_TRUE(StreamClient(served.NewChannel()).opened());
}

TEST(Resume, DrainDoesNotWaitForDetachedSessions) {
  ServedModel served(Patient());
  StreamClient client(served.NewChannel(), OpenWithGrace(kHourMs));
  client.StartRow(kRow, kOwnPrompt, 32);
  StreamClient attached(served.NewChannel(), OpenWithGrace(kHourMs));
  attached.Allocate(2);
  client.Cancel();
  ASSERT_TRUE(Eventually([&] { return !List(served).sessions(0).attached(); }));
  EXPECT_TRUE(served.server().Drain());
  const engine::PoolInfo pool = served.engine().pool();
  EXPECT_EQ(pool.free_blocks, pool.num_blocks - 1);
  EXPECT_EQ(attached.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(Resume, UnaryCallsWorkWhileTheSessionIsDetached) {
  ServedModel served(Patient());
  StreamClient client(served.NewChannel(), OpenWithGrace(kHourMs));
  Tokens tokens = {{1, client.StartRow(kRow, kOwnPrompt, 32)}};
  client.Cancel();
  ASSERT_TRUE(BecomesDetached(served));
  EXPECT_EQ(client.Allocate(1).size(), 1u);
  v1::StepRequest step = client.NewStep();
  step.set_continue_all(true);
  grpc::ClientContext context;
  v1::StepResponse response;
  const grpc::Status status = client.stub().Step(&context, step, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  tokens[2] = response.rows().token(0);
  StreamClient resumed(served.NewChannel(), ResumeOf(client.session(), 1));
  // Its answer was the unary call's to take.
  EXPECT_EQ(resumed.first_answer().resumed().last_sequence(), 2u);
  EXPECT_EQ(resumed.first_answer().resumed().num_answers(), 0u);
  GoOn(resumed, 5, &tokens);
  ExpectReference(served, tokens);
}

}  // namespace
}  // namespace reprise::service
