// SPDX-License-Identifier: Apache-2.0
// The whole scheduler against a strict fake server, in simulated time.
#include "tools/sched/driver.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/fake_step_server.h"
#include "tools/sched/batcher.h"
#include "tools/sched/block_manager.h"
#include "tools/sched/run_chart.h"
#include "tools/sched/stats.h"
#include "tools/sched/workload.h"

namespace reprise::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Every look at the clock takes a microsecond.
class FakeClock : public Clock {
 public:
  uint64_t NowNs() override { return now_ns_ += 1000; }
  void SleepNs(uint64_t ns) override { now_ns_ += ns; }

 private:
  uint64_t now_ns_ = 0;
};

ServerInfo Limits(uint32_t num_blocks, uint32_t max_rows) {
  return {.limits = {.block_size = 3,
                     .vocab_size = 97,
                     .max_rows = max_rows,
                     .max_context_length = 200,
                     .max_step_tokens = 32,
                     .max_prompt_tokens = 32,
                     .pipeline_depth = 2,
                     .max_steps_per_request = 8},
          .num_blocks = num_blocks};
}

// Random lengths and stop tokens, all from the seed.
std::vector<Request> RandomRequests(uint64_t seed, uint32_t count) {
  Random random(seed);
  std::vector<Request> requests(count);
  uint64_t arrival_ns = 0;
  for (uint32_t i = 0; i < count; ++i) {
    Request& request = requests[i];
    request.id = i + 1;
    request.prompt.resize(1 + random.Below(50));
    for (uint32_t& token : request.prompt) token = static_cast<uint32_t>(random.Below(97));
    request.max_new_tokens = static_cast<uint32_t>(1 + random.Below(40));
    request.stop_sequences = {{static_cast<uint32_t>(random.Below(97))}};
    request.arrival_ns = arrival_ns += random.Below(50'000);
  }
  return requests;
}

struct Scheduler {
  explicit Scheduler(const ServerInfo& server_limits, BatcherOptions batcher_options = {},
                     DriverOptions driver_options = {}, DriverListener* driver_listener = nullptr)
      : limits(server_limits),
        server(limits),
        blocks(&server, {.batch = 4}),
        batcher(limits, batcher_options, &blocks),
        driver(&batcher, &blocks, &server, &clock,
               driver_listener != nullptr ? driver_listener : &silent, driver_options) {}

  void ExpectAllRight(const std::vector<Request>& requests) {
    EXPECT_THAT(server.violations, IsEmpty());
    EXPECT_EQ(server.num_rows(), 0u);
    EXPECT_EQ(server.num_held_blocks(), 0u);
    for (const Request& request : requests) {
      EXPECT_EQ(request.tokens, ExpectedTokens(request, limits.limits.vocab_size)) << request.id;
      EXPECT_EQ(request.token_times_ns.size(), request.tokens.size());
      EXPECT_TRUE(std::is_sorted(request.token_times_ns.begin(), request.token_times_ns.end()));
    }
  }

  ServerInfo limits;
  FakeStepServer server;
  BlockManager blocks;
  Batcher batcher;
  FakeClock clock;
  DriverListener silent;
  Driver driver;
};

class DriverSeeds : public ::testing::TestWithParam<uint64_t> {};

TEST_P(DriverSeeds, EveryRequestGetsItsTokensWhateverThePoolAndTheDepth) {
  for (const uint32_t num_blocks :
       {31u, 60u, 400u}) {  // 31: the longest request alone fills the pool
    for (const uint32_t depth : {1u, 2u}) {
      Scheduler run(Limits(num_blocks, 6), {.step_tokens = 20}, {.pipeline_depth = depth});
      std::vector<Request> requests = RandomRequests(GetParam(), 40);
      const absl::Status status = run.driver.Run(&requests);
      ASSERT_TRUE(status.ok()) << status;
      run.ExpectAllRight(requests);
      uint32_t preemptions = 0;
      for (const Request& request : requests) preemptions += request.num_preemptions;
      EXPECT_TRUE(num_blocks != 31 || preemptions > 0);
      EXPECT_TRUE(num_blocks != 400 || preemptions == 0);
    }
  }
}

TEST_P(DriverSeeds, EveryRequestGetsItsTokensWhateverTheStepsPerRequest) {
  uint32_t several = 0, paused = 0;
  for (const uint32_t num_blocks : {31u, 60u, 400u}) {
    for (const uint32_t steps : {2u, 5u, 8u}) {
      for (const uint32_t depth : {1u, 2u}) {
        Scheduler run(Limits(num_blocks, 6), {.step_tokens = 20, .steps_per_request = steps},
                      {.pipeline_depth = depth});
        std::vector<Request> requests = RandomRequests(GetParam(), 40);
        const absl::Status status = run.driver.Run(&requests);
        ASSERT_TRUE(status.ok()) << status;
        run.ExpectAllRight(requests);
        for (const PlannedStep& step : run.server.steps) several += step.num_steps > 1;
        paused += run.server.num_paused;
      }
    }
  }
  EXPECT_GT(several, 100u);
  EXPECT_GT(paused, 0u);
}

// Of rows that have paused or stopped no KV is read.
TEST_P(DriverSeeds, ContextIsCountedOfRowsThatRan) {
  struct Contexts : DriverListener {
    void OnStep(const StepOutcome& outcome, const FinishedStep& step) override {
      uint64_t context_tokens = 0;
      for (const engine::RowOutcome& row : outcome.rows) {
        if (row.status == engine::RowStatus::kRan) context_tokens += row.context_length;
        num_idle += row.status != engine::RowStatus::kRan;
      }
      EXPECT_EQ(step.context_tokens, context_tokens);
    }
    uint32_t num_idle = 0;
  } contexts;
  Scheduler run(Limits(60, 6), {.step_tokens = 20, .steps_per_request = 8}, {}, &contexts);
  std::vector<Request> requests = RandomRequests(GetParam(), 40);
  const absl::Status status = run.driver.Run(&requests);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_GT(contexts.num_idle, 0u);
}

// Whatever room there is in swap space, and whatever is lost on the way there and back.
TEST_P(DriverSeeds, RowsThatAreSwappedGetTheirTokens) {
  uint32_t swaps = 0, recomputed = 0;
  for (const uint32_t room : {12u, 1000u}) {
    for (const uint32_t depth : {1u, 2u}) {
      for (const uint32_t steps : {1u, 4u}) {
        ServerInfo limits = Limits(31, 6);
        limits.num_swap_blocks = room;
        // Rows of one model carry state beside their KV, those of the other do not.
        limits.limits.row_state_bytes = depth == steps ? 64 : 0;
        Scheduler run(
            limits,
            {.step_tokens = 20, .steps_per_request = steps, .preemption = Preemption::kSwap},
            {.pipeline_depth = depth});
        run.server.swap_room = room;
        run.server.state_room = room / 4;
        run.server.lose_swap_outs = run.server.lose_swap_ins = room == 1000 ? 0 : 2;
        std::vector<Request> requests = RandomRequests(GetParam(), 40);
        const absl::Status status = run.driver.Run(&requests);
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_EQ(run.server.num_swapped_blocks(), 0u);
        EXPECT_EQ(run.server.num_swapped_states(), 0u);
        for (const Request& request : requests) {
          swaps += request.num_swaps;
          recomputed += request.num_preemptions - request.num_swaps;
          EXPECT_EQ(request.tokens, ExpectedTokens(request, 97)) << request.id;
        }
        EXPECT_THAT(run.server.violations, IsEmpty());
        EXPECT_EQ(run.server.num_rows(), 0u);
        EXPECT_EQ(run.server.num_held_blocks(), 0u);
      }
    }
  }
  EXPECT_GT(swaps, 10u);
  EXPECT_GT(recomputed, 0u);
}

TEST_P(DriverSeeds, PrioritiesChangeNoToken) {
  for (const Preemption preemption : {Preemption::kRecompute, Preemption::kSwap}) {
    ServerInfo limits = Limits(40, 4);
    limits.num_swap_blocks = 1000;
    Scheduler run(limits, {.step_tokens = 20, .preemption = preemption}, {});
    run.server.swap_room = 1000;
    std::vector<Request> requests = RandomRequests(GetParam(), 40);
    for (Request& request : requests) {
      request.priority = static_cast<int32_t>(request.id * 7 % 3) - 1;
      if (request.id % 2 == 0) request.sampling.numbers.presence_penalty = 0.5f;
    }
    const absl::Status status = run.driver.Run(&requests);
    ASSERT_TRUE(status.ok()) << status;
    run.ExpectAllRight(requests);
    EXPECT_EQ(run.server.num_swapped_blocks(), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(All, DriverSeeds, ::testing::Range<uint64_t>(1, 13));

// Other sessions come and go on the server while ours runs.
class Neighbours : public DriverListener {
 public:
  FakeStepServer* server = nullptr;
  void OnStep(const StepOutcome& outcome, const FinishedStep&) override {
    server->rows_of_others = static_cast<uint32_t>(outcome.sequence / 7 % 4);
    server->blocks_of_others = static_cast<uint32_t>(outcome.sequence / 5 % 3 * 20);
  }
};

TEST_P(DriverSeeds, NeighboursThatTakeRowsAndBlocksChangeNoToken) {
  for (const uint64_t state_bytes : {0, 64}) {
    Neighbours neighbours;
    ServerInfo limits = Limits(80, 5);
    const bool swap = state_bytes != 0;
    limits.num_swap_blocks = 1000;
    limits.limits.row_state_bytes = state_bytes;
    Scheduler run(
        limits,
        {.step_tokens = 20, .preemption = swap ? Preemption::kSwap : Preemption::kRecompute}, {},
        &neighbours);
    run.server.swap_room = run.server.state_room = 1000;
    neighbours.server = &run.server;
    std::vector<Request> requests = RandomRequests(GetParam(), 40);
    const absl::Status status = run.driver.Run(&requests);
    ASSERT_TRUE(status.ok()) << status;
    run.ExpectAllRight(requests);
    EXPECT_GT(run.server.num_refused, 0u);
    // A state that came back with a step that was refused was forgotten.
    EXPECT_EQ(run.server.num_swapped_states(), 0u);
  }
}

TEST(Driver, KeepsTwoStepsInFlight) {
  class Depth : public DriverListener {
   public:
    Batcher* batcher = nullptr;
    size_t full = 0;
    size_t steps = 0;
    void OnStep(const StepOutcome&, const FinishedStep&) override {
      ++steps;
      full += batcher->num_in_flight() == 1;  // one left while this one's result is looked at
    }
  } depth;
  Scheduler run(Limits(400, 6), {}, {.pipeline_depth = 2}, &depth);
  depth.batcher = &run.batcher;
  std::vector<Request> requests = RandomRequests(1, 1);
  requests[0].max_new_tokens = 30;
  requests[0].stop_sequences.clear();
  ASSERT_TRUE(run.driver.Run(&requests).ok());
  // All but the last step that runs the row, and the one that drops it.
  EXPECT_EQ(depth.full, depth.steps - 2);
}

TEST(Driver, RunsToTheEndWhenRowsHaveNoCandidates) {
  for (const uint32_t depth : {1u, 2u}) {
    Scheduler run(Limits(31, 6), {.step_tokens = 20}, {.pipeline_depth = depth});
    std::vector<Request> requests = RandomRequests(1, 40);
    run.server.dead_end = 7;
    const absl::Status status = run.driver.Run(&requests);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_THAT(run.server.violations, IsEmpty());
    EXPECT_EQ(run.server.num_held_blocks(), 0u);
    uint32_t num_failed = 0;
    for (const Request& request : requests) {
      ASSERT_TRUE(request.finished()) << request.id;
      num_failed += request.failed();
      const uint32_t last = request.tokens.empty() ? request.prompt.back() : request.tokens.back();
      EXPECT_TRUE(!request.failed() || last == 7u) << request.id;
      EXPECT_EQ(request.token_times_ns.size(), request.tokens.size());
      const std::vector<uint32_t> all = ExpectedTokens(request, 97);
      ASSERT_LE(request.tokens.size(), all.size());
      EXPECT_TRUE(request.failed() || request.tokens == all);
      EXPECT_TRUE(std::equal(request.tokens.begin(), request.tokens.end(), all.begin()));
    }
    EXPECT_GT(num_failed, 0u);
    EXPECT_LT(num_failed, 40u);
  }
}

TEST(Driver, SaysWhyItFailedWhenTheServerGoes) {
  Scheduler run(Limits(400, 6));
  run.server.fail_after_results = 3;
  std::vector<Request> requests = RandomRequests(1, 5);
  EXPECT_EQ(run.driver.Run(&requests), absl::UnavailableError("server gone"));
}

// Every token is told once, whatever was lost and sampled again.
struct EachTokenOnce : DriverListener {
  void OnToken(const Request& request, size_t index) override {
    EXPECT_EQ(index, num_told[request.id]) << "request " << request.id;
    EXPECT_LT(index, request.tokens.size());
    ++num_told[request.id];
  }
  void OnFinished(const Request& request) override { ++num_finished[request.id]; }
  std::map<uint32_t, size_t> num_told;
  std::map<uint32_t, size_t> num_finished;
};

TEST_P(DriverSeeds, EveryRequestIsFinishedWhereverServersDie) {
  uint32_t num_restarts = 0;
  for (const Preemption preemption : {Preemption::kRecompute, Preemption::kSwap}) {
    for (const uint32_t steps : {1u, 4u}) {
      for (const int64_t life : {0, 1, 2, 3, 5, 8, 13, 21, 34, 55}) {
        SCOPED_TRACE(::testing::Message() << "life " << life << ", steps " << steps);
        ServerInfo limits = Limits(31, 6);
        limits.num_swap_blocks = 1000;
        // Every other model's rows carry state beside their KV.
        limits.limits.row_state_bytes = life % 2 == 0 ? 0 : 64;
        EachTokenOnce told;
        Scheduler run(limits,
                      {.step_tokens = 20, .steps_per_request = steps, .preemption = preemption}, {},
                      &told);
        run.server.swap_room = 1000;
        run.server.state_room = 3;
        run.server.fail_after_results = life;
        for (int i = 0; i < 4; ++i) {
          run.server.restarts.push_back({.fail_after_calls = life});
          run.server.restarts.push_back({.fail_after_results = 3 * life});
        }
        run.server.restarts.push_back({});
        std::vector<Request> requests = RandomRequests(GetParam(), 40);
        const absl::Status status = run.driver.Run(&requests);
        ASSERT_TRUE(status.ok()) << status;
        num_restarts += 9 - static_cast<uint32_t>(run.server.restarts.size());
        run.ExpectAllRight(requests);
        EXPECT_EQ(run.server.num_swapped_blocks(), 0u);
        EXPECT_EQ(run.server.num_swapped_states(), 0u);
        for (const Request& request : requests) {
          EXPECT_EQ(told.num_told[request.id], request.tokens.size());
          EXPECT_EQ(told.num_finished[request.id], 1u);
        }
      }
    }
  }
  EXPECT_GT(num_restarts, 200u);
}

TEST(Driver, KeepsWhatItHadWhereNoServerComesBack) {
  Scheduler whole(Limits(400, 6));
  std::vector<Request> expected = RandomRequests(1, 5);
  ASSERT_TRUE(whole.driver.Run(&expected).ok());
  Scheduler run(Limits(400, 6));
  run.server.fail_after_results = 12;
  run.server.restarts.push_back({.fail_after_results = 4});
  std::vector<Request> requests = RandomRequests(1, 5);
  EXPECT_EQ(run.driver.Run(&requests), absl::UnavailableError("server gone"));
  size_t num_tokens = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    num_tokens += requests[i].tokens.size();
    ASSERT_LE(requests[i].tokens.size(), expected[i].tokens.size());
    EXPECT_TRUE(std::equal(requests[i].tokens.begin(), requests[i].tokens.end(),
                           expected[i].tokens.begin()));
    EXPECT_EQ(requests[i].token_times_ns.size(), requests[i].tokens.size());
  }
  EXPECT_GT(num_tokens, 12u);
}

// Requests that had nothing yet cannot tell.
TEST(Driver, ARequestEndsAsAnErrorWhereTheServerThatComesBackSamplesOtherTokens) {
  Scheduler run(Limits(400, 6));
  run.server.fail_after_results = 12;
  run.server.restarts.push_back({});
  run.server.weights = 0;
  struct Swaps : EachTokenOnce {
    void OnStep(const StepOutcome&, const FinishedStep&) override {
      if (++num_steps == 12) server->weights = 1;
    }
    FakeStepServer* server = nullptr;
    int num_steps = 0;
  } other;
  other.server = &run.server;
  Driver driver(&run.batcher, &run.blocks, &run.server, &run.clock, &other, {});
  std::vector<Request> requests = RandomRequests(1, 5);
  const absl::Status status = driver.Run(&requests);
  ASSERT_TRUE(status.ok()) << status;
  size_t num_failed = 0;
  for (const Request& request : requests) {
    EXPECT_TRUE(request.finished());
    EXPECT_EQ(other.num_told[request.id], request.tokens.size());
    num_failed += request.failed();
    if (!request.failed()) continue;
    EXPECT_THAT(request.error, HasSubstr("the server that came back sampled token"));
  }
  EXPECT_GT(num_failed, 0u);
}

TEST(Driver, StopsWhenInterrupted) {
  std::atomic<bool> interrupted = true;
  Scheduler run(Limits(400, 6), {}, {.interrupted = &interrupted});
  std::vector<Request> requests = RandomRequests(1, 5);
  EXPECT_EQ(run.driver.Run(&requests).code(), absl::StatusCode::kCancelled);
}

// Interrupted with steps in flight, it takes their results.
TEST(Driver, AnInterruptLeavesNoStepInFlight) {
  class Stopper : public DriverListener {
   public:
    std::atomic<bool> interrupted = false;
    uint64_t num_steps = 0;
    void OnStep(const StepOutcome&, const FinishedStep&) override {
      interrupted = ++num_steps >= 10;
    }
  } stopper;
  Scheduler run(Limits(400, 6), {}, {.pipeline_depth = 2, .interrupted = &stopper.interrupted},
                &stopper);
  std::vector<Request> requests = RandomRequests(1, 40);
  EXPECT_EQ(run.driver.Run(&requests).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(stopper.num_steps, run.server.steps.size());
  EXPECT_GT(stopper.num_steps, 10u);
  EXPECT_THAT(run.server.violations, IsEmpty());
}

TEST(Driver, GivesUpAfterItsTimeout) {
  Scheduler run(Limits(400, 6), {}, {.timeout_ns = 100'000'000});
  run.server.blocks_of_others = 400;  // nothing can ever run
  std::vector<Request> requests = RandomRequests(1, 5);
  const absl::Status status = run.driver.Run(&requests);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("0 of 5 requests"));
}

TEST(Driver, WaitsForRequestsThatArriveLater) {
  Scheduler run(Limits(400, 6));
  std::vector<Request> requests = RandomRequests(1, 2);
  requests[1].arrival_ns = 3'000'000'000;
  ASSERT_TRUE(run.driver.Run(&requests).ok());
  EXPECT_GE(requests[1].token_times_ns.front(), 3'000'000'000u);
  run.ExpectAllRight(requests);
}

// ---- what is said of a run ----

StepOutcome Outcome(const char* graph, uint32_t tokens, uint32_t padding, uint64_t device_ns) {
  StepOutcome outcome;
  outcome.report.graph = graph;
  outcome.report.replayed = true;
  outcome.report.tokens = tokens;
  outcome.report.padding_tokens = padding;
  outcome.report.rows = tokens;
  outcome.rows.resize(tokens);
  outcome.steps = {{.num_rows = tokens, .report = outcome.report, .device_ns = device_ns}};
  outcome.ledger.device_ns = device_ns;
  outcome.ledger.total_ns = device_ns + 1000;
  outcome.round_trip_ns = device_ns + 5000;
  return outcome;
}

TEST(Stats, CountsReplaysPaddingAndDecodeStepsAfterTheWarmUp) {
  Stats stats({.warmup_steps = 1,
               .floor = Floor{.weights_bytes = 900, .kv_bytes_per_token = 10, .bandwidth = 1e9}});
  stats.AddStep(Outcome("mixed/64", 60, 4, 9000), {.prefill = true, .result_ns = 10'000});
  stats.AddStep(Outcome("decode/4", 3, 1, 99'000), {.context_tokens = 60, .result_ns = 20'000});
  stats.AddStep(Outcome("decode/4", 3, 1, 4000), {.context_tokens = 10, .result_ns = 26'000});
  stats.AddStep(Outcome("decode/4", 3, 1, 5000), {.context_tokens = 10, .result_ns = 34'000});
  const nlohmann::json json = stats.ToJson();
  EXPECT_EQ(json["steps"], 4);
  EXPECT_EQ(json["graphs"]["decode/4"]["replays"], 3);
  EXPECT_EQ(json["graphs"]["mixed/64"]["padding_tokens"], 4);
  EXPECT_DOUBLE_EQ(json["padding_share"], 7.0 / 76.0);
  EXPECT_EQ(json["decode_steps"]["device_ms"]["count"], 2);
  EXPECT_DOUBLE_EQ(json["decode_steps"]["device_ms"]["p50"], 0.004);
  EXPECT_DOUBLE_EQ(json["decode_steps"]["wall_ms"]["p50"], 0.006);
  EXPECT_DOUBLE_EQ(json["decode_steps"]["floor_ms"]["p50"], 0.001);  // 900 + 100 bytes at 1 GB/s
  EXPECT_DOUBLE_EQ(json["ledger_us"]["network"]["p50"], 4.0);
  EXPECT_THAT(stats.ToText(), HasSubstr("25.0 % of device p50"));
}

TEST(Stats, SayHowManyDraftsWereAccepted) {
  Stats stats({});
  stats.AddStep(Outcome("decode/4", 4, 0, 9000), {.result_ns = 10'000});
  EXPECT_EQ(stats.ToJson()["drafts"], nullptr);
  StepOutcome outcome = Outcome("mixed/64", 4, 60, 9000);
  for (engine::RowOutcome& row : outcome.rows) row.sampled = true;
  outcome.rows[1].accepted = {.begin = 0, .count = 3};
  outcome.accepted.resize(3);
  stats.AddStep(outcome, {.draft_tokens = 5, .result_ns = 20'000});
  outcome.accepted.resize(1);
  stats.AddStep(outcome, {.draft_tokens = 3, .result_ns = 30'000});
  EXPECT_EQ(stats.ToJson()["drafts"], (nlohmann::json{{"steps", 2},
                                                      {"proposed", 8},
                                                      {"accepted", 4},
                                                      {"acceptance", 0.5},
                                                      {"tokens_per_row_and_step", 1.5}}));
  EXPECT_THAT(stats.ToText(), HasSubstr("50.0 %"));
  EXPECT_THAT(stats.ToText(), HasSubstr("1.50"));
}

// Each of them is a decode step; they share the time between two results.
TEST(Stats, CountsTheStepsOfARequestEach) {
  Stats stats({.warmup_steps = 1});
  StepOutcome outcome = Outcome("decode/4", 3, 1, 12'000);
  outcome.rows.resize(9);
  outcome.steps[0].device_ns = 3000;
  outcome.steps.resize(3, outcome.steps[0]);
  outcome.steps[2].report.rows = outcome.steps[2].report.tokens = 2;
  stats.AddStep(Outcome("decode/4", 3, 1, 99'000), {.result_ns = 20'000});
  stats.AddStep(outcome, {.result_ns = 50'000});
  const nlohmann::json json = stats.ToJson();
  EXPECT_EQ(json["steps"], 4);
  EXPECT_EQ(json["graphs"]["decode/4"]["replays"], 4);
  EXPECT_EQ(json["graphs"]["decode/4"]["tokens"], 11);
  EXPECT_EQ(json["decode_steps"]["device_ms"]["count"], 3);
  EXPECT_DOUBLE_EQ(json["decode_steps"]["device_ms"]["p50"], 0.003);
  EXPECT_DOUBLE_EQ(json["decode_steps"]["wall_ms"]["p50"], 0.01);
  EXPECT_DOUBLE_EQ(json["decode_steps"]["mean_rows"], 8.0 / 3);
}

TEST(Stats, MeasuresRequestsFromTheirArrival) {
  Stats stats({});
  std::vector<Request> requests(1);
  requests[0].prompt = {1, 2};
  requests[0].arrival_ns = 1'000'000;
  requests[0].tokens = {1, 2, 3};
  requests[0].token_times_ns = {3'000'000, 4'000'000, 7'000'000};
  requests[0].finish = FinishReason::kLength;
  stats.AddRequests(requests, 10'000'000);
  const nlohmann::json json = stats.ToJson();
  EXPECT_DOUBLE_EQ(json["ttft_ms"]["p50"], 2.0);
  EXPECT_DOUBLE_EQ(json["tpot_ms"]["p50"], 2.0);
  EXPECT_DOUBLE_EQ(json["itl_ms"]["p99"], 3.0);
  EXPECT_EQ(json["new_tokens"], 3);
  const nlohmann::json list = RequestsToJson(requests, /*byte_tokens=*/true);
  EXPECT_EQ(list[0]["text"], "\\x01\\x02\\x03");
  EXPECT_EQ(list[0]["finish"], "length");
}

TEST(Stats, ShowsRequestsThatFailed) {
  Stats stats({});
  std::vector<Request> requests(2);
  requests[0].finish = FinishReason::kLength;
  stats.AddRequests(requests, 10'000'000);
  EXPECT_THAT(stats.ToText(), Not(HasSubstr("failed")));
  requests[1].finish = FinishReason::kNoCandidate;
  requests[1].error = "why";
  Stats again({});
  again.AddRequests(requests, 10'000'000);
  EXPECT_EQ(again.ToJson()["num_finished"], 1);
  EXPECT_EQ(again.ToJson()["num_failed"], 1);
  EXPECT_THAT(again.ToText(), HasSubstr("failed"));
  const nlohmann::json list = RequestsToJson(requests, /*byte_tokens=*/false);
  EXPECT_EQ(list[1]["finish"], "error");
  EXPECT_EQ(list[1]["error"], "why");
  EXPECT_FALSE(list[0].contains("error"));
}

// A step of 20 us behind one that took as long: what it waits for is the step before it.
TEST(Stats, DividesARoundTripWithoutRest) {
  StepOutcome outcome = Outcome("decode/1", 1, 0, 18'000);
  outcome.ledger.validate_ns = 1000;
  outcome.ledger.launch_ns = 2000;
  outcome.ledger.total_ns = 40'000;
  outcome.round_trip_ns = 40'000;
  Stats stats({.over_network = false});
  stats.AddStep(Outcome("decode/1", 1, 0, 18'000), {.result_ns = 100'000});
  stats.AddStep(outcome, {.result_ns = 121'000});  // submitted at 81'000
  const nlohmann::json ledger = stats.ToJson()["ledger_us"];
  EXPECT_DOUBLE_EQ(ledger["device"]["mean"], 18.0);
  // Of 19 us behind the step before, 3 went to validate and launch.
  EXPECT_DOUBLE_EQ(ledger["overlap"]["p99"], 16.0);
  EXPECT_DOUBLE_EQ(ledger["waiting"]["p99"], 5.0);  // of the first step, which was behind nothing
  double sum = 0;
  for (const char* part : {"validate", "ring", "launch", "device", "overlap", "waiting"}) {
    sum += ledger[part]["mean"].get<double>();
  }
  EXPECT_DOUBLE_EQ(sum, ledger["round_trip"]["mean"]);
  EXPECT_THAT(stats.ToText(), HasSubstr("overlap"));
}

// A device that begins before the launch call returns: both clocks count that time.
TEST(Stats, CountsNoTimeTwice) {
  StepOutcome outcome = Outcome("decode/1", 1, 0, 9000);
  outcome.ledger.launch_ns = 4000;
  outcome.ledger.total_ns = 10'000;
  outcome.round_trip_ns = 11'000;
  Stats stats({});
  stats.AddStep(outcome, {.result_ns = 50'000});
  const nlohmann::json ledger = stats.ToJson()["ledger_us"];
  EXPECT_DOUBLE_EQ(ledger["network"]["mean"], 1.0);
  EXPECT_DOUBLE_EQ(ledger["launch"]["mean"], 4.0);
  EXPECT_DOUBLE_EQ(ledger["device"]["mean"], 6.0);
  EXPECT_DOUBLE_EQ(ledger["waiting"]["mean"], 0.0);
}

TEST(Stats, ShowsADashForWhatWasNeverMeasured) {
  Stats stats({});
  std::vector<Request> requests(1);
  requests[0].tokens = {1};
  requests[0].token_times_ns = {3'000'000};
  requests[0].finish = FinishReason::kLength;
  stats.AddRequests(requests, 10'000'000);
  EXPECT_THAT(stats.ToText(), HasSubstr("ITL            -"));
  EXPECT_EQ(stats.ToJson()["itl_ms"]["p50"], nullptr);
  EXPECT_EQ(stats.ToJson()["decode_steps"]["mean_rows"], nullptr);
}

Request TimedRequest(uint32_t id, int32_t priority, uint64_t arrival_ns,
                     std::vector<uint64_t> times_ns) {
  Request request;
  request.id = id;
  request.priority = priority;
  request.arrival_ns = arrival_ns;
  request.prompt = {1};
  request.tokens.resize(times_ns.size());
  request.token_times_ns = std::move(times_ns);
  request.finish = FinishReason::kLength;
  return request;
}

// Of three that finish one is too late with its first token, and one too slow behind it.
std::vector<Request> RequestsAtBounds() {
  std::vector<Request> requests = {
      TimedRequest(1, 0, 1'000'000, {3'000'000, 4'000'000, 5'000'000}),
      TimedRequest(2, 0, 1'000'000, {3'000'001, 3'500'000}),
      TimedRequest(3, 5, 1'000'000, {2'000'000, 3'000'002}),
      TimedRequest(4, 5, 2'000'000, {2'500'000}),
      TimedRequest(5, 5, 2'000'000, {2'500'000}),
  };
  requests.back().finish = FinishReason::kNone;  // broken off
  return requests;
}

TEST(Stats, GoodputCountsRequestsThatFinishWithinBothBounds) {
  Stats stats({.bounds = {.ttft_ns = 2'000'000, .tpot_ns = 1'000'000}});
  stats.AddRequests(RequestsAtBounds(), 2'000'000'000);
  const nlohmann::json json = stats.ToJson();
  EXPECT_EQ(json["goodput"]["num_met"], 2);
  EXPECT_DOUBLE_EQ(json["goodput"]["share"], 0.4);
  EXPECT_DOUBLE_EQ(json["goodput"]["requests_per_s"], 1.0);
  EXPECT_DOUBLE_EQ(json["goodput"]["tokens_per_s"], 2.0);
  EXPECT_DOUBLE_EQ(json["goodput"]["slo_ttft_ms"], 2.0);
  ASSERT_EQ(json["priorities"].size(), 2u);
  EXPECT_EQ(json["priorities"][0]["priority"], 5);
  EXPECT_EQ(json["priorities"][0]["goodput"]["num_met"], 1);
  EXPECT_EQ(json["priorities"][1]["num_requests"], 2);
  EXPECT_THAT(stats.ToText(), HasSubstr("TTFT, priority 5"));
  EXPECT_THAT(stats.ToText(),
              HasSubstr("met: finished, with TTFT of at most 2.00 ms and TPOT of at most 1.00 ms"));
}

TEST(Stats, GoodputTakesOneBoundAlone) {
  Stats stats({.bounds = {.tpot_ns = 1'000'000}});
  stats.AddRequests(RequestsAtBounds(), 2'000'000'000);
  EXPECT_EQ(stats.ToJson()["goodput"]["num_met"], 3);
  EXPECT_TRUE(stats.ToJson()["goodput"]["slo_ttft_ms"].is_null());
  Stats none({});
  none.AddRequests(RequestsAtBounds(), 2'000'000'000);
  EXPECT_TRUE(none.ToJson()["goodput"].is_null());
  EXPECT_THAT(none.ToText(), Not(HasSubstr("goodput")));
}

TEST(RunChart, ShowsTokensAndRequestsOverTime) {
  // 30 parts of 1 s. The first request waits for 2 s and runs for 2 more, in which it has 4 tokens.
  std::vector<Request> requests = {
      TimedRequest(1, 0, 1'000'000'000,
                   {3'000'000'000, 3'500'000'000, 4'000'000'000, 4'999'999'999}),
      TimedRequest(2, 0, 10'500'000'000, {10'500'000'000}),
      TimedRequest(3, 0, 40'000'000'000, {}),
  };
  const Chart chart = RunChart(requests, 30'000'000'000, "the run");
  ASSERT_EQ(chart.categories.size(), 30u);
  EXPECT_EQ(chart.categories[3], "3");
  ASSERT_EQ(chart.panels.size(), 4u);
  for (const ChartPanel& panel : chart.panels) {
    ASSERT_EQ(panel.series.size(), 1u);
    EXPECT_EQ(panel.series[0].name, "all requests");
  }
  const auto at = [&chart](size_t panel, size_t bin) {
    return chart.panels[panel].series[0].values[bin];
  };
  EXPECT_DOUBLE_EQ(at(0, 2), 0);
  EXPECT_DOUBLE_EQ(at(0, 3), 2);
  EXPECT_DOUBLE_EQ(at(0, 4), 2);
  EXPECT_DOUBLE_EQ(at(1, 1), 1);
  EXPECT_NEAR(at(1, 4), 1, 1e-6);
  EXPECT_NEAR(at(1, 5), 0, 1e-6);
  EXPECT_DOUBLE_EQ(at(2, 2), 1);
  EXPECT_DOUBLE_EQ(at(2, 3), 0);
  EXPECT_DOUBLE_EQ(at(3, 1), 2000);
  EXPECT_TRUE(std::isnan(at(3, 2)));
  EXPECT_THAT(ToSvg(chart), HasSubstr("the run"));
}

TEST(RunChart, HasASeriesForEachPriority) {
  std::vector<Request> requests = RequestsAtBounds();
  const Chart chart = RunChart(requests, 6'000'000, "the run");
  for (const ChartPanel& panel : chart.panels) {
    ASSERT_EQ(panel.series.size(), 2u);
    EXPECT_EQ(panel.series[0].name, "priority 5");
    EXPECT_EQ(panel.series[1].name, "priority 0");
  }
  double tokens = 0;
  for (const double rate : chart.panels[0].series[1].values) tokens += rate * 0.0002;
  EXPECT_NEAR(tokens, 5, 1e-9);
  EXPECT_EQ(RunChart({}, 0, "").panels[0].series.size(), 0u);
}

}  // namespace
}  // namespace reprise::tools
