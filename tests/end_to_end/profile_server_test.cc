// SPDX-License-Identifier: Apache-2.0
// `reprise profile --address` as users run it, against a server: the same report as far as there
// are numbers, what is refused before anything is measured, and a server that goes away.
#include <signal.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/end_to_end/bench_program.h"
#include "tests/end_to_end/program.h"
#include "tests/testing/json_schema.h"

namespace reprise::testing {
namespace {

using ::nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class ProfiledServer : public BenchProgramTest {
 protected:
  void SetUp() override {
    const auto model = WriteTinyModel({}, directory_.path() + "/tiny");
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
    server_ = std::make_unique<ServedProgram>(
        model_, std::vector<std::string>{"--block-size", "4", "--max-rows", "8", "--mixed-buckets",
                                         "16", "--kv-cache", "64KiB"});
    ASSERT_TRUE(server_->ready());
  }
  std::vector<std::string> Arguments(const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"profile", "--address", server_->address(), "--warmup", "2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  json Written() const { return json::parse(ReadTextFile(File("profile.json"))); }

  std::string model_;
  std::unique_ptr<ServedProgram> server_;
};

TEST_F(ProfiledServer, GivesTheSameReportAsFarAsThereAreNumbers) {
  Program program(
      Arguments({"--points", "1@40,3@20..40,3@40+2x5,1x7", "--iterations", "20", "--assert",
                 "p99(wall,1@40)<10s", "--html", File("a.html"), "--json", File("profile.json")}));
  ASSERT_EQ(program.Wait(), 0) << program.stderr_text();
  EXPECT_THAT(program.stdout_text(), StartsWith("model"));
  EXPECT_THAT(program.stdout_text(), HasSubstr("a server tells none"));
  EXPECT_THAT(program.stdout_text(), HasSubstr("overhead p50"));
  const json profile = Written();
  EXPECT_THAT(SchemaErrors(SchemaNamed("profile"), profile), IsEmpty());
  EXPECT_EQ(profile["server"]["address"], server_->address());
  EXPECT_EQ(profile["engine"]["model"]["architecture"], "llama");
  ASSERT_EQ(profile["points"].size(), 4u);
  const json& ragged = profile["points"][1];
  EXPECT_EQ(ragged["graph"], "decode/4");
  EXPECT_EQ(ragged["padding_rows"], 1);
  EXPECT_GT(ragged["kernels"], 10);
  for (const json& point : profile["points"]) {
    EXPECT_EQ(point["shared_steps"], 0);
    for (size_t round = 0; round < 5; ++round) {
      const json& ns = point["samples_ns"];
      for (size_t i = 0; i < ns["wall"][round].size(); ++i) {
        // Each part within what holds it; samples are whole nanoseconds.
        EXPECT_LE(ns["device"][round][i], ns["replay"][round][i].get<int>() + 1);
        EXPECT_LE(ns["replay"][round][i], ns["wall"][round][i]);
        EXPECT_EQ(ns["overhead"][round][i],
                  ns["wall"][round][i].get<int64_t>() - ns["device"][round][i].get<int64_t>());
      }
    }
  }
  // The session is over, and its blocks are free: the largest point fits again.
  ASSERT_EQ(RunProgram(Arguments({"--points", "6@40", "--iterations", "3"})), 0);
}

TEST_F(ProfiledServer, FilesAreShownComparedAndSetBesideAnEnginesOwn) {
  ASSERT_EQ(RunProgram(Arguments({"--rows", "1", "--contexts", "40", "--iterations", "9", "--json",
                                  File("profile.json")})),
            0);
  Program report({"report", File("profile.json"), "--html", File("b.html"), "--csv", File("b.csv"),
                  "--trace", File("b.trace.json"), "--markdown", "-"});
  EXPECT_EQ(report.Wait(), 0) << report.stderr_text();
  EXPECT_THAT(report.stdout_text(), HasSubstr("| wall p50 |"));
  EXPECT_THAT(ReadTextFile(File("b.csv")), HasSubstr("\n1@40,1,40,overhead,,,"));
  EXPECT_THAT(ReadTextFile(File("b.html")), HasSubstr(server_->address()));
  Program same({"compare", File("profile.json"), File("profile.json")});
  EXPECT_EQ(same.Wait(), 0) << same.stderr_text();
  EXPECT_THAT(same.stdout_text(), HasSubstr("overhead"));
  ASSERT_EQ(RunProgram({"profile",
                        "--model",
                        model_,
                        "--device",
                        "host",
                        "--rows",
                        "1",
                        "--contexts",
                        "40",
                        "--iterations",
                        "9",
                        "--max-rows",
                        "8",
                        "--block-size",
                        "4",
                        "--warmup",
                        "2",
                        "--bandwidth-bytes",
                        "1MiB",
                        "--json",
                        File("own.json")}),
            0);
  Program other({"compare", File("own.json"), File("profile.json")});
  EXPECT_NE(other.Wait(), 2) << other.stderr_text();  // which is faster is not the question
  EXPECT_THAT(other.stdout_text() + other.stderr_text(),
              HasSubstr("measured differs: in this process and through a server"));
}

TEST_F(ProfiledServer, RefusesWhatDoesNotApplyAndWhatDoesNotFit) {
  struct Refusal {
    std::vector<std::string> arguments;
    int exit_code;
    std::string says;
  };
  const std::vector<Refusal> refusals = {
      {Arguments({"--model", model_}), 2, "--model: got it beside --address"},
      {Arguments({"--kv-cache", "1MiB"}), 2, "--kv-cache: got it beside --address"},
      {Arguments({"--device", "host"}), 2, "--device: got it beside --address"},
      {Arguments({"--poison"}), 2, "--poison: got it beside --address"},
      {Arguments({"--bandwidth-bytes", "1MiB"}), 2, "--bandwidth-bytes: got it beside --address"},
      {Arguments({"--assert", "gap<1s"}), 2, "figure: got \"gap\", allowed: replay, device"},
      {Arguments({"--assert", "publish<1s"}), 2, "figure: got \"publish\""},
      {Arguments({"--points", "8@40"}), 1, "8 rows of 40 tokens need 80 blocks of 4 tokens"},
      {Arguments({"--points", "9@40"}), 1, "rows: got 9, allowed: 1 to 8"},
      {Arguments({"--points", "1@257"}), 1, "context: got 257 tokens, allowed: 2 to 256"},
      {Arguments({"--points", "3@40+2x8"}), 1, "tokens: got 19 in 3@40+2x8, allowed: 1 to 16"},
      {Arguments({"--points", "1@40", "--json", "/no/such/dir/a.json"}), 1, "cannot write"},
      {Arguments({"--tls-ca", "/no/such/ca"}), 2, "TLS: got --tls-ca for unix:"},
      {{"profile", "--model", model_, "--token-file", "/x"}, 2, "--token-file: got no --address"},
      {{"profile", "--model", model_, "--wait", "1s"}, 2, "--wait: got no --address"},
      {{"profile", "--address", "unix:" + File("none.sock"), "--wait", "0"}, 1, "cannot connect"},
      {{"profile", "--address", "nonsense"}, 2, "--address: got \"nonsense\""},
  };
  for (const Refusal& refusal : refusals) {
    Program program(refusal.arguments);
    EXPECT_EQ(program.Wait(), refusal.exit_code) << refusal.says;
    EXPECT_THAT(program.stderr_text(), HasSubstr(refusal.says));
    EXPECT_THAT(program.stdout_text(), IsEmpty());
  }
}

TEST_F(ProfiledServer, MeasuresSizesOfRecordedSteps) {
  const std::string steps = File("steps.csv");
  std::ofstream(steps) << "rows,tokens,context,steps\n3,3,20,90\n2,9,,30\n";
  Program program(Arguments({"--recorded", steps, "--recorded-points", "4", "--iterations", "2",
                             "--json", File("profile.json")}));
  EXPECT_EQ(program.Wait(), 0) << program.stderr_text();
  EXPECT_EQ(Written()["points"][0]["name"], "1@128+1x8");
  EXPECT_EQ(Written()["settings"]["recorded"][1], json({{"name", "3@20"}, {"share", 0.75}}));
}

TEST_F(ProfiledServer, KeepsWhatWasMeasuredWhenTheServerGoesAway) {
  Program program(Arguments({"--rows", "1", "--contexts", "40", "--iterations", "40000", "--rounds",
                             "40", "--json", File("profile.json")}));
  ASSERT_TRUE(program.AwaitOutput("measured: round 1 of 40")) << program.stderr_text();
  server_->program().Signal(SIGKILL);
  EXPECT_EQ(program.Wait(), 1);
  EXPECT_THAT(program.stderr_text(), HasSubstr("ended the session after "));
  EXPECT_THAT(program.stdout_text(), HasSubstr("overhead p50"));
  const json profile = Written();
  EXPECT_THAT(SchemaErrors(SchemaNamed("profile"), profile), IsEmpty());
  EXPECT_THAT(profile["error"].get<std::string>(), HasSubstr(server_->address()));
  EXPECT_THAT(profile["assertions"], IsEmpty());
  const size_t rounds = profile["points"][0]["round_replay_us"].size();
  EXPECT_GE(rounds, 1u);
  EXPECT_LT(rounds, 40u);
  EXPECT_EQ(profile["points"][0]["plain"]["wall_us"]["count"], 1000 * rounds);
}

TEST_F(ProfiledServer, ASignalEndsItWithWhatWasMeasured) {
  Program program(Arguments({"--rows", "1", "--contexts", "40", "--iterations", "40000", "--rounds",
                             "40", "--json", File("profile.json")}));
  ASSERT_TRUE(program.AwaitOutput("measured: round 1 of 40")) << program.stderr_text();
  program.Signal(SIGINT);
  EXPECT_EQ(program.Wait(), 128 + SIGINT);
  EXPECT_THAT(Written()["error"].get<std::string>(), Not(IsEmpty()));
  EXPECT_GE(Written()["points"][0]["round_replay_us"].size(), 1u);
}

}  // namespace
}  // namespace reprise::testing
