// SPDX-License-Identifier: Apache-2.0
// Recording sessions of a server: what a file holds, who may read it, and what becomes of it where
// it cannot be written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "service/record/record_format.h"
#include "service/record/recorder.h"
#include "tests/service/served_model.h"
#include "tests/testing/tiny_model.h"

namespace reprise::service {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string TextOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

class Recorded : public ::testing::Test {
 protected:
  void Start(RecordOptions record = {}) {
    record.directory = directory_;
    ServedModel::Options options;
    options.server.record = record;
    options.server.allow_administration = true;
    options.server.report = [this](const std::string& what) {
      const std::lock_guard lock(mutex_);
      reports_.push_back(what);
    };
    served_ = std::make_unique<ServedModel>(options);
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(directory_))
      files.push_back(entry.path());
    return files;
  }
  // The server is gone then. REQUIRES: one file.
  Recording Stop() {
    served_->StopServer();
    const std::vector<std::string> files = Files();
    EXPECT_EQ(files.size(), 1u);
    auto recording = ReadRecording(files.empty() ? "none" : files[0]);
    EXPECT_TRUE(recording.ok()) << recording.status();
    return recording.ok() ? *std::move(recording) : Recording();
  }
  std::vector<std::string> Reports() {
    const std::lock_guard lock(mutex_);
    return reports_;
  }

  testing::TemporaryDirectory temporary_;
  const std::string directory_ = temporary_.path() + "/recordings";
  std::mutex mutex_;
  std::vector<std::string> reports_;
  std::unique_ptr<ServedModel> served_;
};

TEST_F(Recorded, HoldsWhatTheSessionAskedAndWasAnswered) {
  Start();
  std::string token;
  v1::StepResponse answer;
  {
    StreamClient client(served_->NewChannel());
    token = client.session();
    client.StartRow(kRow, kPrompt, kMaxContext);
    v1::StepRequest step = client.NewStep();
    step.set_continue_all(true);
    step.set_num_steps(2);
    answer = client.Step(step);
    step = client.NewStep();
    step.add_continue_rows(99);
    client.Refused(step);
    step = client.NewStep();
    step.add_drop(kRow);
    step.set_continue_all(true);
    EXPECT_TRUE(client.Finish().ok());
  }
  const Recording recording = Stop();
  EXPECT_EQ(recording.header.client(), "test");
  EXPECT_EQ(recording.header.server().limits().max_rows(), kMaxRows);
  EXPECT_NE(recording.header.session(), 0u);
  EXPECT_EQ(recording.end, v1::RECORD_END_REASON_SESSION_ENDED);
  ASSERT_EQ(recording.calls.size(), 3u) << "one allocation, two steps, and no refused one";
  EXPECT_EQ(recording.calls[0].allocated().blocks_size(),
            static_cast<int>(kMaxContext / kBlockSize));
  EXPECT_THAT(recording.calls[1].step().chunks(0).tokens(), ::testing::ElementsAreArray(kPrompt));
  EXPECT_EQ(recording.calls[2].step().num_steps(), 2u);
  EXPECT_EQ(recording.calls[2].answer().rows().SerializeAsString(),
            answer.rows().SerializeAsString());
  EXPECT_LT(recording.calls[0].time_ns(), recording.calls[1].time_ns());
  EXPECT_LT(recording.calls[1].time_ns(), recording.calls[2].time_ns());
  EXPECT_THAT(TextOf(Files()[0]), Not(HasSubstr(token)));
  struct stat status = {};
  ASSERT_EQ(::stat(Files()[0].c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_TRUE(Reports().empty());
}

// Whoever replays them has no profile.
TEST_F(Recorded, HoldsStepsOfAProfileAsPlainOnes) {
  Start();
  {
    StreamClient client(served_->NewChannel());
    grpc::ClientContext context;
    v1::StartProfileRequest request;
    request.set_session(client.session());
    request.add_rows(1);
    request.add_unpadded_rows(1);
    v1::StartProfileResponse response;
    ASSERT_TRUE(client.stub().StartProfile(&context, request, &response).ok());
    client.StartRow(kRow, kPrompt, kMaxContext);
    for (int i = 0; i < 2; ++i) {
      v1::StepRequest step = client.NewStep();
      step.set_continue_all(true);
      step.set_stamped(i == 0);
      step.set_unpadded(i == 1);
      EXPECT_EQ(client.Step(step).has_stamps(), i == 0);
    }
    EXPECT_TRUE(client.Finish().ok());
  }
  const Recording recording = Stop();
  ASSERT_EQ(recording.calls.size(), 4u);
  for (const v1::SessionRecord& call : recording.calls) {
    EXPECT_FALSE(call.step().stamped() || call.step().unpadded());
    EXPECT_FALSE(call.answer().has_stamps());
  }
  EXPECT_EQ(recording.calls[3].answer().rows().row_size(), 1);
}

TEST_F(Recorded, HoldsUnaryStepsAndGivingBlocksBack) {
  Start();
  {
    StreamClient client(served_->NewChannel());
    client.StartRow(kRow, kPrompt, kMaxContext);
    const std::vector<uint32_t> more = client.Allocate(2);
    v1::StepRequest step = client.NewStep();
    step.set_continue_all(true);
    v1::StepResponse response;
    for (int i = 0; i < 2; ++i) {  // the second is given the first one's answer
      grpc::ClientContext context;
      EXPECT_TRUE(client.stub().Step(&context, step, &response).ok());
    }
    grpc::ClientContext context;
    v1::FreeRequest free;
    v1::FreeResponse freed;
    free.set_session(client.session());
    free.add_blocks(more[1]);
    EXPECT_TRUE(client.stub().Free(&context, free, &freed).ok());
  }
  const Recording recording = Stop();
  ASSERT_EQ(recording.calls.size(), 5u);
  EXPECT_EQ(recording.calls[2].allocate().count(), 2u);
  EXPECT_EQ(recording.calls[3].step().sequence(), 2u);
  EXPECT_TRUE(recording.calls[3].step().session().empty());
  EXPECT_EQ(recording.calls[4].free().blocks_size(), 1);
  EXPECT_TRUE(recording.calls[4].free().session().empty());
}

TEST_F(Recorded, HasAFileForEachSession) {
  Start();
  {
    StreamClient first(served_->NewChannel());
    StreamClient second(served_->NewChannel());
    first.StartRow(1, kPrompt, 16);
    second.StartRow(1, kPrompt, 16);
  }
  served_->StopServer();
  const std::vector<std::string> files = Files();
  ASSERT_EQ(files.size(), 2u);
  for (const std::string& file : files) EXPECT_EQ(ReadRecording(file)->calls.size(), 2u);
}

// The session goes on; its file says where it stops.
class RecordingThatStops : public Recorded {
 protected:
  void ExpectStopped(const RecordOptions& record, v1::RecordEndReason reason,
                     const std::string& why) {
    Start(record);
    StreamClient client(served_->NewChannel());
    client.StartRow(kRow, kPrompt, kMaxContext);
    const std::vector<uint32_t> tokens = Continue(client, kRow, 40);
    EXPECT_EQ(tokens.size(), 40u);
    EXPECT_TRUE(Eventually([&] { return !Reports().empty(); }));
    EXPECT_TRUE(client.Finish().ok());
    const Recording recording = Stop();
    EXPECT_EQ(recording.end, reason);
    EXPECT_LT(recording.calls.size(), 42u);
    ASSERT_EQ(Reports().size(), 1u);
    EXPECT_THAT(Reports()[0], HasSubstr(why));
    EXPECT_THAT(Reports()[0], HasSubstr("serving goes on"));
  }
};

TEST_F(RecordingThatStops, AtTheLimit) {
  constexpr uint64_t kLimit = 4000;
  ExpectStopped({.limit_bytes = kLimit}, v1::RECORD_END_REASON_LIMIT, "--record-limit");
  EXPECT_LE(std::filesystem::file_size(Files()[0]), kLimit);
}

TEST_F(RecordingThatStops, WhenTheDiskIsFull) {
  // What the system says when a file may not grow any more; it stands for a full disk.
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  // The model is written first.
  served_ = std::make_unique<ServedModel>();
  small.rlim_cur = 4000;
  struct Restore {
    rlimit limit;
    ~Restore() { ::setrlimit(RLIMIT_FSIZE, &limit); }
  };
  RecordOptions record;
  record.directory = directory_;
  auto recorder = Recorder::Open(record, [this](const std::string& what) {
    const std::lock_guard lock(mutex_);
    reports_.push_back(what);
  });
  ASSERT_TRUE(recorder.ok()) << recorder.status();
  {
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    const Restore restore{before};
    auto recording = (*recorder)->Begin(served_->engine(), 1, "test");
    ASSERT_NE(recording, nullptr);
    v1::StepRequest step;
    v1::StepResponse answer;
    for (uint32_t i = 0; i < 100; ++i) answer.mutable_rows()->add_token(i);
    for (uint64_t i = 1; i <= 100; ++i) {
      step.set_sequence(i);
      recording->AddStep(NowNs(), &step, &answer);
    }
    recording.reset();
    recorder->reset();
  }
  ASSERT_EQ(Reports().size(), 1u);
  EXPECT_THAT(Reports()[0], HasSubstr("File too large"));
  const auto recording = ReadRecording(Files().at(0));
  ASSERT_TRUE(recording.ok()) << recording.status();
  EXPECT_EQ(recording->end, v1::RECORD_END_REASON_WRITE_FAILED);
  EXPECT_GT(recording->calls.size(), 0u);
  EXPECT_LT(recording->calls.size(), 100u);
  EXPECT_EQ(recording->bytes_cut_off, 0u) << "what was written of a record is taken back";
}

TEST_F(RecordingThatStops, WhenRecordsComeTooFast) {
  // A turn of the writer comes too late for what is added at once.
  RecordOptions record;
  record.directory = directory_;
  record.max_waiting = 4;
  record.write_interval_ms = 60'000;
  served_ = std::make_unique<ServedModel>();
  auto recorder = Recorder::Open(record, [this](const std::string& what) {
    const std::lock_guard lock(mutex_);
    reports_.push_back(what);
  });
  ASSERT_TRUE(recorder.ok()) << recorder.status();
  auto recording = (*recorder)->Begin(served_->engine(), 1, "test");
  v1::StepRequest step;
  v1::StepResponse answer;
  for (uint64_t i = 1; i <= 10; ++i) {
    step.set_sequence(i);
    recording->AddStep(NowNs(), &step, &answer);
  }
  recording.reset();
  recorder->reset();
  const auto read = ReadRecording(Files().at(0));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->end, v1::RECORD_END_REASON_OVERFLOW);
  EXPECT_EQ(read->calls.size(), 3u) << "beside the header in a queue of four";
  ASSERT_EQ(Reports().size(), 1u);
}

TEST_F(RecordingThatStops, WhereEarlierRecordingsHaveReachedTheLimit) {
  std::filesystem::create_directory(directory_);
  std::ofstream(directory_ + "/old.record") << std::string(5000, 'x');
  std::ofstream(directory_ + "/other.txt") << std::string(5000, 'x');
  Start({.limit_bytes = 5200});
  for (int i = 0; i < 2; ++i) {
    StreamClient client(served_->NewChannel());
    client.StartRow(kRow, kPrompt, kMaxContext);
    EXPECT_EQ(Continue(client, kRow, 3).size(), 3u);
  }
  served_->StopServer();
  EXPECT_EQ(Files().size(), 2u) << "no new file";
  ASSERT_EQ(Reports().size(), 1u) << "said once for all sessions";
  EXPECT_THAT(Reports()[0], HasSubstr("a session is not recorded"));
}

TEST(Recorder, RefusesADirectoryThatCannotBeUsed) {
  const testing::TemporaryDirectory directory;
  std::ofstream(directory.path() + "/file") << "x";
  EXPECT_EQ(Recorder::Open({.directory = directory.path() + "/no/such"}, {}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(Recorder::Open({.directory = directory.path() + "/file"}, {}).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace reprise::service
