// SPDX-License-Identifier: Apache-2.0
// Being asked to stop, by Ctrl-C, by a terminal that goes away, by kill: commands end in good order
// with what they have.
#include <signal.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/end_to_end/program.h"

namespace reprise::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kCtrlC[] = "\x03";

class Signals : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model = WriteTinyModel({}, directory_.path() + "/tiny");
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
  }
  // A run that goes on until someone ends it; text appears when it generates.
  std::vector<std::string> EndlessRun() const {
    return {"run",  "--model",         model_, "--device",        "host",   "--rows",
            "2000", "--max-rows",      "4",    "--prompt-tokens", "5,6,7",  "--max-new-tokens",
            "200",  "--mixed-buckets", "16",   "--ignore-eos",    "--json", json_file_};
  }
  std::vector<std::string> EndlessSched(const ServedProgram& served) const {
    return {"sched", "--address",       served.address(), "--requests",
            "5000",  "--prompt-tokens", "5,6,7",          "--max-new-tokens",
            "200",   "--ignore-eos",    "--json",         json_file_};
  }
  std::vector<std::string> EndlessProfile() const {
    return {"profile", "--model",           model_, "--device",     "host",    "--rows",
            "1",       "--contexts",        "40",   "--iterations", "1000000", "--rounds",
            "1000",    "--bandwidth-bytes", "1MiB", "--json",       json_file_};
  }
  nlohmann::json Json() const {
    return nlohmann::json::parse(ReadTextFile(json_file_), nullptr, false);
  }
  void ExpectFiguresOfAPart(const std::string& signal) {
    const nlohmann::json json = Json();
    ASSERT_TRUE(json.is_object());
    EXPECT_EQ(json["error"], "stopped by " + signal);
    EXPECT_GT(json["figures"]["steps"], 0);
    EXPECT_LT(json["figures"]["num_finished"], json["figures"]["num_requests"]);
    EXPECT_GT(json["requests"][0]["tokens"].size(), 0u);
  }
  TemporaryDirectory directory_;
  const std::string json_file_ = directory_.path() + "/figures.json";
  std::string model_;
};

TEST_F(Signals, CtrlCEndsARunWithItsFiguresAndJson) {
  Program run(EndlessRun(), {.terminal_columns = 80});
  ASSERT_TRUE(run.AwaitOutput("[  4]   "));
  run.terminal().Type(kCtrlC);
  EXPECT_EQ(run.Wait(), 128 + SIGINT);
  EXPECT_THAT(run.terminal().screen().text(), HasSubstr("where a step's time went"));
  EXPECT_THAT(run.terminal().screen().text(), HasSubstr("reprise run: stopped by SIGINT"));
  ExpectFiguresOfAPart("SIGINT");
}

TEST_F(Signals, TermAndHangupEndARunTheSameWay) {
  for (const int signal : {SIGTERM, SIGHUP}) {
    Program run(EndlessRun());
    ASSERT_TRUE(run.AwaitOutput("[  4]   "));
    run.Signal(signal);
    EXPECT_EQ(run.Wait(), 128 + signal);
    EXPECT_THAT(run.stdout_text(), HasSubstr("TTFT"));
    ExpectFiguresOfAPart(signal == SIGTERM ? "SIGTERM" : "SIGHUP");
  }
}

TEST_F(Signals, CtrlCEndsASchedulerAfterTheStepsInFlight) {
  ServedProgram served(model_, {"--max-rows", "4"});
  ASSERT_TRUE(served.ready());
  Program sched(EndlessSched(served), {.terminal_columns = 80});
  ASSERT_TRUE(sched.AwaitOutput("[  4]   "));
  sched.terminal().Type(kCtrlC);
  EXPECT_EQ(sched.Wait(), 128 + SIGINT);
  EXPECT_THAT(sched.terminal().screen().text(), HasSubstr("where a step's time went"));
  EXPECT_THAT(sched.terminal().screen().text(), HasSubstr("reprise sched: stopped by SIGINT"));
  ExpectFiguresOfAPart("SIGINT");
  // A session that ended in good order leaves the server nothing to wait for.
  served.program().Signal(SIGTERM);
  EXPECT_EQ(served.program().Wait(), 0);
}

// It waits for the steps in flight, but not for ever.
TEST_F(Signals, CtrlCEndsASchedulerWhoseServerAnswersNoMore) {
  ServedProgram served(model_, {"--max-rows", "4"});
  ASSERT_TRUE(served.ready());
  Program sched(EndlessSched(served));
  ASSERT_TRUE(sched.AwaitOutput("[  4]   "));
  served.program().Signal(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  sched.Signal(SIGINT);
  EXPECT_EQ(sched.Wait(std::chrono::seconds(30)), 128 + SIGINT);
  served.program().Signal(SIGCONT);
  ExpectFiguresOfAPart("SIGINT");
}

TEST_F(Signals, ASecondOneEndsAtOnce) {
  ServedProgram served(model_, {"--max-rows", "4"});
  ASSERT_TRUE(served.ready());
  Program sched(EndlessSched(served));
  ASSERT_TRUE(sched.AwaitOutput("[  4]   "));
  served.program().Signal(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  sched.Signal(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  sched.Signal(SIGTERM);
  EXPECT_EQ(sched.Wait(std::chrono::seconds(3)), 128 + SIGTERM);
  served.program().Signal(SIGCONT);
}

TEST_F(Signals, ASchedulerThatWaitsForItsServerEndsAtOnce) {
  Program sched({"sched", "--address", "unix:" + directory_.path() + "/none.sock", "--wait", "60s",
                 "--prompt-tokens", "5"});
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  sched.Signal(SIGINT);
  EXPECT_EQ(sched.Wait(std::chrono::seconds(5)), 128 + SIGINT);
}

TEST_F(Signals, CtrlCEndsAProfileWithTheRoundsThatAreComplete) {
  Program profile(EndlessProfile(), {.terminal_columns = 80});
  ASSERT_TRUE(profile.AwaitOutput("round 2 of 1000"));
  profile.terminal().Type(kCtrlC);
  EXPECT_EQ(profile.Wait(), 128 + SIGINT);
  EXPECT_THAT(profile.terminal().screen().text(), HasSubstr("replay p50"));
  const nlohmann::json json = Json();
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["error"], "stopped by SIGINT");
  EXPECT_GE(json["points"][0]["round_replay_us"].size(), 1u);
}

TEST_F(Signals, CtrlCEndsABenchmarkWithTheRoundsThatAreComplete) {
  Program bench({"bench",      "attention", "--device",      "host", "--heads",      "4",
                 "--kv-heads", "2",         "--head-dim",    "16",   "--rows",       "1",
                 "--contexts", "16",        "--max-context", "64",   "--pool-bytes", "16KiB",
                 "--replays",  "1000",      "--rounds",      "1000", "--json",       json_file_},
                {.terminal_columns = 80});
  ASSERT_TRUE(bench.AwaitOutput("round 2 of 1000"));
  bench.terminal().Type(kCtrlC);
  EXPECT_EQ(bench.Wait(), 128 + SIGINT);
  EXPECT_THAT(bench.terminal().screen().text(), HasSubstr("page walk"));
  EXPECT_THAT(bench.terminal().screen().text(),
              HasSubstr("reprise bench attention: stopped by SIGINT"));
  const nlohmann::json json = Json();
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["error"], "stopped by SIGINT");
  EXPECT_GE(json["cells"][0]["floor"]["round_us"].size(), 1u);
}

TEST_F(Signals, HangupDrainsAServerAndRemovesItsSocket) {
  const std::string socket = directory_.path() + "/a.sock";
  for (const bool by_terminal : {false, true}) {
    Program serve({"serve", "--model", model_, "--device", "host", "--listen", "unix:" + socket},
                  {.terminal_columns = by_terminal ? 80 : 0});
    ASSERT_TRUE(serve.AwaitOutput("serving on"));
    ASSERT_TRUE(std::filesystem::exists(socket));
    if (by_terminal) {
      serve.terminal().HangUp();
    } else {
      serve.Signal(SIGHUP);
    }
    EXPECT_EQ(serve.Wait(), 0);
    EXPECT_FALSE(std::filesystem::exists(socket));
    if (!by_terminal) {
      EXPECT_THAT(serve.stderr_text(), HasSubstr("SIGHUP: finishing accepted steps"));
    }
  }
}

TEST_F(Signals, NohupKeepsAServerAlive) {
  const std::string socket = directory_.path() + "/a.sock";
  Program serve({"serve", "--model", model_, "--device", "host", "--listen", "unix:" + socket},
                {.ignored_signals = {SIGHUP}});
  ASSERT_TRUE(serve.AwaitOutput("serving on"));
  serve.Signal(SIGHUP);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_TRUE(serve.running());
  EXPECT_THAT(serve.stderr_text(), Not(HasSubstr("SIGHUP")));
  serve.Signal(SIGTERM);
  EXPECT_EQ(serve.Wait(), 0);
}

}  // namespace
}  // namespace reprise::testing
