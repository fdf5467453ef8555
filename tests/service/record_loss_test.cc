// SPDX-License-Identifier: Apache-2.0
// Recordings that are not begun, or not to their sessions' ends: what stands in the directory then,
// what is counted, and that one costs no other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "service/clock.h"
#include "service/record/record_format.h"
#include "service/record/recorder.h"
#include "tests/service/scrape.h"
#include "tests/service/served_model.h"
#include "tests/testing/tiny_model.h"

namespace reprise::service {
namespace {

using ::testing::HasSubstr;

// The process's files may grow to so many bytes, which stands for a full disk.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    rlimit small = before_;
    small.rlim_cur = bytes;
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  }
  ~SmallDisk() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_ = {};
};

uint64_t CountOf(const std::array<Counter, kNumRecordLosses>& counters, RecordLoss loss) {
  return counters[static_cast<size_t>(loss)].value();
}

class RecordingLost : public ::testing::Test {
 protected:
  void Open(RecordOptions options = {}) {
    options.directory = directory_.path();
    options.write_interval_ms = 1;
    options.measure_interval_ms = 1;
    auto recorder = Recorder::Open(options, [this](const std::string& what) {
      const std::lock_guard lock(mutex_);
      reports_.push_back(what);
    });
    ASSERT_TRUE(recorder.ok()) << recorder.status();
    recorder_ = *std::move(recorder);
  }
  std::unique_ptr<SessionRecording> Begin() {
    return recorder_->Begin(*tiny_.engine, ++num_sessions_, "test");
  }
  void AddStep(SessionRecording* recording, uint64_t sequence) {
    v1::StepRequest step;
    v1::StepResponse answer;
    step.set_sequence(sequence);
    recording->AddStep(NowNs(), &step, &answer);
  }
  uint64_t steps() const { return recorder_->counters().steps.value(); }
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path()))
      files.push_back(entry.path());
    return files;
  }
  std::vector<std::string> Reports() {
    const std::lock_guard lock(mutex_);
    return reports_;
  }

  testing::TemporaryDirectory model_;
  testing::TemporaryDirectory directory_;
  TinyEngine tiny_{*testing::WriteTinyModel({}, model_.path() + "/tiny")};
  std::mutex mutex_;
  std::vector<std::string> reports_;
  uint64_t num_sessions_ = 0;
  std::unique_ptr<Recorder> recorder_;
};

TEST_F(RecordingLost, LeavesNoFileWithoutAHeader) {
  Open();
  const RecordCounters& counters = recorder_->counters();
  {
    const SmallDisk disk(30);  // the first line fits, the header does not
    for (uint64_t i = 1; i <= 2; ++i) {
      const auto recording = Begin();
      ASSERT_NE(recording, nullptr);
      EXPECT_TRUE(
          Eventually([&] { return CountOf(counters.refused, RecordLoss::kWriteFailed) == i; }));
    }
  }
  EXPECT_TRUE(Files().empty());
  EXPECT_EQ(counters.files.load(), 0u);
  EXPECT_EQ(counters.bytes.load(), 0u);
  ASSERT_EQ(Reports().size(), 1u) << "said once for all sessions";
  EXPECT_THAT(Reports()[0], HasSubstr("a session is not recorded"));
  EXPECT_THAT(Reports()[0], HasSubstr("File too large"));
  // There is room again.
  auto recording = Begin();
  AddStep(recording.get(), 1);
  recording.reset();
  recorder_.reset();
  ASSERT_EQ(Files().size(), 1u);
  EXPECT_EQ(ReadRecording(Files()[0])->end, v1::RECORD_END_REASON_SESSION_ENDED);
}

TEST_F(RecordingLost, SaysThatAStepRanThatIsNotInIt) {
  Open();
  auto recording = Begin();
  AddStep(recording.get(), 1);
  recording->Lose(RecordLoss::kOutOfMemory);
  AddStep(recording.get(), 3);
  EXPECT_TRUE(Eventually(
      [&] { return CountOf(recorder_->counters().stopped, RecordLoss::kOutOfMemory) == 1; }));
  recording.reset();
  recorder_.reset();
  const auto read = ReadRecording(Files().at(0));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->end, v1::RECORD_END_REASON_OUT_OF_MEMORY);
  EXPECT_EQ(read->calls.size(), 1u);
  ASSERT_EQ(Reports().size(), 1u);
  EXPECT_THAT(Reports()[0], HasSubstr("out of memory"));
}

TEST_F(RecordingLost, AtTheLimitComesBackWhereFilesAreRemoved) {
  std::ofstream(directory_.path() + "/old.record") << std::string(5000, 'x');
  Open({.limit_bytes = 5200});
  const RecordCounters& counters = recorder_->counters();
  EXPECT_EQ(counters.limit_bytes, 5200u);
  EXPECT_EQ(counters.bytes.load(), 5000u);
  {
    const auto recording = Begin();
    EXPECT_TRUE(Eventually([&] { return CountOf(counters.refused, RecordLoss::kLimit) == 1; }));
    ASSERT_TRUE(std::filesystem::remove(directory_.path() + "/old.record"));
    EXPECT_TRUE(Eventually([&] { return counters.bytes.load() == 0; }));
    EXPECT_EQ(counters.files.load(), 0u);
    AddStep(recording.get(), 1);
  }
  {
    const auto recording = Begin();
    AddStep(recording.get(), 1);
    EXPECT_TRUE(Eventually([&] { return steps() == 1; }))
        << "that of the session which began with no room is not written";
  }
  recorder_.reset();
  ASSERT_EQ(Files().size(), 1u);
  EXPECT_EQ(ReadRecording(Files()[0])->calls.size(), 1u);
}

TEST_F(RecordingLost, CountsWhatOpenFilesTakeWhenItMeasures) {
  Open({.limit_bytes = 6000});
  const auto recording = Begin();
  for (uint64_t i = 1; i <= 500; ++i) {
    AddStep(recording.get(), i);
    std::this_thread::sleep_for(std::chrono::microseconds(100));  // it is measured in between
  }
  EXPECT_TRUE(
      Eventually([&] { return CountOf(recorder_->counters().stopped, RecordLoss::kLimit) == 1; }));
  EXPECT_LE(std::filesystem::file_size(Files().at(0)), 6000u);
  EXPECT_GE(std::filesystem::file_size(Files().at(0)), 5000u);
}

TEST(RecordingMetrics, SayWhatIsRecordedAndWhatIsNot) {
  const testing::TemporaryDirectory directory;
  ServedModel::Options options;
  options.server.metrics_listen = "127.0.0.1:0";
  options.server.record.directory = directory.path();
  ServedModel served(options);
  const auto now = [&] { return Scrape(served.server().metrics_address()); };
  StreamClient client(served.NewChannel());
  client.StartRow(kRow, kPrompt, kMaxContext);
  Continue(client, kRow, 3);
  EXPECT_TRUE(Eventually([&] { return now()["reprise_recorded_steps_total"] == 4; }));
  const Scrape scrape = now();
  EXPECT_EQ(scrape["reprise_recording_files"], 1);
  EXPECT_GT(scrape["reprise_recording_bytes"], 100);
  EXPECT_EQ(scrape["reprise_recording_limit_bytes"], 1u << 30);
  for (const char* reason : {"limit", "write_failed", "overflow", "out_of_memory", "kv_call"}) {
    const std::string labels = absl::StrCat("{reason=\"", reason, "\"}");
    EXPECT_EQ(scrape["reprise_recordings_stopped_total" + labels], 0);
    EXPECT_EQ(scrape["reprise_sessions_unrecorded_total" + labels], 0);
  }
}

TEST(RecordingMetrics, CountSessionsWithoutARecording) {
  const testing::TemporaryDirectory directory;
  ServedModel::Options options;
  options.server.metrics_listen = "127.0.0.1:0";
  options.server.record = {.directory = directory.path(), .limit_bytes = 100};
  ServedModel served(options);
  for (int i = 0; i < 2; ++i) {
    StreamClient client(served.NewChannel());
    EXPECT_TRUE(client.opened());
  }
  EXPECT_TRUE(Eventually([&] {
    const Scrape now(served.server().metrics_address());
    return now["reprise_sessions_unrecorded_total{reason=\"limit\"}"] == 2;
  }));
}

TEST(RecordingMetrics, AreNotThereWhereNothingIsRecorded) {
  ServedModel::Options options;
  options.server.metrics_listen = "127.0.0.1:0";
  ServedModel served(options);
  EXPECT_FALSE(Scrape(served.server().metrics_address()).Has("reprise_recording_files"));
}

}  // namespace
}  // namespace reprise::service
