// SPDX-License-Identifier: Apache-2.0
// After a device fault the engine refuses every further step with the cause, and says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "engine/decode_engine.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/instrumented_device.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::EngineDriver;
using ::reprise::testing::InstrumentedDevice;
using ::reprise::testing::InstrumentedEngine;
using ::reprise::testing::MakeInstrumentedEngine;
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::StatusIs;
using ::reprise::testing::StepDraft;
using ::reprise::testing::TestEngine;

using ::reprise::testing::kUnavailable;
constexpr absl::StatusCode kDeadline = absl::StatusCode::kDeadlineExceeded;

// Sessions can still be closed; EngineDriver's destructor checks that.
void ExpectEveryStepRefused(EngineDriver& driver, const std::string& cause) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(driver.TryStep({.continue_all = true}), StatusIs(kUnavailable, cause));
    const StepDraft add{.add = {{.row = 9}}};
    const DraftView view(add, driver.session(), driver.sequence());
    EXPECT_THAT(driver.engine().Submit(view.request()), StatusIs(kUnavailable, cause));
  }
  EXPECT_THAT(driver.engine().health().ToString(), ::testing::HasSubstr(cause));
}

class EngineFaultTest : public testing::EngineTest {};
REPRISE_ENGINE_ON_EVERY_DEVICE(EngineFaultTest);

TEST_P(EngineFaultTest, FailedLaunchIsSticky) {
  const InstrumentedEngine tiny = MakeInstrumentedEngine(Options());
  InstrumentedDevice& device = *tiny.instruments;
  EngineDriver driver(*tiny.engine), other(*tiny.engine);
  driver.Start({.row = 1, .prompt = {4, 5}}, 20);
  EXPECT_OK(tiny.engine->health());
  device.FailReplays(absl::InternalError("the cable came out"));
  EXPECT_THAT(driver.TryStep({.continue_all = true}),
              StatusIs(absl::StatusCode::kInternal, "the cable came out"));
  // Plugged in again: host and device have parted all the same.
  device.FailReplays(absl::OkStatus());
  const int replays = device.calls().replays;
  ExpectEveryStepRefused(driver, "the cable came out");
  ExpectEveryStepRefused(other, "the cable came out");
  EXPECT_EQ(device.calls().replays, replays);
}

// The steps before it run, but nobody will hear of them.
TEST_P(EngineFaultTest, FailedLaunchOfALaterStepOfARequestIsSticky) {
  for (const int failed : {0, 1, 3}) {
    auto options = Options();
    options.engine.max_steps_per_request = 4;
    const InstrumentedEngine tiny = MakeInstrumentedEngine(options);
    InstrumentedDevice& device = *tiny.instruments;
    EngineDriver driver(*tiny.engine), other(*tiny.engine);
    driver.Start({.row = 1, .prompt = {4, 5}}, 20);
    const int before = device.calls().replays;
    device.FailReplays(absl::InternalError("the cable came out"), failed);
    EXPECT_THAT(driver.TryStep({.continue_all = true, .num_steps = 4}),
                StatusIs(absl::StatusCode::kInternal, "the cable came out"));
    EXPECT_EQ(device.calls().replays, before + failed + 1);
    device.FailReplays(absl::OkStatus());
    ExpectEveryStepRefused(driver, "the cable came out");
    ExpectEveryStepRefused(other, "the cable came out");
    EXPECT_EQ(device.calls().replays, before + failed + 1);
  }
}

TEST_P(EngineFaultTest, StepInFlightBeforeAFailedLaunchIsReportedLost) {
  const InstrumentedEngine tiny = MakeInstrumentedEngine(Options());
  InstrumentedDevice& device = *tiny.instruments;
  EngineDriver driver(*tiny.engine);
  driver.Start({.row = 1, .prompt = {4, 5}}, 20);
  const StepTicket ticket = driver.Submit({.continue_all = true});
  device.FailReplays(absl::InternalError("the cable came out"));
  const StepDraft next{.continue_all = true};
  const DraftView view(next, driver.session(), driver.sequence());
  EXPECT_THAT(tiny.engine->Submit(view.request()),
              StatusIs(absl::StatusCode::kInternal, "the cable came out"));
  StepResult result;
  EXPECT_THAT(tiny.engine->Wait(ticket, &result),
              StatusIs(absl::StatusCode::kInternal, "the cable came out"));
}

// Kernels that take longer than the watchdog allows.
TEST(EngineWatchdog, StepWithoutAResultInTimeIsAFault) {
  testing::TestEngineOptions options{.device = {.host_threads = 1},
                                     .delays = {.max_us = 12000, .seed = 4}};
  options.model.num_layers = 1;
  options.engine.decode_buckets = {1};
  options.engine.mixed_buckets = {2};
  options.engine.watchdog_timeout_ms = 12;
  const TestEngine tiny = MakeTestEngine(options);
  EngineDriver driver(*tiny.engine);
  const StepDraft step{.add = {{.row = 1, .blocks = driver.Allocate(2)}},
                       .chunks = {{.row = 1, .tokens = {3}}}};
  const StepTicket ticket = driver.Submit(step);
  StepResult result;
  EXPECT_THAT(tiny.engine->Wait(ticket, &result),
              StatusIs(kDeadline, "request 1, step 1 of 1: no result after 12 ms"));
  EXPECT_THAT(tiny.engine->Wait(ticket, &result), StatusIs(kDeadline, "no result"));
  ExpectEveryStepRefused(driver, "no result after 12 ms");
}

}  // namespace
}  // namespace reprise::engine
