// SPDX-License-Identifier: Apache-2.0
// Memory that runs out where no call can be refused for it: in the thread that writes recordings,
// while a call of the pool is recorded, and in the watch over sessions. It costs the recording that
// it was needed for, and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "service/clock.h"
#include "service/end_session.h"
#include "service/record/record_format.h"
#include "service/record/recorder.h"
#include "service/step_service.h"
#include "tests/service/served_model.h"
#include "tests/testing/allocation_counter.h"
#include "tests/testing/tiny_model.h"

namespace reprise::service {
namespace {

using ::testing::HasSubstr;

class Reports {
 public:
  std::function<void(const std::string&)> Sink() {
    return [this](const std::string& what) {
      const std::lock_guard lock(mutex_);
      reports_.push_back(what);
    };
  }
  std::vector<std::string> All() {
    const std::lock_guard lock(mutex_);
    return reports_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> reports_;
};

class RecordingWithoutMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    RecordOptions options;
    options.directory = directory_.path();
    options.write_interval_ms = 1;
    auto recorder = Recorder::Open(options, reports_.Sink());
    ASSERT_TRUE(recorder.ok()) << recorder.status();
    recorder_ = *std::move(recorder);
  }
  std::unique_ptr<SessionRecording> Begin(uint64_t session) {
    return recorder_->Begin(*tiny_.engine, session, "test");
  }
  static void AddStep(SessionRecording* recording, uint64_t sequence, uint32_t tokens) {
    v1::StepRequest step;
    v1::StepResponse answer;
    step.set_sequence(sequence);
    for (uint32_t i = 0; i < tokens; ++i) answer.mutable_rows()->add_token(i);
    recording->AddStep(NowNs(), &step, &answer);
  }
  bool AwaitSteps(uint64_t count) {
    return Eventually([&] { return recorder_->counters().steps.value() == count; });
  }
  static uint64_t OutOfMemory(const std::array<Counter, kNumRecordLosses>& counters) {
    return counters[static_cast<size_t>(RecordLoss::kOutOfMemory)].value();
  }
  // By session. The recorder is gone then.
  std::map<uint64_t, Recording> Read() {
    recorder_.reset();
    std::map<uint64_t, Recording> recordings;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
      auto recording = ReadRecording(entry.path());
      EXPECT_TRUE(recording.ok()) << recording.status();
      if (recording.ok()) recordings[recording->header.session()] = *std::move(recording);
    }
    return recordings;
  }

  testing::TemporaryDirectory model_;
  testing::TemporaryDirectory directory_;
  TinyEngine tiny_{*testing::WriteTinyModel({}, model_.path() + "/tiny")};
  Reports reports_;
  std::unique_ptr<Recorder> recorder_;
};

TEST_F(RecordingWithoutMemory, StopsInTheWritersThreadAndCostsNoOther) {
  auto small = Begin(1);
  auto large = Begin(2);
  AddStep(small.get(), 1, 1);
  AddStep(large.get(), 1, 1);
  ASSERT_TRUE(AwaitSteps(2));
  std::unique_ptr<SessionRecording> late;
  {
    const testing::LargeAllocationsFail out(1);
    AddStep(large.get(), 2, 10000);  // more than what was written before takes
    EXPECT_TRUE(Eventually([&] { return OutOfMemory(recorder_->counters().stopped) == 1; }));
    late = Begin(3);
    EXPECT_TRUE(Eventually([&] { return OutOfMemory(recorder_->counters().refused) == 1; }));
    AddStep(small.get(), 2, 1);
    EXPECT_TRUE(AwaitSteps(3)) << "needs no memory";
    EXPECT_TRUE(reports_.All().empty()) << "there is no memory to say it";
  }
  EXPECT_TRUE(Eventually([&] { return !reports_.All().empty(); }));
  EXPECT_THAT(reports_.All()[0], HasSubstr("out of memory"));
  AddStep(small.get(), 3, 10000);
  AddStep(large.get(), 3, 1);
  small.reset();
  large.reset();
  late.reset();
  const std::map<uint64_t, Recording> recordings = Read();
  ASSERT_EQ(recordings.size(), 2u) << "none of the session that began meanwhile";
  EXPECT_EQ(recordings.at(1).calls.size(), 3u);
  EXPECT_EQ(recordings.at(1).end, v1::RECORD_END_REASON_SESSION_ENDED);
  EXPECT_EQ(recordings.at(2).calls.size(), 1u);
  EXPECT_EQ(recordings.at(2).end, v1::RECORD_END_REASON_OUT_OF_MEMORY);
}

TEST_F(RecordingWithoutMemory, EndsWithASessionThatNeedsNone) {
  auto recording = Begin(1);
  AddStep(recording.get(), 1, 1);
  ASSERT_TRUE(AwaitSteps(1));
  const uint64_t before = recorder_->counters().bytes.load();
  {
    const testing::LargeAllocationsFail out(1);
    recording.reset();
    EXPECT_TRUE(Eventually([&] { return recorder_->counters().bytes.load() > before; }));
  }
  EXPECT_EQ(Read().at(1).end, v1::RECORD_END_REASON_SESSION_ENDED);
  EXPECT_TRUE(reports_.All().empty());
}

TEST_F(RecordingWithoutMemory, StopsWhereACallOfThePoolCannotBeAdded) {
  auto recording = Begin(1);
  AddStep(recording.get(), 1, 1);
  v1::AllocateRequest request;
  v1::AllocateResponse response;
  for (uint32_t i = 0; i < 10000; ++i) response.add_blocks(i);
  {
    const testing::LargeAllocationsFail out(10000);
    std::thread([&] { recording->AddAllocate(request, response); }).join();
  }
  AddStep(recording.get(), 2, 1);
  EXPECT_TRUE(Eventually([&] { return !reports_.All().empty(); }));
  EXPECT_EQ(OutOfMemory(recorder_->counters().stopped), 1u);
  recording.reset();
  const std::map<uint64_t, Recording> recordings = Read();
  EXPECT_EQ(recordings.at(1).calls.size(), 1u) << "nothing behind what is missing";
  EXPECT_EQ(recordings.at(1).end, v1::RECORD_END_REASON_OUT_OF_MEMORY);
}

TEST_F(RecordingWithoutMemory, IsNotBegunAndSaidSo) {
  std::unique_ptr<SessionRecording> recording;
  {
    const testing::LargeAllocationsFail out(1);
    std::thread([&] { recording = Begin(1); }).join();
  }
  EXPECT_EQ(recording, nullptr);
  EXPECT_EQ(OutOfMemory(recorder_->counters().refused), 1u);
  EXPECT_TRUE(Eventually([&] { return !reports_.All().empty(); }));
  EXPECT_TRUE(Read().empty());
}

// ---- the watch ----

class NoStream final : public SessionStream {
 public:
  void LoseSession(const absl::Status&) override {}
  void GainSession() override {}
};

TEST(SessionWatch, WithoutMemoryEndsExpiredSessionsLater) {
  testing::TemporaryDirectory model;
  TinyEngine tiny(*testing::WriteTinyModel({}, model.path() + "/tiny"));
  Callers callers(std::vector<Identity>{});
  Reports reports;
  StepService service({.max_message_bytes = 1 << 20,
                       .max_waiting_bytes = 1 << 20,
                       .max_sessions = 4,
                       .max_resume_grace_ms = 1000},
                      callers, reports.Sink());
  service.Attach(*tiny.engine, /*exchange=*/nullptr, [] {});
  SessionRegistry& sessions = service.host()->sessions;
  const auto stream = std::make_shared<NoStream>();
  Account* account = nullptr;
  callers.ForEachAccount([&account](Account& one, const Identity*) { account = &one; });
  const auto session =
      sessions.Open(*tiny.engine, *account,
                    {.client = "test", .grace_ns = 1'000'000, .origin = {}, .stream = stream});
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(tiny.engine->AllocateBlocks((*session)->info.id, 2).ok());
  const uint32_t free_blocks = tiny.engine->pool().free_blocks;
  {
    const testing::LargeAllocationsFail out(1);
    sessions.Release(**session, *stream, /*lost=*/true, NowNs());
    EXPECT_TRUE(Eventually([&] { return service.telemetry().looks_out_of_memory() > 0; }));
  }
  EXPECT_TRUE(Eventually([&] { return sessions.num_open() == 0; }));
  EXPECT_TRUE(Eventually([&] { return tiny.engine->pool().free_blocks == free_blocks + 2; }));
  EXPECT_TRUE(Eventually([&] { return !reports.All().empty(); }));
  EXPECT_THAT(reports.All()[0], HasSubstr("reprise_session_watch_out_of_memory_total"));
}

}  // namespace
}  // namespace reprise::service
