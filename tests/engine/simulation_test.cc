// SPDX-License-Identifier: Apache-2.0
// An engine that computes nothing: no weights, no memory for KV, made-up tokens, and steps of the
// times that were measured. What is waited for is noted, not slept.
#include "engine/simulation/simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/decode_engine.h"
#include "engine/diagnostics.h"
#include "runtime/device.h"

namespace reprise::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kVocab = 128256;  // of the preset
constexpr uint64_t kGiB = uint64_t{1} << 30;

DecodeEngineOptions Options() {
  return {.kv_cache_bytes = 100 * kGiB,
          .max_rows = 3,
          .max_context_length = 64,
          .mixed_buckets = {16},
          .adjust_logits = false,
          .max_logit_rows = 1,
          .max_prompt_logprobs = 2,
          .max_draft_tokens = 3};
}

class SimulatedEngine : public ::testing::Test {
 protected:
  SimulatedEngine() {
    const auto cost = StepCost::Create(
        {{1, 10, 5e6}, {1, 20, 6e6}, {4, 10, 7e6}, {4, 20, 9e6}, {16, 10, 8e6}, {16, 20, 12e6}});
    simulation_ =
        std::make_shared<Simulation>(Simulation{.device_name = "sim (profile of a test)",
                                                .cost = *cost,
                                                .wait = [this](uint64_t begin_ns, uint64_t ns) {
                                                  const std::lock_guard lock(mutex_);
                                                  EXPECT_GT(begin_ns, 0u);
                                                  waits_.push_back(ns);
                                                }});
    auto device = runtime::Device::Create({.kind = runtime::DeviceKind::kHost, .host_threads = 2});
    EXPECT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    auto engine = Create(Options(), {.simulation = simulation_.get()});
    EXPECT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    EXPECT_TRUE(Waits().empty()) << "warm-up and capture are no steps";
  }

  absl::StatusOr<std::unique_ptr<DecodeEngine>> Create(const DecodeEngineOptions& options,
                                                       const EngineDiagnostics& diagnostics) {
    return CreateEngineWithDiagnostics(*device_, {.preset = "llama-3.1-8b"}, options, diagnostics);
  }
  std::vector<uint64_t> Waits() {
    const std::lock_guard lock(mutex_);
    return waits_;
  }

  // A session that runs prompts and decodes its rows.
  struct Client {
    explicit Client(DecodeEngine& engine) : engine(engine), session(engine.OpenSession()) {}
    StepResult Step(StepRequest step) {
      step.session = session.id;
      step.epoch = session.epoch;
      step.sequence = ++sequence;
      StepResult result;
      const absl::Status status = engine.Step(step, &result);
      EXPECT_TRUE(status.ok()) << status;
      return result;
    }
    StepResult Prompt(uint32_t row, const std::vector<uint32_t>& tokens,
                      const SamplingParams& sampling = {}, bool beside_others = false) {
      const auto blocks = engine.AllocateBlocks(session.id, 4);
      EXPECT_TRUE(blocks.ok()) << blocks.status();
      const RowAdd add = {.row = row, .sampling = sampling, .context_length = 0, .blocks = *blocks};
      const RowChunk chunk = {.row = row, .sample = true, .tokens = tokens};
      StepRequest step;
      step.add = {&add, 1};
      step.chunks = {&chunk, 1};
      step.continue_all = beside_others;
      return Step(step);
    }
    StepResult Continue() {
      StepRequest step;
      step.continue_all = true;
      return Step(step);
    }
    DecodeEngine& engine;
    const SessionInfo session;
    uint64_t sequence = 0;
  };

  std::mutex mutex_;
  std::vector<uint64_t> waits_;
  std::shared_ptr<const Simulation> simulation_;
  std::unique_ptr<runtime::Device> device_;
  std::unique_ptr<DecodeEngine> engine_;
};

TEST(LoadOf, CountsWhatLayersSeeInTheMean) {
  kernels::PlanCounts counts{};
  counts.num_rows = 3;
  counts.num_tokens = 5;
  uint32_t query_start[] = {0, 1, 1, 5}, context_before[] = {99, 50, 6};
  kernels::StepPlan plan;
  plan.counts = &counts;
  plan.query_start = query_start;
  plan.context_before = context_before;
  models::ModelSpec model;
  model.num_layers = 4;
  EXPECT_EQ(LoadOf(plan, model).tokens, 5u);
  EXPECT_EQ(LoadOf(plan, model).kv_tokens, 100u + 10);
  EXPECT_EQ(LoadOf(plan, model).chunk_rows, 1u) << "one that runs several tokens";
  EXPECT_EQ(LoadOf(plan, model).chunk_tokens, 4u);
  EXPECT_EQ(LoadOf(plan, model).chunk_kv_tokens, 10u);
  EXPECT_EQ(LoadOf(plan, model).chunk_pairs, 7u + 8 + 9 + 10);
  model.sliding_window = 5;
  EXPECT_EQ(LoadOf(plan, model).kv_tokens, 5u + 8);  // four tokens, five each
  EXPECT_EQ(LoadOf(plan, model).chunk_kv_tokens, 8u);
  EXPECT_EQ(LoadOf(plan, model).chunk_pairs, 4u * 4 + 1 + 2 + 3 + 4);  // of the six before it four
  model.slides = {true, false, false, false};
  EXPECT_EQ(LoadOf(plan, model).kv_tokens, 86u);  // (5 + 3 * 100 + 8 + 3 * 10) / 4
}

TEST_F(SimulatedEngine, IsTheDeviceThatWasProfiledWithoutItsMemory) {
  EXPECT_EQ(engine_->info().device.name, "sim (profile of a test)");
  EXPECT_EQ(engine_->info().memory.weights_bytes, 0u);
  EXPECT_EQ(engine_->pool().bytes, 100 * kGiB);
  EXPECT_EQ(engine_->pool().num_blocks, 100 * kGiB / (uint64_t{2} << 20));
  EXPECT_LT(engine_->info().memory.workspace_bytes, uint64_t{1} << 30);
}

TEST_F(SimulatedEngine, VerifiesDrafts) {
  for (const bool samples : {false, true}) {  // logits are made up where a row wants more of them
    Client client(*engine_);
    const SamplingParams sampling{.temperature = samples ? 1.0f : 0.0f, .num_logprobs = 1};
    client.Prompt(1, {5, 6, 7}, samples ? sampling : SamplingParams{});
    const uint32_t first = MadeUpToken(7, 2, kVocab), second = MadeUpToken(first, 3, kVocab);
    const std::vector<uint32_t> tokens = {second, 1, 2};
    const RowDraft draft = {.row = 1, .tokens = tokens};
    StepRequest step;
    step.continue_all = true;
    step.drafts = {&draft, 1};
    const StepResult result = client.Step(step);
    ASSERT_EQ(result.accepted.size(), 1u);
    EXPECT_EQ(result.accepted[0].token, second);
    EXPECT_EQ(result.rows[0].token, MadeUpToken(second, 4, kVocab));
    EXPECT_EQ(result.rows[0].context_length, 5u);
  }
}

TEST_F(SimulatedEngine, WaitsForWhatTheProfileSays) {
  Client client(*engine_);
  client.Prompt(1, {5, 6, 7, 8});
  client.Prompt(2, {9});
  client.Continue();
  const StepCost& cost = simulation_->cost;
  EXPECT_THAT(Waits(), ElementsAre(cost.TimeNs({.tokens = 4, .kv_tokens = 4}),
                                   cost.TimeNs({.tokens = 1, .kv_tokens = 1}),
                                   cost.TimeNs({.tokens = 2, .kv_tokens = 5 + 2})));
}

TEST_F(SimulatedEngine, WaitsForWhatPromptsWereMeasuredToTake) {
  Simulation simulation = *simulation_;
  const auto cost = StepCost::Create({{1, 10, 5e6}, {1, 20, 6e6}, {4, 10, 7e6}, {4, 20, 9e6}},
                                     {{4, 2.5, 50e6}, {8, 4.5, 90e6}});
  ASSERT_TRUE(cost.ok()) << cost.status();
  simulation.cost = *cost;
  const auto engine = Create(Options(), {.simulation = &simulation});
  ASSERT_TRUE(engine.ok()) << engine.status();
  Client client(**engine);
  client.Prompt(1, {5, 6, 7, 8});
  client.Prompt(2, {1, 2, 3, 4, 5, 6, 7, 8}, {}, /*beside_others=*/true);
  client.Continue();
  // The row that decodes beside the second prompt takes no longer than the shortest step.
  EXPECT_THAT(Waits(), ElementsAre(50'000'000u, 90'000'000u,
                                   cost->TimeNs({.tokens = 2, .kv_tokens = 6 + 9})));
}

TEST_F(SimulatedEngine, MakesUpTokensFromARowAlone) {
  std::vector<uint32_t> expected = {MadeUpToken(7, 2, kVocab)};
  for (uint32_t position = 3; position < 8; ++position)
    expected.push_back(MadeUpToken(expected.back(), position, kVocab));
  Client client(*engine_);
  Client other(*engine_);
  std::vector<uint32_t> tokens = {client.Prompt(1, {5, 6, 7}).rows[0].token};
  for (int i = 0; i < 5; ++i) {
    // Another row comes and goes on beside it.
    if (i == 2) other.Prompt(9, {1, 2});
    StepRequest step;
    step.continue_all = true;
    step.session = client.session.id;
    step.epoch = client.session.epoch;
    step.sequence = ++client.sequence;
    StepRequest beside;
    beside.continue_all = true;
    beside.session = other.session.id;
    beside.epoch = other.session.epoch;
    beside.sequence = other.sequence + 1;
    std::vector<JointRequest> both = {{.request = &step}};
    if (i >= 2) both.insert(both.begin(), {.request = &beside});
    other.sequence += i >= 2 ? 1 : 0;
    const auto ticket = engine_->SubmitJoint(both);
    ASSERT_TRUE(ticket.ok()) << ticket.status();
    std::vector<StepResult> results(both.size());
    ASSERT_TRUE(engine_->WaitJoint(*ticket, results).ok());
    tokens.push_back(results.back().rows[0].token);
  }
  EXPECT_EQ(tokens, expected);
  for (const uint32_t token : tokens) EXPECT_LT(token, kVocab);
}

TEST_F(SimulatedEngine, SamplesAsAnyEngineDoes) {
  Client client(*engine_);
  const uint32_t first = MadeUpToken(7, 0, kVocab);
  const uint32_t second = MadeUpToken(first, 1, kVocab);
  const std::vector<uint32_t> stops = {second};
  SamplingParams sampling;
  sampling.stop_tokens = stops;
  sampling.num_logprobs = 2;
  const StepResult prompt = client.Prompt(1, {7}, sampling);
  EXPECT_EQ(prompt.rows[0].token, first);
  EXPECT_EQ(prompt.rows[0].rank, 1u);
  EXPECT_EQ(prompt.top_logprobs[1].token, first == 0 ? 1u : 0u) << "of equals the lowest id";
  EXPECT_EQ(prompt.rows[0].logprob, 0.0f);
  const StepResult stopped = client.Continue();
  EXPECT_EQ(stopped.rows[0].token, second);
  EXPECT_EQ(stopped.rows[0].finish, FinishReason::kStopToken);
}

// Rows that want a report are sampled from logits, others are not: their tokens are the same.
TEST_F(SimulatedEngine, MakesUpTheSameTokensWithAndWithoutSampling) {
  std::vector<std::vector<uint32_t>> tokens;
  for (const uint32_t num_logprobs : {0u, 1u}) {
    Client client(*engine_);
    SamplingParams sampling;
    sampling.temperature = 2.0f;
    sampling.seed = 5;
    sampling.num_logprobs = num_logprobs;
    std::vector<uint32_t> row = {client.Prompt(1, {5, 6}, sampling).rows[0].token};
    for (int i = 0; i < 4; ++i) row.push_back(client.Continue().rows[0].token);
    tokens.push_back(row);
    EXPECT_TRUE(engine_->CloseSession(client.session.id).ok());
  }
  EXPECT_EQ(tokens[0], tokens[1]);
}

TEST_F(SimulatedEngine, HandsBlocksOnWithoutTouchingThem) {
  for (int i = 0; i < 3; ++i) {
    Client client(*engine_);
    client.Prompt(1, {1, 2, 3});
    EXPECT_TRUE(engine_->CloseSession(client.session.id).ok());
  }
}

TEST_F(SimulatedEngine, RefusesWhatNeedsMemory) {
  const auto refused = Create(Options(), {.poison = true, .simulation = simulation_.get()});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("simulation"));
}

}  // namespace
}  // namespace reprise::engine
