// SPDX-License-Identifier: Apache-2.0
// The access log: what its lines say, and files that are renamed, full, or not to be opened.
#include "service/access_log/access_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/service/scrape.h"
#include "tests/service/served_model.h"
#include "tests/testing/tiny_model.h"

namespace reprise::service {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";

// A line that is not JSON is a test failure.
std::vector<json> LinesOf(const std::string& path) {
  std::ifstream file(path);
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(json::parse(line, nullptr, false));
    EXPECT_TRUE(lines.back().is_object()) << line;
  }
  return lines;
}

std::string TextOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class AccessLogTest : public ::testing::Test {
 protected:
  std::unique_ptr<AccessLog> Open(const AccessLogOptions& options) {
    auto log = AccessLog::Open(options);
    EXPECT_TRUE(log.ok()) << log.status();
    return *std::move(log);
  }
  testing::TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/access.log";
};

AccessRecord Record(uint64_t sequence) {
  AccessRecord record;
  record.sequence = sequence;
  return record;
}

// ---- of a server ----

class ServedAccessLog : public AccessLogTest {
 protected:
  ServedAccessLog() {
    ServedModel::Options options;
    options.server.access_log = path_;
    options.server.metrics_listen = "127.0.0.1:0";
    served_ = std::make_unique<ServedModel>(options);
  }
  // All that was logged; the server is gone then.
  std::vector<json> Stop() {
    served_->StopServer();
    return LinesOf(path_);
  }
  std::unique_ptr<ServedModel> served_;
};

TEST_F(ServedAccessLog, SaysWhatEachStepWas) {
  {
    StreamClient client(served_->NewChannel());
    client.StartRow(kRow, kPrompt, kMaxContext);
    v1::StepRequest step = client.NewStep();
    step.set_continue_all(true);
    step.set_num_steps(2);
    step.set_trace_id(absl::HexStringToBytes(kTrace));
    client.Step(step);
    step = client.NewStep();
    step.add_continue_rows(99);
    client.Refused(step);
    EXPECT_TRUE(client.Finish().ok());
  }
  const std::vector<json> lines = Stop();
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0]["event"], "session_opened");
  EXPECT_EQ(lines[0]["client"], "test");
  EXPECT_EQ(lines[0]["peer"], "unix:");
  EXPECT_EQ(lines[4]["event"], "session_ended");
  EXPECT_EQ(lines[4]["reason"], "closed");
  for (const json& line : lines) {
    EXPECT_EQ(line["session"], lines[0]["session"]) << line;
    EXPECT_FALSE(line.contains("identity")) << line;
    EXPECT_THAT(line["time"].get<std::string>(), MatchesRegex("20..-..-..T..:..:..\\.......Z"));
  }
  EXPECT_EQ(lines[1]["event"], "step");
  EXPECT_EQ(lines[1]["status"], "OK");
  EXPECT_EQ(lines[1]["sequence"], 1);
  EXPECT_EQ(lines[1]["graph"], "mixed/8");
  EXPECT_EQ(lines[1]["rows"], 1);
  EXPECT_EQ(lines[1]["tokens"], 3);
  EXPECT_EQ(lines[1]["sampled"], 1);
  EXPECT_EQ(lines[1]["steps"], 1);
  EXPECT_GT(lines[1]["device_seconds"], 0);
  EXPECT_GE(lines[1]["queue_seconds"], 0);
  EXPECT_GT(lines[1]["wall_seconds"], lines[1]["queue_seconds"]);
  EXPECT_FALSE(lines[1].contains("trace_id"));
  EXPECT_EQ(lines[2]["steps"], 2);
  EXPECT_EQ(lines[2]["sampled"], 2);
  EXPECT_EQ(lines[2]["trace_id"], kTrace);
  EXPECT_EQ(lines[3]["status"], "NOT_FOUND");
  EXPECT_EQ(lines[3]["sequence"], 3);
  EXPECT_THAT(lines[3]["message"].get<std::string>(), HasSubstr("99"));
  EXPECT_FALSE(lines[3].contains("graph"));
}

TEST_F(ServedAccessLog, SaysTheTraceOfACall) {
  const std::string traceparent = absl::StrCat("00-", kTrace, "-00f067aa0ba902b7-01");
  {
    StreamClient client(served_->NewChannel(), "", {{"traceparent", traceparent}});
    client.StartRow(kRow, kPrompt, kMaxContext);
    grpc::ClientContext context, again, unknown;
    context.AddMetadata("traceparent", traceparent);
    v1::StepRequest step = client.NewStep();
    step.set_continue_all(true);
    v1::StepResponse response;
    EXPECT_TRUE(client.stub().Step(&context, step, &response).ok());
    EXPECT_TRUE(client.stub().Step(&again, step, &response).ok());
    EXPECT_EQ(response.trace_id(), absl::HexStringToBytes(kTrace));
    step.set_session(std::string(16, 'x'));
    EXPECT_FALSE(client.stub().Step(&unknown, step, &response).ok());
    EXPECT_TRUE(client.Finish().ok());
  }
  const std::vector<json> lines = Stop();
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0]["trace_id"], kTrace);  // opened
  EXPECT_EQ(lines[1]["trace_id"], kTrace);  // on the stream
  EXPECT_EQ(lines[2]["trace_id"], kTrace);  // unary
  EXPECT_EQ(lines[2]["event"], "step");
  EXPECT_EQ(lines[3]["event"], "step_repeated");
  EXPECT_EQ(lines[3]["sequence"], 2);
  EXPECT_FALSE(lines[3].contains("trace_id"));
  EXPECT_EQ(lines[4]["status"], "NOT_FOUND");
  EXPECT_FALSE(lines[4].contains("session"));
}

TEST_F(AccessLogTest, NamesTheIdentityWhereThereAreAny) {
  ServedModel::Options options;
  options.server.access_log = path_;
  Identity identity{.name = "chat", .tokens = {TokenDigest::Of("secret")}};
  identity.roles.Add(Role::kStep);
  options.server.identities = {identity};
  {
    ServedModel served(options);
    StreamClient client(served.NewChannel(), "secret");
    client.StartRow(kRow, kPrompt, kMaxContext);
    EXPECT_TRUE(client.Finish().ok());
    served.StopServer();
  }
  const std::vector<json> lines = LinesOf(path_);
  ASSERT_EQ(lines.size(), 3u);
  for (const json& line : lines) EXPECT_EQ(line.value("identity", ""), "chat") << line;
}

// Neither the name of a session nor what a client sent in its place.
TEST_F(ServedAccessLog, NeverSaysATokenOfASession) {
  std::string token;
  {
    StreamClient client(served_->NewChannel());
    token = client.session();
    client.StartRow(kRow, kPrompt, kMaxContext);
    v1::StepRequest step = client.NewStep();
    step.set_session("another's token!");
    client.Refused(step);
  }
  Stop();
  const std::string text = TextOf(path_);
  for (const std::string& secret : {token, std::string("another's token!")}) {
    EXPECT_EQ(text.find(secret), std::string::npos);
    EXPECT_EQ(text.find(absl::BytesToHexString(secret)), std::string::npos);
  }
}

TEST_F(ServedAccessLog, SaysWhenASessionIsDetachedAndResumed) {
  {
    StreamClient lost(served_->NewChannel(), OpenWithGrace(20000));
    lost.Cancel();
    ASSERT_TRUE(Eventually([&] {
      return Scrape(served_->server().metrics_address())["reprise_sessions_detached"] == 1;
    }));
    StreamClient resumed(served_->NewChannel(), ResumeOf(lost.session(), 0));
    EXPECT_TRUE(resumed.Finish().ok());
  }
  Stop();
  std::vector<std::string> events;
  for (const json& line : LinesOf(path_)) {
    events.push_back(line["event"]);
    EXPECT_EQ(line["session"], LinesOf(path_)[0]["session"]);
  }
  EXPECT_THAT(events, ::testing::ElementsAre("session_opened", "session_detached",
                                             "session_resumed", "session_ended"));
}

TEST_F(ServedAccessLog, IsCountedByMetrics) {
  StreamClient client(served_->NewChannel());
  client.StartRow(kRow, kPrompt, kMaxContext);
  EXPECT_TRUE(Eventually([&] {
    return Scrape(served_->server().metrics_address())["reprise_access_log_written_total"] == 2;
  }));
  EXPECT_EQ(Scrape(served_->server().metrics_address())["reprise_access_log_dropped_total"], 0);
}

TEST(AccessLogOnAFullDisk, NeverStopsTheServer) {
  ServedModel::Options options;
  options.server.access_log = "/dev/full";
  options.server.metrics_listen = "127.0.0.1:0";
  ServedModel served(options);
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kPrompt, kMaxContext);
  Continue(client, kRow, 20);
  EXPECT_TRUE(Eventually([&] {
    return Scrape(served.server().metrics_address())["reprise_access_log_dropped_total"] > 1;
  }));
  EXPECT_EQ(Scrape(served.server().metrics_address())["reprise_access_log_written_total"], 0);
  EXPECT_TRUE(client.Finish().ok());
}

// ---- of files ----

TEST_F(AccessLogTest, AppendsToAFile) {
  std::ofstream(path_) << "before\n";
  Open({.path = path_})->Add(Record(1));
  EXPECT_TRUE(TextOf(path_).starts_with("before\n{"));
}

TEST_F(AccessLogTest, RefusesAPathThatCannotBeOpened) {
  const auto missing = AccessLog::Open({.path = directory_.path() + "/no/such/file"});
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("/no/such/file: No such file"));
  EXPECT_FALSE(AccessLog::Open({.path = directory_.path()}).ok());
}

TEST_F(AccessLogTest, FollowsItsPathWhenTheFileIsRenamed) {
  auto log = Open({.path = path_, .follow_interval_ms = 50});
  log->Add(Record(1));
  EXPECT_TRUE(Eventually([&] { return log->written() == 1; }));
  std::filesystem::rename(path_, path_ + ".1");
  EXPECT_TRUE(Eventually([&] { return std::filesystem::exists(path_); }));
  log->Add(Record(2));
  log.reset();
  ASSERT_EQ(LinesOf(path_ + ".1").size(), 1u);
  ASSERT_EQ(LinesOf(path_).size(), 1u);
  EXPECT_EQ(LinesOf(path_)[0]["sequence"], 2);
}

TEST_F(AccessLogTest, KeepsTheOldFileWhileThereIsNoNewOne) {
  const std::string folder = directory_.path() + "/logs";
  std::filesystem::create_directory(folder);
  auto log = Open({.path = folder + "/access.log", .follow_interval_ms = 20});
  std::filesystem::rename(folder, folder + ".old");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  log->Add(Record(1));
  EXPECT_TRUE(Eventually([&] { return log->written() == 1; }));
  EXPECT_EQ(LinesOf(folder + ".old/access.log").size(), 1u);
}

TEST_F(AccessLogTest, SaysHowManyDidNotFit) {
  // Long enough that all come before the first is written.
  auto log = Open({.path = path_, .max_waiting = 4, .write_interval_ms = 60'000});
  for (uint64_t i = 1; i <= 10; ++i) log->Add(Record(i));
  EXPECT_EQ(log->dropped(), 6u);
  log.reset();
  const std::vector<json> lines = LinesOf(path_);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0]["event"], "dropped");
  EXPECT_EQ(lines[0]["records"], 6);
  for (size_t i = 1; i <= 4; ++i) EXPECT_EQ(lines[i]["sequence"], i);
}

TEST_F(AccessLogTest, LosesNothingOfManyThreads) {
  auto log = Open({.path = path_, .max_waiting = 16'384});
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&log, t] {
      for (uint64_t i = 0; i < 1000; ++i) log->Add(Record(t * 1000 + i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  log.reset();
  std::vector<bool> seen(4000);
  for (const json& line : LinesOf(path_)) seen[line["sequence"].get<size_t>()] = true;
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 4000);
}

// A reader who reads nothing, and one who is gone, cost lines and no more.
TEST_F(AccessLogTest, DoesNotWaitForThePipesReader) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_FALSE(AccessLog::Open({.path = path_}).ok()) << "nobody reads";
  FileDescriptor reader(::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  auto log = Open({.path = path_, .max_waiting = 1024, .write_interval_ms = 1});
  for (uint64_t i = 0; i < 5000; ++i) {
    log->Add(Record(i));
    if (i % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(Eventually([&] { return log->dropped() > 0; }));
  reader.Reset();
  log->Add(Record(1));
  log.reset();
}

// ---- lines ----

TEST(AccessLine, IsJsonWhateverTheTextsAre) {
  AccessRecord record;
  record.event = AccessRecord::Event::kSessionOpened;
  record.detail = ShortText<200>("\"quoted\\\n\x01\xff" + std::string(300, 'x'));
  const json line = json::parse(AccessLine(record));
  EXPECT_THAT(line["client"].get<std::string>(),
              ::testing::StartsWith("\"quoted\\\n\x01\xEF\xBF\xBD"));
}

TEST(ShortText, EndsBetweenTwoCharacters) {
  EXPECT_EQ(ShortText<4>("abc").text(), "abc");
  EXPECT_EQ(ShortText<4>("abcde").text(), "abcd");
  EXPECT_EQ(ShortText<4>("ab\u20ac").text(), "ab");
  EXPECT_EQ(ShortText<4>("\u20acbc").text(), "\u20acb");
}

}  // namespace
}  // namespace reprise::service
