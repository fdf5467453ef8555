// SPDX-License-Identifier: Apache-2.0
// What tests of an engine's linear layers ask of it, whatever the format of their weights.
#ifndef REPRISE_TESTS_ENGINE_ENGINE_CHECKS_H_
#define REPRISE_TESTS_ENGINE_ENGINE_CHECKS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/decode_engine.h"
#include "engine/engine_profiler.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/engine_test.h"
#include "tests/testing/status_matchers.h"

namespace reprise::engine {

// The launches of an op in a graph.
inline int CountLaunches(DecodeEngine& engine, const std::string& graph, const std::string& op) {
  const auto nodes = EngineProfiler(engine).ListNodes(graph);
  EXPECT_OK(nodes);
  return static_cast<int>(std::count_if(nodes->begin(), nodes->end(), [&](const auto& node) {
    return node.kind == graphs::GraphNode::Kind::kKernel && node.op == op;
  }));
}

// A row samples the same tokens alone, in the smallest decode bucket, as among twelve rows behind
// a mixed step of 29 tokens. The engine holds 13 rows or more.
inline void ExpectARowsBitsAreItsOwn(DecodeEngine& engine) {
  const std::vector<uint32_t> prompt = testing::RandomPrompt(5, 7);
  testing::EngineDriver driver(engine);
  const std::vector<testing::Token> alone = driver.Generate({.row = 0, .prompt = prompt}, 4);
  testing::StepDraft draft;
  for (uint32_t row = 1; row <= 12; ++row) {
    draft.add.push_back({.row = row, .blocks = driver.AllocateFor(16)});
    draft.chunks.push_back(
        {.row = row, .tokens = row == 7 ? prompt : testing::RandomPrompt(row, 2)});
  }
  std::vector<testing::Token> among;
  for (int step = 0; step < 4; ++step) {
    const StepResult result =
        driver.Step(step == 0 ? draft : testing::StepDraft{.continue_all = true});
    for (const RowOutcome& row : result.rows)
      if (row.row == 7) among.push_back(testing::TokenOf(row));
  }
  EXPECT_EQ(among, alone);
}

}  // namespace reprise::engine

#endif  // REPRISE_TESTS_ENGINE_ENGINE_CHECKS_H_
