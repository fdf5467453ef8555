// SPDX-License-Identifier: Apache-2.0
// What the tests of rows with sampling features share: engines that return logits, and rows that
// run alone until they stop. Over the small model of engine_test.h.
#ifndef REPRISE_TESTS_ENGINE_SAMPLED_ROWS_H_
#define REPRISE_TESTS_ENGINE_SAMPLED_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/sampling_params.h"
#include "engine/step_request.h"
#include "engine/step_result.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"

namespace reprise::engine {

inline constexpr uint32_t kVocab = 97;  // of the small model

class SampledRowsTest : public testing::EngineTest {
 protected:
  // Up to eight rows of a step return their logits.
  testing::TestEngine MakeReportingEngine() const;
};

// The only row of the result; fails the test and throws where there is none.
const RowOutcome& Only(const StepResult& result);

// The logits of the `index`-th row that returned them.
std::vector<double> LogitsOf(const StepResult& result, size_t index = 0);

// Adds the row and runs its prompt.
StepResult Start(testing::EngineDriver& driver, uint32_t row, const std::vector<uint32_t>& prompt,
                 const SamplingParams& sampling, uint32_t room = 40);

// What the row samples until it stops.
std::vector<RowOutcome> RunToTheEnd(testing::EngineDriver& driver, uint32_t row,
                                    const std::vector<uint32_t>& prompt,
                                    const SamplingParams& sampling, uint32_t most = 30);

// allowed_tokens with these alone.
std::vector<std::byte> MaskOf(const std::vector<uint32_t>& tokens);

// What a row's sampling may view.
struct SamplingLists {
  std::vector<uint32_t> stop = {3, 8, 60, 61, 62};
  std::vector<TokenBias> bias;
  std::vector<std::byte> mask;
};
SamplingLists MakeSamplingLists();

}  // namespace reprise::engine

#endif  // REPRISE_TESTS_ENGINE_SAMPLED_ROWS_H_
