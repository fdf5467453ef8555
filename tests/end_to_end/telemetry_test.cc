// SPDX-License-Identifier: Apache-2.0
// `reprise top`, `reprise serve --metrics`, --access-log and --log-format as their users see them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "nlohmann/json.hpp"
#include "tests/end_to_end/program.h"
#include "tests/service/served_model.h"
#include "tests/testing/screen.h"

namespace reprise::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class TelemetryOfTheProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model = WriteTinyModel({}, directory_.path() + "/tiny");
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
  }
  std::vector<std::string> Flags() const {
    return {"--metrics", metrics_, "--access-log", log_, "--max-rows", "4"};
  }
  static void RunSteps(const ServedProgram& served) {
    EXPECT_EQ(RunProgram({"sched", "--address", served.address(), "--prompt-tokens", "5,6,7",
                          "--max-new-tokens", "8", "--ignore-eos"}),
              0);
  }
  std::vector<json> LogLines() const {
    std::istringstream lines(ReadTextFile(log_));
    std::vector<json> parsed;
    for (std::string line; std::getline(lines, line);) parsed.push_back(json::parse(line));
    return parsed;
  }

  TemporaryDirectory directory_;
  std::string model_;
  const std::string metrics_ = "unix:" + directory_.path() + "/metrics.sock";
  const std::string log_ = directory_.path() + "/access.jsonl";
};

TEST_F(TelemetryOfTheProgram, TopShowsWhatAServerDid) {
  ServedProgram served(model_, Flags());
  ASSERT_TRUE(served.ready());
  RunSteps(served);
  Program top({"top", "--address", metrics_, "--once", "--interval", "100ms"});
  EXPECT_EQ(top.Wait(), 0);
  EXPECT_THAT(top.stdout_text(), HasSubstr(metrics_ + ": SERVING"));
  EXPECT_THAT(top.stdout_text(), HasSubstr("KV blocks held"));
  EXPECT_THAT(top.stdout_text(), HasSubstr("nothing refused"));
  EXPECT_THAT(top.stdout_text(), Not(HasSubstr("\x1b"))) << "no terminal";
  // Without a terminal it looks once, told so or not.
  Program piped({"top", "--address", metrics_, "--json", "-", "--interval", "100ms"});
  EXPECT_EQ(piped.Wait(), 0);
  const json figures = json::parse(piped.stdout_text())["figures"];
  EXPECT_EQ(figures["serving"], true);
  EXPECT_EQ(figures["restarted"], false);
  EXPECT_EQ(figures["max_rows"], 4);
  EXPECT_EQ(figures["steps_per_second"], 0);
}

TEST_F(TelemetryOfTheProgram, TopSaysWhyItCannotLook) {
  Program dead({"top", "--address", metrics_, "--once"});
  EXPECT_EQ(dead.Wait(), 1);
  EXPECT_THAT(dead.stderr_text(), HasSubstr("reprise top: cannot connect to " + metrics_));
  Program wrong({"top", "--address", "nowhere"});
  EXPECT_EQ(wrong.Wait(), 2);
  EXPECT_THAT(wrong.stderr_text(), HasSubstr("--address: got \"nowhere\", allowed: HOST:PORT"));
  Program often({"top", "--interval", "1ms"});
  EXPECT_EQ(often.Wait(), 2);
  EXPECT_THAT(often.stderr_text(), HasSubstr("allowed: 100ms to 1h"));
  // A server, but of steps.
  ServedProgram served(model_, {"--max-rows", "4"});
  Program steps({"top", "--address", served.address(), "--once"});
  EXPECT_EQ(steps.Wait(), 1);
  EXPECT_THAT(steps.stderr_text(), HasSubstr(served.address()));
}

TEST_F(TelemetryOfTheProgram, TopDrawsAScreenAndOutlivesItsServer) {
  auto served = std::make_unique<ServedProgram>(model_, Flags());
  ASSERT_TRUE(served->ready());
  Program top({"top", "--address", metrics_, "--interval", "100ms"}, {.terminal_columns = 100});
  ASSERT_TRUE(top.AwaitOutput("resident rows"));
  served.reset();
  ASSERT_TRUE(top.AwaitOutput("Asks again every"));
  served = std::make_unique<ServedProgram>(model_, Flags());
  ASSERT_TRUE(top.AwaitOutput("The server was restarted"));
  top.Signal(SIGINT);
  EXPECT_EQ(top.Wait(), 128 + SIGINT);
}

TEST_F(TelemetryOfTheProgram, TheAccessLogHasALineForEachStepAndFollowsRotation) {
  ServedProgram served(model_, Flags());
  ASSERT_TRUE(served.ready());
  RunSteps(served);
  // A thread of its own writes them.
  ASSERT_TRUE(service::Eventually(
      [&] { return ReadTextFile(log_).find("\"event\":\"session_ended\"") != std::string::npos; }));
  ASSERT_EQ(std::rename(log_.c_str(), (log_ + ".1").c_str()), 0);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (ReadTextFile(log_).empty() && std::chrono::steady_clock::now() < deadline)
    RunSteps(served);
  served.program().Signal(SIGTERM);
  EXPECT_EQ(served.program().Wait(), 0);
  const std::vector<json> lines = LogLines();
  ASSERT_GE(lines.size(), 1u) << "in the new file";
  EXPECT_EQ(lines.back()["event"], "session_ended");
  EXPECT_THAT(ReadTextFile(log_ + ".1"), HasSubstr("\"event\":\"session_opened\""));
  EXPECT_THAT(ReadTextFile(log_ + ".1"), HasSubstr("\"event\":\"step\""));
}

TEST_F(TelemetryOfTheProgram, NotesAreJsonWhereAskedFor) {
  ServedProgram served(model_, {"--log-format", "json", "--access-log", "-", "--max-rows", "4"});
  ASSERT_TRUE(served.ready());
  RunSteps(served);
  served.program().Signal(SIGTERM);
  EXPECT_EQ(served.program().Wait(), 0);
  EXPECT_EQ(served.program().stdout_text(), "");
  std::istringstream lines(served.program().stderr_text());
  std::vector<std::string> events;
  std::string messages;
  for (std::string line; std::getline(lines, line);) {
    const json parsed = json::parse(line, nullptr, false);
    ASSERT_TRUE(parsed.is_object()) << line;
    events.push_back(parsed["event"]);
    if (events.back() == "note") messages += parsed["message"].get<std::string>() + "\n";
  }
  EXPECT_THAT(messages, HasSubstr("serving on " + served.address()));
  EXPECT_THAT(messages, HasSubstr("SIGTERM: finishing accepted steps"));
  EXPECT_THAT(messages, HasSubstr("stopped"));
  EXPECT_NE(std::find(events.begin(), events.end(), "step"), events.end());
}

TEST_F(TelemetryOfTheProgram, AnAddressOrAFileThatCannotBeIsSaidAtOnce) {
  Program taken({"serve", "--model", model_, "--device", "host", "--listen",
                 "unix:" + directory_.path() + "/a.sock", "--metrics", "unix:/no/such/place"});
  EXPECT_EQ(taken.Wait(), 1);
  EXPECT_THAT(taken.stderr_text(), HasSubstr("cannot listen on unix:/no/such/place"));
  Program log({"serve", "--model", model_, "--device", "host", "--listen",
               "unix:" + directory_.path() + "/b.sock", "--access-log", "/no/such/place"});
  EXPECT_EQ(log.Wait(), 1);
  EXPECT_THAT(log.stderr_text(), HasSubstr("cannot open /no/such/place"));
  Program format({"serve", "--model", model_, "--log-format", "xml"});
  EXPECT_EQ(format.Wait(), 2);
  EXPECT_THAT(format.stderr_text(), HasSubstr("got \"xml\", allowed: text, json"));
}

// A client that sends text that is none is told so by its calls, and writes to no log of the
// server's.
TEST(StandardError, IsNotWrittenToByClientsWhoseTextIsNoUtf8) {
  TemporaryDirectory directory;
  const auto model = WriteTinyModel({}, directory.path() + "/tiny");
  ASSERT_TRUE(model.ok()) << model.status();
  ServedProgram served(*model);
  ASSERT_TRUE(served.ready());
  const auto channel = grpc::CreateChannel(served.address(), grpc::InsecureChannelCredentials());
  const std::string before = served.program().stderr_text();
  for (int i = 0; i < 10; ++i) {
    const grpc::Status tree =
        service::CallWithBytes(channel, "SetAttentionTree", "\x0a\x02\xff\xfe");
    EXPECT_EQ(tree.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(tree.error_message(), ::testing::HasSubstr("no UTF-8"));
    EXPECT_LT(service::CheckHealth(channel, "\xff\xfe"), 0);
  }
  EXPECT_EQ(served.program().stderr_text(), before);
}

}  // namespace
}  // namespace reprise::testing
