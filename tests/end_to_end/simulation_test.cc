// SPDX-License-Identifier: Apache-2.0
// `--device sim` as its users see it: a server without weights, by a profile of this machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/end_to_end/program.h"

namespace reprise::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class Simulated : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model = WriteTinyModel({}, directory_.path() + "/tiny");
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
    Program profile({"profile", "--model", model_, "--device", "host", "--rows", "1,4",
                     "--contexts", "16,48", "--iterations", "4", "--warmup", "0",
                     "--bandwidth-bytes", "1MiB", "--json", profile_});
    ASSERT_EQ(profile.Wait(), 0) << profile.stderr_text();
  }
  std::vector<std::string> Flags() const {
    return {"--device", "sim", "--profile", profile_, "--max-rows", "8"};
  }
  // What `reprise run` or `reprise sched` generated.
  static json Generated(std::vector<std::string> arguments) {
    const std::vector<std::string> work = {
        "--prompt-tokens", "5,6,7", "--max-new-tokens", "8", "--ignore-eos", "--json", "-"};
    arguments.insert(arguments.end(), work.begin(), work.end());
    Program program(arguments);
    EXPECT_EQ(program.Wait(), 0) << program.stderr_text();
    return json::parse(program.stdout_text())["requests"][0]["tokens"];
  }

  TemporaryDirectory directory_;
  std::string model_;
  const std::string profile_ = directory_.path() + "/profile.json";
};

TEST_F(Simulated, ServesWithoutWeightsAndSaysSo) {
  for (const auto& entry : std::filesystem::directory_iterator(model_))
    if (entry.path().extension() == ".safetensors") std::filesystem::remove(entry.path());
  ServedProgram served(model_, Flags());
  ASSERT_TRUE(served.ready()) << served.program().stderr_text();
  EXPECT_THAT(served.program().stdout_text(), HasSubstr("sim (profile of "));
  EXPECT_THAT(served.program().stderr_text(),
              HasSubstr("simulated prompts: " + profile_ + " has no points of prompts alone"));
  const json by_sched = Generated({"sched", "--address", served.address()});
  EXPECT_EQ(by_sched.size(), 8u);
  EXPECT_EQ(Generated({"sched", "--address", served.address()}), by_sched);
  std::vector<std::string> run = {"run", "--model", model_};
  const std::vector<std::string> flags = Flags();
  run.insert(run.end(), flags.begin(), flags.end());
  EXPECT_EQ(Generated(run), by_sched) << "tokens are made up from the row alone";
}

TEST_F(Simulated, LongPromptsTakeWhatTheProfileSays) {
  Program measured({"profile", "--model", model_, "--device", "host", "--rows", "1,4", "--contexts",
                    "16,48", "--points", "1x8,1x32,4@16+1x32", "--iterations", "4", "--warmup", "0",
                    "--bandwidth-bytes", "1MiB", "--json", profile_});
  ASSERT_EQ(measured.Wait(), 0) << measured.stderr_text();
  // So long that only the profile makes it so.
  constexpr double kUs = 400'000;
  json profile = json::parse(ReadTextFile(profile_));
  for (json& point : profile["points"])
    if (point["prompts"] == json::array({32}) && point["rows"] == 0)
      point["plain"]["device_us"]["p50"] = kUs;
  std::ofstream(profile_) << profile.dump();

  ServedProgram served(model_, Flags());
  ASSERT_TRUE(served.ready()) << served.program().stderr_text();
  EXPECT_THAT(served.program().stderr_text(), HasSubstr("simulated prompts: as " + profile_ +
                                                        " has them of 8 to 32 tokens a step"));
  EXPECT_THAT(served.program().stderr_text(),
              HasSubstr("its points of prompts beside rows that decode, 1, differ"));
  std::string tokens = "5";
  for (int i = 1; i < 32; ++i) tokens += ",5";
  Program sched({"sched", "--address", served.address(), "--prompt-tokens", tokens,
                 "--max-new-tokens", "1", "--json", "-"});
  ASSERT_EQ(sched.Wait(), 0) << sched.stderr_text();
  const json device = json::parse(sched.stdout_text())["figures"]["ledger_us"]["device"];
  EXPECT_EQ(device["count"], 1);
  EXPECT_GE(device["p50"].get<double>(), kUs);
}

TEST_F(Simulated, IsRecordedAndRepeated) {
  const std::string recordings = directory_.path() + "/recordings";
  std::vector<std::string> flags = Flags();
  flags.insert(flags.end(), {"--record", recordings});
  {
    ServedProgram served(model_, flags);
    ASSERT_TRUE(served.ready());
    Generated({"sched", "--address", served.address()});
    served.program().Signal(SIGTERM);
    EXPECT_EQ(served.program().Wait(), 0);
  }
  const std::string file = std::filesystem::directory_iterator(recordings)->path();
  Program replay({"replay", "--device", "sim", "--profile", profile_, file});
  EXPECT_EQ(replay.Wait(), 0) << replay.stderr_text();
  EXPECT_THAT(replay.stdout_text(), HasSubstr(": equal"));
  Program real({"replay", file});
  EXPECT_EQ(real.Wait(), 1);
  EXPECT_THAT(real.stderr_text(), HasSubstr("allowed: --device sim --profile FILE"));
}

TEST_F(Simulated, BoundsThePoolAndTheTimesOfSteps) {
  std::vector<std::string> arguments = {"run",     "--model",         model_, "--kv-cache",
                                        "8192TiB", "--prompt-tokens", "5"};
  const std::vector<std::string> flags = Flags();
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  Program pool(arguments);
  EXPECT_EQ(pool.Wait(), 1);
  EXPECT_THAT(pool.stderr_text(), HasSubstr("reprise run: KV cache: got 9007199254740992 bytes"));
  json profile = json::parse(ReadTextFile(profile_));
  profile["points"][0]["plain"]["device_us"]["p50"] = 1e30;
  std::ofstream(profile_) << profile.dump();
  Program slow({"run", "--model", model_, "--device", "sim", "--profile", profile_,
                "--prompt-tokens", "5", "--max-new-tokens", "2"});
  EXPECT_EQ(slow.Wait(), 1);
  EXPECT_THAT(slow.stderr_text(),
              HasSubstr(profile_ + ": points[0].plain.device_us.p50: got 1e+30, allowed a number"));
}

TEST_F(Simulated, WantsAProfileOfItsModel) {
  EXPECT_EQ(RunProgram({"serve", "--model", model_, "--device", "sim"}), 2);
  EXPECT_EQ(RunProgram({"serve", "--model", model_, "--device", "host", "--profile", profile_}), 2);
  EXPECT_EQ(RunProgram({"profile", "--model", model_, "--device", "sim"}), 2) << "not offered";
  Program other({"run", "--model", ShippedModel(), "--device", "sim", "--profile", profile_,
                 "--prompt", "a"});
  EXPECT_EQ(other.Wait(), 1);
  EXPECT_THAT(other.stderr_text(), HasSubstr("which the profile is of"));
}

}  // namespace
}  // namespace reprise::testing
