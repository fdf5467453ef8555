// SPDX-License-Identifier: Apache-2.0
// What a step may not do to be recorded: allocate, once the queue's places have grown.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "service/clock.h"
#include "service/record/recorder.h"
#include "tests/service/served_model.h"
#include "tests/testing/allocation_counter.h"
#include "tests/testing/tiny_model.h"

namespace reprise::service {
namespace {

TEST(SessionRecording, AllocatesNothingForAStepOfASizeThatCameBefore) {
  const testing::TemporaryDirectory directory;
  ServedModel served;
  constexpr size_t kPlaces = 8;
  const auto recorder = Recorder::Open(
      {.directory = directory.path(), .max_waiting = kPlaces, .write_interval_ms = 1}, {});
  ASSERT_TRUE(recorder.ok()) << recorder.status();
  const auto recording = (*recorder)->Begin(served.engine(), 1, "test");
  ASSERT_NE(recording, nullptr);
  v1::StepRequest step;
  v1::StepResponse answer;
  for (uint32_t i = 0; i < 200; ++i) answer.mutable_rows()->add_token(i);
  const auto add = [&] {
    step.set_sequence(step.sequence() + 1);
    recording->AddStep(NowNs(), &step, &answer);
    std::this_thread::sleep_for(std::chrono::milliseconds(3));  // the place is free again
  };
  for (size_t i = 0; i < 2 * kPlaces; ++i) add();
  const uint64_t before = testing::NumAllocationsOfThisThread();
  for (size_t i = 0; i < 2 * kPlaces; ++i) add();
  EXPECT_EQ(testing::NumAllocationsOfThisThread(), before);
}

}  // namespace
}  // namespace reprise::service
