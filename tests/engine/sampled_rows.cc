// SPDX-License-Identifier: Apache-2.0
#include "tests/engine/sampled_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace reprise::engine {

using ::reprise::testing::EngineDriver;
using ::testing::SizeIs;

testing::TestEngine SampledRowsTest::MakeReportingEngine() const {
  auto options = Options();
  options.engine.max_logit_rows = 8;
  return MakeTestEngine(options);
}

const RowOutcome& Only(const StepResult& result) {
  EXPECT_THAT(result.rows, SizeIs(1));
  return result.rows.at(0);
}

std::vector<double> LogitsOf(const StepResult& result, size_t index) {
  const auto begin = result.logits.begin() + static_cast<std::ptrdiff_t>(index * kVocab);
  return {begin, begin + kVocab};
}

StepResult Start(EngineDriver& driver, uint32_t row, const std::vector<uint32_t>& prompt,
                 const SamplingParams& sampling, uint32_t room) {
  return driver.Step(
      {.add = {{.row = row,
                .blocks = driver.AllocateFor(static_cast<uint32_t>(prompt.size()) + room),
                .sampling = sampling}},
       .chunks = {{.row = row, .tokens = prompt}}});
}

std::vector<RowOutcome> RunToTheEnd(EngineDriver& driver, uint32_t row,
                                    const std::vector<uint32_t>& prompt,
                                    const SamplingParams& sampling, uint32_t most) {
  std::vector<RowOutcome> outcomes = {Only(Start(driver, row, prompt, sampling))};
  while (outcomes.back().finish == FinishReason::kNone && outcomes.size() < most)
    outcomes.push_back(Only(driver.Step({.continue_rows = {row}})));
  return outcomes;
}

std::vector<std::byte> MaskOf(const std::vector<uint32_t>& tokens) {
  std::vector<std::byte> mask((kVocab + 7) / 8, std::byte{0});
  for (const uint32_t t : tokens) mask[t / 8] |= std::byte{1} << t % 8;
  return mask;
}

SamplingLists MakeSamplingLists() {
  SamplingLists lists;
  std::vector<uint32_t> even;
  for (uint32_t t = 0; t < 30; ++t)
    lists.bias.push_back({.token = 3 * t, .bias = 0.25f * static_cast<float>(t) - 3.0f});
  for (uint32_t t = 0; t < kVocab; t += 2) even.push_back(t);
  lists.mask = MaskOf(even);
  return lists;
}

}  // namespace reprise::engine
