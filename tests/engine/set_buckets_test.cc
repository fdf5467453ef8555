// SPDX-License-Identifier: Apache-2.0
// Buckets that change while an engine runs: which graphs steps replay, that rows keep their bits,
// and that nothing changes where a capture fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
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
using ::reprise::testing::RandomPrompt;
using ::reprise::testing::RowPlan;
using ::reprise::testing::StatusIs;
using ::reprise::testing::StepDraft;
using ::reprise::testing::TestEngine;
using ::reprise::testing::Token;
using ::testing::ElementsAre;

using ::reprise::testing::kInvalid;

using SetBucketsTest = testing::EngineTest;
REPRISE_ENGINE_ON_EVERY_DEVICE(SetBucketsTest);

std::vector<std::string> NamesOf(const GraphsInfo& info) {
  std::vector<std::string> names;
  for (const auto* buckets : {&info.decode_buckets, &info.mixed_buckets})
    for (const graphs::CapturedBucket& captured : *buckets) names.push_back(captured.bucket.name);
  return names;
}

const std::vector<std::string>& NamesAtStart() {
  static const std::vector<std::string> names = {"decode/1", "decode/2", "decode/4",
                                                 "decode/8", "mixed/16", "mixed/64"};
  return names;
}

RowPlan Plan(uint32_t row) { return {.row = row, .prompt = RandomPrompt(40 + row, 3 + 5 * row)}; }

TEST_P(SetBucketsTest, StepsReplayTheSmallestOfTheNewOnes) {
  const TestEngine tiny = MakeEngine();
  const GraphsInfo start = tiny.engine->captured_graphs();
  EXPECT_EQ(start.version, 1u);
  EXPECT_EQ(NamesOf(start), NamesAtStart());
  EXPECT_EQ(start.device_bytes, tiny.engine->info().memory.graphs_bytes);

  EngineDriver driver(*tiny.engine);
  for (const uint32_t row : {0u, 1u, 2u}) driver.Start(Plan(row), 20);
  // The name stays where its graph goes.
  const std::string_view before = driver.Step({.continue_rows = {0, 1, 2}}).report.graph;
  EXPECT_EQ(before, "decode/4");

  ASSERT_OK_AND_ASSIGN(const GraphsInfo now,
                       tiny.engine->SetBuckets({.decode = {5, 3}, .mixed = {64, 24}}));
  EXPECT_EQ(now.version, 2u);
  EXPECT_THAT(NamesOf(now), ElementsAre("decode/3", "decode/5", "mixed/24", "mixed/64"));
  EXPECT_GT(now.capture_ns, 0u);
  for (const graphs::CapturedBucket& captured : now.decode_buckets)
    EXPECT_GT(captured.num_kernel_nodes, 0);

  const StepReport& three = driver.Step({.continue_rows = {0, 1, 2}}).report;
  EXPECT_EQ(three.graph, "decode/3");
  EXPECT_TRUE(three.replayed);
  EXPECT_EQ(three.padding_rows, 0u);
  EXPECT_EQ(driver.Step({.continue_rows = {1}}).report.padding_rows, 2u);
  const StepReport& mixed =
      driver.Step({.chunks = {{.row = 1, .tokens = {4, 5}}}, .continue_rows = {0}}).report;
  EXPECT_EQ(mixed.graph, "mixed/24");
  EXPECT_EQ(mixed.padding_tokens, 21u);
  EXPECT_EQ(before, "decode/4");
  // What the engine started with stays what it says.
  EXPECT_EQ(tiny.engine->info().decode_buckets.size(), 4u);
}

TEST_P(SetBucketsTest, AKindWithoutBucketsKeepsThem) {
  const TestEngine tiny = MakeEngine();
  ASSERT_OK_AND_ASSIGN(const GraphsInfo decode, tiny.engine->SetBuckets({.decode = {7}}));
  EXPECT_THAT(NamesOf(decode), ElementsAre("decode/7", "mixed/16", "mixed/64"));
  ASSERT_OK_AND_ASSIGN(const GraphsInfo mixed, tiny.engine->SetBuckets({.mixed = {64}}));
  EXPECT_THAT(NamesOf(mixed), ElementsAre("decode/7", "mixed/64"));
  EXPECT_EQ(mixed.version, 3u);
  EXPECT_EQ(NamesOf(tiny.engine->captured_graphs()), NamesOf(mixed));
  // More rows than the largest decode bucket replay a mixed graph, as ever.
  EngineDriver driver(*tiny.engine);
  StepDraft all;
  for (uint32_t row = 0; row < 8; ++row) {
    driver.Start(Plan(row), 4);
    all.continue_rows.push_back(row);
  }
  EXPECT_EQ(driver.Step(all).report.graph, "mixed/64");
}

TEST_P(SetBucketsTest, RefusesWhatWouldChangeTheLimits) {
  auto options = Options();
  options.engine.max_rows = 80;
  options.engine.decode_buckets = {4, 80};
  const TestEngine tiny = MakeTestEngine(options);
  const auto refused = [&](const BucketSets& buckets, const std::string& words) {
    EXPECT_THAT(tiny.engine->SetBuckets(buckets).status(), StatusIs(kInvalid, words));
  };
  refused({}, "got neither decode nor mixed ones");
  refused({.decode = {0, 80}}, "decode bucket is 0; allowed: 1 to 80, max_rows");
  refused({.decode = {81}}, "decode bucket is 81; allowed: 1 to 80, max_rows");
  refused({.decode = {4}}, "the largest decode bucket is 4; allowed: 80");
  refused({.mixed = {-1, 64}}, "mixed bucket is -1; allowed: 1 to 64");
  refused({.mixed = {65}}, "mixed bucket is 65; allowed: 1 to 64");
  refused({.mixed = {16}}, "the largest mixed bucket is 16; allowed: 64");
  EXPECT_EQ(tiny.engine->captured_graphs().version, 1u);

  // Memory is laid out for 64 tokens of a step here.
  options.engine.decode_buckets = {4};
  const TestEngine narrow = MakeTestEngine(options);
  EXPECT_THAT(narrow.engine->SetBuckets({.decode = {65}}).status(),
              StatusIs(kInvalid, "decode bucket is 65; allowed: 1 to 64, max_step_tokens"));
  EXPECT_OK(narrow.engine->SetBuckets({.decode = {64}}).status());
}

// Steps that were submitted before finish on the graphs that they were launched with.
TEST_P(SetBucketsTest, StepsInFlightEndOnTheirOwnGraphs) {
  auto options = Options();
  options.engine.pipeline_depth = 2;
  const TestEngine tiny = MakeTestEngine(options);
  EngineDriver driver(*tiny.engine);
  driver.Start(Plan(1), 20);
  driver.ContinueAll(6);
  const std::vector<Token> alone = driver.tokens(1);

  EngineDriver again(*tiny.engine);
  again.Start(Plan(1), 20);
  for (const int64_t rows : {3, 5, 2}) {
    const StepTicket first = again.Submit({.continue_all = true});
    ASSERT_OK(tiny.engine->SetBuckets({.decode = {rows}}));
    const StepTicket second = again.Submit({.continue_all = true});
    again.Wait(first);
    EXPECT_EQ(again.Wait(second).report.graph, absl::StrCat("decode/", rows));
  }
  EXPECT_EQ(again.tokens(1), alone);
}

// Another thread changes the buckets all the time.
TEST_P(SetBucketsTest, ChangingThemUnderLoadChangesNoBits) {
  const TestEngine tiny = MakeEngine();
  std::vector<std::vector<Token>> alone;
  for (uint32_t row = 0; row < 4; ++row) {
    EngineDriver driver(*tiny.engine);
    alone.push_back(driver.Generate(Plan(row), 40));
  }
  std::atomic<bool> stop = false;
  std::thread changing([&] {
    while (!stop) {
      EXPECT_OK(tiny.engine->SetBuckets({.decode = {1, 3}, .mixed = {8, 64}}));
      EXPECT_OK(tiny.engine->SetBuckets({.decode = {2, 6}, .mixed = {32, 64}}));
    }
  });
  std::set<std::string_view> graphs;  // of four rows that decode
  // Until the buckets have changed below the rows, however slow the other thread is.
  for (int life = 0; life < 1000 && graphs.size() < 2; ++life) {
    EngineDriver driver(*tiny.engine);
    for (uint32_t row = 0; row < 4; ++row) driver.Start(Plan(row), 40);
    while (driver.tokens(3).size() < 40) {
      StepDraft draft;
      for (uint32_t row = 0; row < 4; ++row)
        if (driver.tokens(row).size() < 40) draft.continue_rows.push_back(row);
      const StepReport& report = driver.Step(draft).report;
      EXPECT_TRUE(report.replayed);
      if (draft.continue_rows.size() == 4) graphs.insert(report.graph);
    }
    for (uint32_t row = 0; row < 4; ++row) EXPECT_EQ(driver.tokens(row), alone[row]) << row;
  }
  stop = true;
  changing.join();
  EXPECT_GE(graphs.size(), 2u);
}

TEST_P(SetBucketsTest, KeepsNothingOfTheGraphsBefore) {
  InstrumentedEngine tiny = MakeInstrumentedEngine(Options());
  EngineDriver driver(*tiny.engine);
  driver.Start(Plan(1), 20);
  const size_t before = tiny.instruments->device_bytes();
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(tiny.engine->SetBuckets({.decode = {3}}));
    driver.ContinueAll(1);
    ASSERT_OK(tiny.engine->SetBuckets({.decode = {2}}));
    driver.ContinueAll(1);
  }
  EXPECT_EQ(tiny.instruments->device_bytes(), before);
}

// Whichever call of the device fails, steps go on with the graphs that there were.
TEST_P(SetBucketsTest, ACaptureThatFailsChangesNothing) {
  InstrumentedEngine tiny = MakeInstrumentedEngine(Options());
  InstrumentedDevice& device = *tiny.instruments;
  EngineDriver driver(*tiny.engine);
  driver.Start(Plan(1), 40);
  int num_failed = 0;
  for (int call = 1;; call += 3) {
    device.FailCall(call, absl::ResourceExhaustedError("no memory for a graph"));
    const auto set = tiny.engine->SetBuckets({.decode = {3}, .mixed = {64}});
    if (!device.call_failed()) {
      EXPECT_OK(set);
      device.FailCall(0, absl::OkStatus());
      break;
    }
    EXPECT_THAT(set.status(),
                StatusIs(absl::StatusCode::kResourceExhausted, "no memory for a graph"));
    EXPECT_EQ(NamesOf(tiny.engine->captured_graphs()), NamesAtStart());
    if (driver.tokens(1).size() < 20) {
      EXPECT_EQ(driver.Step({.continue_all = true}).report.graph, "decode/1");
    }
    ++num_failed;
  }
  EXPECT_GT(num_failed, 10);
  EXPECT_EQ(driver.Step({.continue_all = true}).report.graph, "decode/3");
}

TEST_P(SetBucketsTest, AFaultedEngineRefuses) {
  InstrumentedEngine tiny = MakeInstrumentedEngine(Options());
  EngineDriver driver(*tiny.engine);
  driver.Start(Plan(1), 10);
  tiny.instruments->FailReplays(absl::InternalError("the cable came out"));
  EXPECT_THAT(driver.TryStep({.continue_all = true}).status(),
              StatusIs(absl::StatusCode::kInternal, "the cable came out"));
  EXPECT_THAT(tiny.engine->SetBuckets({.decode = {3}}).status(),
              StatusIs(absl::StatusCode::kUnavailable, "the cable came out"));
}

}  // namespace
}  // namespace reprise::engine
