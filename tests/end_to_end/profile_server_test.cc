// SPDX-License-Identifier: Apache-2.0
// `reprise profile --address` as users run it, against a server: the same report as of an engine in
// the process for an administrator, and without kernels for others; what is refused before anything
// is measured, and a server that goes away.
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
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class ProfiledServer : public BenchProgramTest {
 protected:
  void SetUp() override {
    const auto model = WriteTinyModel(tiny_, directory_.path() + "/tiny");
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
    std::vector<std::string> flags = {"--block-size",    "4",  "--max-rows", "8",
                                      "--mixed-buckets", "16", "--kv-cache", "64KiB"};
    flags.insert(flags.end(), more_flags_.begin(), more_flags_.end());
    server_ = std::make_unique<ServedProgram>(model_, flags);
    ASSERT_TRUE(server_->ready());
  }
  // Of an engine of the program's own that is as the server's.
  int ProfileOwn(const std::string& points) const {
    return RunProgram({"profile",
                       "--model",
                       model_,
                       "--device",
                       "host",
                       "--points",
                       points,
                       "--iterations",
                       "9",
                       "--max-rows",
                       "8",
                       "--block-size",
                       "4",
                       "--mixed-buckets",
                       "16",
                       "--warmup",
                       "2",
                       "--bandwidth-bytes",
                       "1MiB",
                       "--json",
                       File("own.json")});
  }
  std::vector<std::string> Arguments(const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"profile", "--address", server_->address(), "--warmup", "2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  json Written() const { return json::parse(ReadTextFile(File("profile.json"))); }

  TinyModelOptions tiny_;
  std::vector<std::string> more_flags_;
  std::string model_;
  std::unique_ptr<ServedProgram> server_;
};

// Of whoever reaches it.
class AdministratedServer : public ProfiledServer {
 protected:
  AdministratedServer() { more_flags_ = {"--allow-administration"}; }
};

class ServerWithFewBlocks : public ProfiledServer {
 protected:
  ServerWithFewBlocks() { more_flags_ = {"--max-session-blocks", "3"}; }
};

class HybridServer : public AdministratedServer {
 protected:
  HybridServer() {
    tiny_.architecture = "granitemoehybrid";
    tiny_.num_experts = 0;
  }
};

TEST_F(AdministratedServer, GivesTheReportOfAnEngineInTheProcess) {
  const std::string points = "1@40,3@20..40,3@40+2x5,1x7";
  Program program(
      Arguments({"--points", points, "--iterations", "9", "--assert", "publish<10s", "--assert",
                 "gap<10s", "--assert", "p99(wall,1@40)<10s", "--bandwidth-bytes", "1MiB", "--html",
                 File("a.html"), "--trace", File("a.trace.json"), "--json", File("profile.json")}));
  ASSERT_EQ(program.Wait(), 0) << program.stderr_text();
  for (const char* told : {"profiled graphs", "best of 8 passes over 1.00 MiB", "stamped",
                           "overhead p50", "bytes/s", "products", "'host' reports neither"})
    EXPECT_THAT(program.stdout_text(), HasSubstr(told));
  EXPECT_THAT(program.stderr_text(), Not(HasSubstr("without kernels")));
  const json served = Written();
  EXPECT_THAT(SchemaErrors(SchemaNamed("profile"), served), IsEmpty());
  EXPECT_EQ(served["server"]["why_no_kernels"], nullptr);
  EXPECT_EQ(served["server"]["profiled_graphs"]["graphs"], 3);
  EXPECT_EQ(served["bandwidth"]["bytes"], 1 << 20);
  EXPECT_GT(served["products"]["flops_per_s"]["best"], 0);
  EXPECT_EQ(served["telemetry"]["source"], nullptr);
  EXPECT_EQ(served["assertions"].size(), 4u + 1u + 1u);
  ASSERT_EQ(ProfileOwn(points), 0);
  const json own = json::parse(ReadTextFile(File("own.json")));
  ASSERT_EQ(served["points"].size(), own["points"].size());
  for (size_t i = 0; i < own["points"].size(); ++i) {
    const json &ours = own["points"][i], &theirs = served["points"][i];
    SCOPED_TRACE(ours["name"]);
    // All that is told of an engine of our own is told here, and what was counted is the same.
    for (const auto& [name, value] : ours.items()) EXPECT_TRUE(theirs.contains(name)) << name;
    for (const char* same : {"name", "graph", "kernels", "mean_context", "mean_attended", "bytes",
                             "flops", "padding_tokens", "attention_leaf"})
      EXPECT_EQ(theirs[same], ours[same]) << same;
    EXPECT_EQ(theirs["twin"]["kernels"], ours["twin"]["kernels"]);
    EXPECT_EQ(theirs["timeline"]["op"], ours["timeline"]["op"]);
    ASSERT_EQ(theirs["ops"].size(), ours["ops"].size());
    for (size_t op = 0; op < ours["ops"].size(); ++op) {
      for (const char* same :
           {"op", "kernel", "shape", "calls", "read_bytes", "written_bytes", "flops"})
        EXPECT_EQ(theirs["ops"][op][same], ours["ops"][op][same]) << ours["ops"][op]["op"];
      EXPECT_EQ(theirs["ops"][op]["share_of_roof"].is_null(),
                ours["ops"][op]["share_of_roof"].is_null());
      EXPECT_EQ(theirs["ops"][op]["stamped_us"]["count"], 9);
    }
  }
  EXPECT_THAT(ReadTextFile(File("a.trace.json")), HasSubstr("kernels: mean stamped times"));
  // Both are told apart, and their kernels compared.
  Program compared({"compare", File("own.json"), File("profile.json"), "--json", File("c.json")});
  EXPECT_THAT(compared.Wait(), AnyOf(0, 3)) << compared.stderr_text();
  const json comparison = json::parse(ReadTextFile(File("c.json")));
  EXPECT_EQ(comparison["points"][0]["kernels"].size(), own["points"][0]["ops"].size());
  Program report({"report", File("profile.json"), "--csv", File("b.csv"), "--markdown", "-"});
  EXPECT_EQ(report.Wait(), 0) << report.stderr_text();
  EXPECT_THAT(report.stdout_text(), HasSubstr("| wall p50 |"));
  EXPECT_THAT(report.stdout_text(), HasSubstr("### Kernels of 1@40"));
  EXPECT_THAT(ReadTextFile(File("b.csv")), HasSubstr(",publish,reprise_publish"));
}

TEST_F(AdministratedServer, SaysWhatPaddingCosts) {
  Program program(Arguments({"--points", "1@40,3@40,3@40+2x5", "--padding", "--iterations", "9",
                             "--bandwidth-bytes", "1MiB", "--json", File("profile.json")}));
  ASSERT_EQ(program.Wait(), 0) << program.stderr_text();
  EXPECT_THAT(program.stdout_text(), HasSubstr("without"));
  const json profile = Written();
  EXPECT_THAT(SchemaErrors(SchemaNamed("profile"), profile), IsEmpty());
  ASSERT_EQ(profile["points"].size(), 3u);
  EXPECT_EQ(profile["points"][0]["unpadded"], nullptr);  // decode/1 is of that size
  for (const size_t i : {1, 2}) {
    const json& point = profile["points"][i];
    EXPECT_EQ(point["unpadded"]["replay_us"]["count"], 9) << point["name"];
    EXPECT_GT(point["padding_rows"].get<int>() + point["padding_tokens"].get<int>(), 0);
  }
}

// Without the right to stamp steps there is nothing to capture.
TEST_F(ProfiledServer, LeavesOutWhatPaddingCostsWithoutTheRight) {
  Program program(Arguments(
      {"--points", "3@40", "--padding", "--iterations", "3", "--json", File("profile.json")}));
  ASSERT_EQ(program.Wait(), 0) << program.stderr_text();
  EXPECT_THAT(program.stdout_text(), HasSubstr("kernels, bytes, bandwidth, padding, clock"));
  EXPECT_THAT(program.stdout_text(), Not(HasSubstr("no point has any")));
  const json profile = Written();
  EXPECT_THAT(SchemaErrors(SchemaNamed("profile"), profile), IsEmpty());
  EXPECT_EQ(profile["points"][0].at("unpadded"), nullptr);
}

// Its rows carry state, which a context alone does not bring.
TEST_F(HybridServer, IsMeasuredAtEveryPoint) {
  Program program(Arguments({"--points", "3@40+2x5,1x7,3@20..40,2@2", "--iterations", "3",
                             "--bandwidth-bytes", "1MiB", "--json", File("profile.json")}));
  ASSERT_EQ(program.Wait(), 0) << program.stderr_text();
  const json profile = Written();
  EXPECT_THAT(SchemaErrors(SchemaNamed("profile"), profile), IsEmpty());
  ASSERT_EQ(profile["points"].size(), 4u);
  EXPECT_FALSE(profile["points"][0]["kernels"].empty());
}

TEST_F(AdministratedServer, BoundsNameKernelsThatThereAre) {
  Program program(Arguments({"--points", "1@40", "--iterations", "2", "--assert", "nothing<1s"}));
  EXPECT_EQ(program.Wait(), 2);
  EXPECT_THAT(program.stderr_text(), HasSubstr("figure: got \"nothing\", allowed: replay, device"));
  EXPECT_THAT(program.stderr_text(), HasSubstr("publish"));
  Program broken(Arguments({"--points", "1@40", "--iterations", "2", "--assert", "wall<1ns"}));
  EXPECT_EQ(broken.Wait(), 3);
  EXPECT_THAT(broken.stderr_text(), HasSubstr("wall<1ns does not hold: "));
}

TEST_F(ProfiledServer, GivesTheSameReportAsFarAsThereAreNumbers) {
  Program program(
      Arguments({"--points", "1@40,3@20..40,3@40+2x5,1x7", "--iterations", "20", "--assert",
                 "p99(wall,1@40)<10s", "--html", File("a.html"), "--json", File("profile.json")}));
  ASSERT_EQ(program.Wait(), 0) << program.stderr_text();
  EXPECT_THAT(program.stdout_text(), StartsWith("model"));
  EXPECT_THAT(program.stdout_text(), HasSubstr("not measured"));
  EXPECT_THAT(program.stderr_text(), HasSubstr("warning: without kernels: "));
  EXPECT_THAT(program.stderr_text(), HasSubstr("profile: this server has no administrators"));
  EXPECT_THAT(program.stdout_text(), HasSubstr("overhead p50"));
  const json profile = Written();
  EXPECT_THAT(SchemaErrors(SchemaNamed("profile"), profile), IsEmpty());
  EXPECT_EQ(profile["server"]["address"], server_->address());
  EXPECT_THAT(profile["server"]["why_no_kernels"].get<std::string>(),
              HasSubstr("profile: this server has no administrators"));
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
  ASSERT_EQ(ProfileOwn("1@40"), 0);
  Program other({"compare", File("own.json"), File("profile.json")});
  EXPECT_THAT(other.Wait(), AnyOf(0, 3))
      << other.stderr_text();  // which is faster is not the question
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
      {Arguments({"--cupti", "off"}), 2, "--cupti: got it beside --address"},
      {Arguments({"--assert", "idle<1s"}), 2, "figure: got \"idle\", allowed: replay, device"},
      {Arguments({"--points", "1@40", "--assert", "gap<1s"}), 1,
       "--assert gap<1s: the server lets no step be stamped: "},
      {Arguments({"--points", "1@40", "--assert", "publish<1s"}), 1, "has no administrators"},
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

TEST_F(ServerWithFewBlocks, SaysWhatASessionMayHold) {
  Program program(Arguments({"--points", "1@20"}));
  EXPECT_EQ(program.Wait(), 1);
  EXPECT_THAT(program.stderr_text(),
              HasSubstr("1@20 needs 5 blocks of 4 tokens; allowed: 3, which a session may hold"));
}

}  // namespace
}  // namespace reprise::testing
