// SPDX-License-Identifier: Apache-2.0
// `reprise serve --record` and `reprise replay` as their users see them: what was recorded is
// repeated to the bit, whatever else ran beside it then or runs beside it now, and what differs is
// named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "service/record/record_format.h"
#include "tests/end_to_end/program.h"
#include "tests/end_to_end/recordings.h"
#include "tests/tools/stuck_server.h"

namespace reprise::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class Replayed : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model = WriteTinyModel({}, directory_.path() + "/tiny");
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
  }

  std::vector<std::string> RecordFlags() const {
    return {"--record", recordings_, "--max-rows", "8"};
  }
  static std::vector<std::string> Sched(const ServedProgram& served, const std::string& prompt) {
    return {"sched",
            "--address",
            served.address(),
            "--prompt-tokens",
            prompt,
            "--requests",
            "6",
            "--ignore-eos",
            "--temperature",
            "0.9",
            "--max-new-tokens",
            "12",
            "--logprobs",
            "2"};
  }
  // Two schedulers at a time, whose steps run in joint replays; one of them drafts.
  void Record() {
    ServedProgram served(model_, RecordFlags());
    ASSERT_TRUE(served.ready());
    Program first(Sched(served, "5,6,7,8,9,10,11"));
    std::vector<std::string> drafting = Sched(served, "20,21");
    drafting.insert(drafting.end(), {"--draft", "ngram:1,3"});
    Program second(drafting);
    EXPECT_EQ(first.Wait(), 0) << first.stderr_text();
    EXPECT_EQ(second.Wait(), 0) << second.stderr_text();
    served.program().Signal(SIGTERM);
    EXPECT_EQ(served.program().Wait(), 0);
  }
  std::vector<std::string> Files() const { return RecordingsIn(recordings_); }

  TemporaryDirectory directory_;
  std::string model_;
  const std::string recordings_ = directory_.path() + "/recordings";
};

TEST_F(Replayed, IsEqualInThisProcess) {
  Record();
  std::vector<std::string> arguments = {"replay", "--json", "-"};
  const std::vector<std::string> files = Files();
  ASSERT_EQ(files.size(), 2u);
  arguments.insert(arguments.end(), files.begin(), files.end());
  Program replay(arguments);
  EXPECT_EQ(replay.Wait(), 0) << replay.stderr_text();
  const json outcome = json::parse(replay.stdout_text());
  EXPECT_EQ(outcome["equal"], true);
  ASSERT_EQ(outcome["files"].size(), 2u);
  for (const json& file : outcome["files"]) {
    EXPECT_EQ(file["complete"], true);
    EXPECT_EQ(file["rows"], 72) << "six requests of twelve tokens";
    EXPECT_EQ(file["difference"], nullptr);
  }
}

TEST_F(Replayed, IsEqualOnAServerWithOtherBucketsAndOtherBlocks) {
  Record();
  ServedProgram served(model_,
                       {"--max-rows", "16", "--decode-buckets", "3,16", "--mixed-buckets", "1024"});
  ASSERT_TRUE(served.ready());
  // Other rows run beside it, and hold the blocks that the recording had.
  Program beside({"sched", "--address", served.address(), "--prompt-tokens", "1,2,3", "--requests",
                  "4", "--ignore-eos", "--max-new-tokens", "100"});
  ASSERT_TRUE(beside.AwaitOutput("connected to"));
  for (const std::string& file : Files()) {
    Program replay({"replay", "--connect", served.address(), file});
    EXPECT_EQ(replay.Wait(), 0) << replay.stderr_text();
    EXPECT_THAT(replay.stdout_text(), HasSubstr("72 results: equal"));
  }
  EXPECT_EQ(beside.Wait(), 0);
}

TEST_F(Replayed, NamesAChangedTokenAndAChangedLogprob) {
  Record();
  const std::string file = Files()[0];
  uint32_t row = 0;
  uint32_t token = 0;
  RewriteRecording(file, [&](v1::SessionRecord* call) {
    if (call->step().sequence() != 3) return;
    v1::RowResults* rows = call->mutable_answer()->mutable_rows();
    row = rows->row(0);
    token = rows->token(0);
    rows->set_token(0, token + 1);
  });
  Program changed_token({"replay", file});
  EXPECT_EQ(changed_token.Wait(), 1);
  EXPECT_THAT(changed_token.stderr_text(),
              HasSubstr(absl::StrCat(file, ": step 3, row ", row, ": token: expected ", token + 1,
                                     ", got ", token)));
  RewriteRecording(file, [&](v1::SessionRecord* call) {
    if (call->step().sequence() != 3) return;
    v1::RowResults* rows = call->mutable_answer()->mutable_rows();
    rows->set_token(0, token);
    rows->set_logprob(0, rows->logprob(0) * (1 + 1e-6f));
  });
  Program changed_logprob({"replay", "--json", directory_.path() + "/out.json", file});
  EXPECT_EQ(changed_logprob.Wait(), 1);
  const json outcome = json::parse(ReadTextFile(directory_.path() + "/out.json"));
  EXPECT_EQ(outcome["equal"], false);
  EXPECT_EQ(outcome["files"][0]["difference"]["sequence"], 3);
  EXPECT_EQ(outcome["files"][0]["difference"]["row"], row);
  EXPECT_EQ(outcome["files"][0]["difference"]["field"], "logprob");
}

TEST_F(Replayed, TakesWhatAKilledServerLeft) {
  std::string file;
  {
    ServedProgram served(model_, RecordFlags());
    ASSERT_TRUE(served.ready());
    Program sched(Sched(served, "5,6,7"));
    EXPECT_EQ(sched.Wait(), 0) << sched.stderr_text();
    // Another thread writes, a moment later.
    const auto is_whole = [&] {
      if (Files().empty()) return false;
      Program whole({"replay", Files()[0]});
      return whole.Wait() == 0 && whole.stderr_text().find("was cut off") == std::string::npos;
    };
    for (int i = 0; i < 200 && !is_whole(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    served.program().Signal(SIGKILL);
    served.program().Wait();
    ASSERT_FALSE(Files().empty());
    file = Files()[0];
  }
  // In the middle of what was its last record.
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 20);
  Program replay({"replay", file});
  EXPECT_EQ(replay.Wait(), 0) << replay.stderr_text();
  EXPECT_THAT(replay.stderr_text(), HasSubstr("was cut off"));
  EXPECT_THAT(replay.stdout_text(), HasSubstr(": equal"));
}

TEST_F(Replayed, RefusesAModelOrSettingsThatAreOthers) {
  Record();
  const std::string file = Files()[0];
  const auto other = WriteTinyModel({.vocab_size = 80}, directory_.path() + "/other");
  ASSERT_TRUE(other.ok()) << other.status();
  Program model({"replay", "--model", *other, file});
  EXPECT_EQ(model.Wait(), 1);
  EXPECT_THAT(model.stderr_text(), HasSubstr("reprise replay: " + file + ": SHA-256 of "));
  EXPECT_THAT(model.stderr_text(), HasSubstr("config.json: got "));
  Program preset({"replay", "--preset", "llama-3.1-8b", file});
  EXPECT_EQ(preset.Wait(), 1);
  EXPECT_THAT(preset.stderr_text(), HasSubstr("preset: got llama-3.1-8b, allowed: none"));
  ServedProgram served(model_, {"--max-rows", "2"});
  Program rows({"replay", "--connect", served.address(), file});
  EXPECT_EQ(rows.Wait(), 1);
  EXPECT_THAT(rows.stderr_text(), HasSubstr("max_rows: got 2, allowed: 8 or more, as recorded"));
}

TEST_F(Replayed, SaysWhatIsWrongWithAFile) {
  const std::string file = directory_.path() + "/empty.record";
  std::ofstream(file).close();
  Program empty({"replay", file});
  EXPECT_EQ(empty.Wait(), 1);
  EXPECT_THAT(empty.stderr_text(), HasSubstr("got an empty file"));
  Program none({"replay"});
  EXPECT_EQ(none.Wait(), 2);
  Program missing({"replay", directory_.path() + "/missing"});
  EXPECT_EQ(missing.Wait(), 1);
}

TEST_F(Replayed, SkipsAmongSeveralAFileThatWasCutOffInItsHeader) {
  Record();
  std::vector<std::string> files = Files();
  const std::string empty = recordings_ + "/empty.record";
  std::ofstream(empty).close();
  std::filesystem::resize_file(files[0], 30);
  Program alone({"replay", files[0]});
  EXPECT_EQ(alone.Wait(), 1);
  EXPECT_THAT(alone.stderr_text(), HasSubstr("was cut off in its header"));
  Program replay({"replay", "--json", "-", files[0], empty, files[1]});
  EXPECT_EQ(replay.Wait(), 1);
  EXPECT_THAT(replay.stderr_text(), HasSubstr(files[0] + ": was cut off in its header; skipped"));
  EXPECT_THAT(replay.stderr_text(), HasSubstr(absl::StrCat("skipped 2 of 3 files")));
  const json outcome = json::parse(replay.stdout_text());
  EXPECT_EQ(outcome["skipped"], json::array({files[0], empty}));
  ASSERT_EQ(outcome["files"].size(), 1u);
  EXPECT_EQ(outcome["files"][0]["difference"], nullptr);
  EXPECT_EQ(outcome["equal"], false) << "not all of it was compared";
}

TEST_F(Replayed, WithoutAnsweredRowsIsNothingToCompare) {
  Record();
  const std::vector<std::string> files = Files();
  RewriteRecording(files[0], [](v1::SessionRecord* call) {
    if (!call->has_step()) return;
    call->mutable_step()->set_omit_rows(true);
    call->mutable_answer()->clear_rows();
  });
  const std::string no_steps = directory_.path() + "/no_steps.record";
  {
    const auto recording = service::ReadRecording(files[1]);
    ASSERT_TRUE(recording.ok()) << recording.status();
    v1::SessionRecord header;
    *header.mutable_header() = recording->header;
    std::string bytes = service::RecordFirstLine();
    service::AppendFramed(header.SerializeAsString(), &bytes);
    std::ofstream(no_steps, std::ios::binary) << bytes;
  }
  const std::string json_file = directory_.path() + "/out.json";
  Program nothing({"replay", "--json", json_file, files[0], no_steps});
  EXPECT_EQ(nothing.Wait(), 1);
  EXPECT_THAT(nothing.stderr_text(), HasSubstr("nothing to compare: got no result of a row in 2 "));
  EXPECT_THAT(nothing.stdout_text(),
              HasSubstr("were answered without rows): nothing to compare\n"));
  EXPECT_THAT(nothing.stdout_text(),
              HasSubstr(no_steps + ": 0 of 0 steps, 0 results: nothing to compare\n"));
  EXPECT_THAT(nothing.stdout_text(), Not(HasSubstr("equal")));
  const json outcome = json::parse(ReadTextFile(json_file));
  EXPECT_EQ(outcome["equal"], nullptr);
  EXPECT_GT(outcome["files"][0]["steps_without_rows"], 0);
  // Beside a file that has some it is no failure.
  Program some({"replay", "--json", json_file, no_steps, files[1]});
  EXPECT_EQ(some.Wait(), 0) << some.stderr_text();
  EXPECT_EQ(json::parse(ReadTextFile(json_file))["equal"], true);
}

TEST_F(Replayed, EndsWhereAServerNeverAnswers) {
  Record();
  const std::string file = Files()[0];
  const auto recording = service::ReadRecording(file);
  ASSERT_TRUE(recording.ok()) << recording.status();
  const tools::StuckServer stuck(tools::StuckAt::kStep, recording->header.server());
  ASSERT_TRUE(stuck.started());
  Program late({"replay", "--connect", stuck.address(), "--timeout", "2s", file});
  EXPECT_EQ(late.Wait(), 1);
  EXPECT_THAT(late.stderr_text(),
              HasSubstr("reprise replay: " + file + ": step 1: the server at " + stuck.address() +
                        ": got no answer within 2.00 s, allowed: "));
}

TEST_F(Replayed, EndsByASignalWhileAServerDoesNotAnswer) {
  Record();
  const std::string file = Files()[0];
  const auto recording = service::ReadRecording(file);
  ASSERT_TRUE(recording.ok()) << recording.status();
  const tools::StuckServer stuck(tools::StuckAt::kStep, recording->header.server());
  Program replay({"replay", "--connect", stuck.address(), "--timeout", "0", file});
  ASSERT_TRUE(stuck.AwaitCall());
  replay.Signal(SIGINT);
  EXPECT_EQ(replay.Wait(), 128 + SIGINT);
  EXPECT_THAT(replay.stderr_text(), HasSubstr("reprise replay: stopped by SIGINT"));
}

TEST_F(Replayed, ErrorsNameTheRecording) {
  Record();
  const std::string file = Files()[0];
  const std::string nobody = "unix:" + directory_.path() + "/nobody.sock";
  Program unreachable({"replay", "--connect", nobody, file});
  EXPECT_EQ(unreachable.Wait(), 1);
  EXPECT_THAT(unreachable.stderr_text(), HasSubstr("reprise replay: " + file + ": cannot connect"));
  RewriteRecording(file, [](v1::SessionRecord* call) {
    if (!call->has_allocated()) return;
    for (uint32_t& block : *call->mutable_allocated()->mutable_blocks()) block += 90'000;
  });
  Program torn({"replay", file});
  EXPECT_EQ(torn.Wait(), 1);
  EXPECT_THAT(torn.stderr_text(),
              HasSubstr("reprise replay: " + file + ": step 1: the recording "));
  Program timeout({"replay", "--timeout", "1s", file});
  EXPECT_EQ(timeout.Wait(), 2);
  EXPECT_THAT(timeout.stderr_text(), HasSubstr("--timeout: got no --connect, allowed: beside it"));
}

TEST_F(Replayed, StopsRecordingAtTheLimitAndServesOn) {
  std::vector<std::string> flags = RecordFlags();
  flags.insert(flags.end(), {"--record-limit", "3KiB"});
  ServedProgram served(model_, flags);
  ASSERT_TRUE(served.ready());
  Program sched(Sched(served, "5,6,7"));
  EXPECT_EQ(sched.Wait(), 0) << sched.stderr_text();
  EXPECT_TRUE(served.program().AwaitOutput("--record-limit"));
  served.program().Signal(SIGTERM);
  EXPECT_EQ(served.program().Wait(), 0);
  const std::string file = Files().at(0);
  EXPECT_LE(std::filesystem::file_size(file), 3u << 10);
  Program replay({"replay", file});
  EXPECT_EQ(replay.Wait(), 0) << replay.stderr_text();
  EXPECT_THAT(replay.stderr_text(), HasSubstr("stopped at the limit"));
}

}  // namespace
}  // namespace reprise::testing
