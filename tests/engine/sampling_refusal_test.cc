// SPDX-License-Identifier: Apache-2.0
// Sampling that the engine refuses for what it was started with, and for what rows of a step ask
// together. Parameters out of range: sampling_params_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/decode_engine.h"
#include "tests/engine/sampled_rows.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/status_codes.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {
namespace {

using ::reprise::testing::EngineDriver;
using ::reprise::testing::MakeTestEngine;
using ::reprise::testing::StatusIs;
using ::reprise::testing::StepDraft;
using ::reprise::testing::TestEngine;
using ::testing::SizeIs;

class SamplingRefusalTest : public SampledRowsTest {};
REPRISE_ENGINE_ON_EVERY_DEVICE(SamplingRefusalTest);

TEST_P(SamplingRefusalTest, RefusesWhatTheEngineWasStartedWithout) {
  auto options = Options();
  options.engine.adjust_logits = false;
  options.engine.max_logit_rows = 0;
  options.engine.max_prompt_logprobs = 0;
  const TestEngine tiny = MakeTestEngine(options);
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> blocks = driver.AllocateFor(20);
  const auto add = [&](const SamplingParams& sampling) {
    return driver
        .TryStep({.add = {{.row = 1, .blocks = blocks, .sampling = sampling}},
                  .chunks = {{.row = 1, .tokens = {1, 2, 3}}}})
        .status();
  };
  using ::reprise::testing::kPrecondition;
  EXPECT_THAT(add({.presence_penalty = 1.0f}), StatusIs(kPrecondition, "without adjust_logits"));
  const std::vector<TokenBias> bias = {{.token = 1, .bias = 1.0f}};
  EXPECT_THAT(add({.logit_bias = bias}), StatusIs(kPrecondition, "without adjust_logits"));
  const std::vector<std::byte> mask = MaskOf({1});
  EXPECT_THAT(add({.allowed_tokens = mask}), StatusIs(kPrecondition, "without adjust_logits"));
  EXPECT_THAT(add({.return_logits = true}),
              StatusIs(absl::StatusCode::kOutOfRange, "max_logit_rows"));
  EXPECT_THAT(driver
                  .TryStep({.add = {{.row = 1, .blocks = blocks}},
                            .chunks = {{.row = 1, .tokens = {1, 2}, .prompt_logprobs = true}}})
                  .status(),
              StatusIs(absl::StatusCode::kOutOfRange, "max_prompt_logprobs"));
  EXPECT_OK(add({.temperature = 1.0f, .top_k = 4, .num_logprobs = 2}));
  EXPECT_THAT(driver.TryStep({.masks = {{.row = 1, .allowed_tokens = mask}}}).status(),
              StatusIs(kPrecondition, "without adjust_logits"));
}

TEST_P(SamplingRefusalTest, RefusesAHistoryThatIsNotOfTheContext) {
  const TestEngine tiny = MakeEngine();
  EngineDriver driver(*tiny.engine);
  const std::vector<uint32_t> blocks = driver.AllocateFor(20);
  driver.Step({.add = {{.row = 9, .blocks = blocks}},
               .chunks = {{.row = 9, .tokens = {1, 2, 3}, .sample = false}}});
  driver.Step({.drop = {9}});
  const SamplingParams penalised{.presence_penalty = 1.0f};
  const auto add = [&](const std::vector<uint32_t>& history, const SamplingParams& sampling) {
    return driver
        .TryStep({.add = {{.row = 1,
                           .blocks = blocks,
                           .context_length = 3,
                           .sampling = sampling,
                           .history = history}}})
        .status();
  };
  using ::reprise::testing::kInvalid;
  EXPECT_THAT(add({}, penalised), StatusIs(kInvalid, "history has 0 token ids; allowed: 3"));
  EXPECT_THAT(add({1, 2, 3, 4}, penalised), StatusIs(kInvalid, "history has 4"));
  EXPECT_THAT(add({1, 2, kVocab}, penalised), StatusIs(kInvalid, "token id 97"));
  EXPECT_OK(add({}, {}));
}

TEST_P(SamplingRefusalTest, RefusesMoreLogitRowsThanItHasRoomFor) {
  auto options = Options();
  options.engine.max_logit_rows = 1;
  options.engine.max_prompt_logprobs = 4;
  const TestEngine tiny = MakeTestEngine(options);
  EngineDriver driver(*tiny.engine);
  const SamplingParams returns{.return_logits = true};
  Start(driver, 1, {1, 2}, returns);
  Start(driver, 2, {1, 2}, returns);
  EXPECT_THAT(driver.TryStep({.continue_all = true}).status(),
              StatusIs(absl::StatusCode::kOutOfRange, "2 rows of the step return their logits"));
  EXPECT_THAT(driver.Step({.continue_rows = {2}}).logits, SizeIs(kVocab));
  const StepDraft::Add add{.row = 3, .blocks = driver.AllocateFor(20)};
  EXPECT_THAT(
      driver
          .TryStep({.add = {add},
                    .chunks = {{.row = 3, .tokens = {1, 2, 3, 4, 5, 6}, .prompt_logprobs = true}}})
          .status(),
      StatusIs(absl::StatusCode::kOutOfRange, "asked for 5 tokens"));
  EXPECT_THAT(
      driver
          .Step({.add = {add},
                 .chunks = {{.row = 3, .tokens = {1, 2, 3, 4, 5}, .prompt_logprobs = true}}})
          .prompt_logprobs,
      SizeIs(4));
}

}  // namespace
}  // namespace reprise::engine
