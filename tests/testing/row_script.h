// SPDX-License-Identifier: Apache-2.0
// RowScript: a random but fixed story of many rows over many steps (added, prefilled in chunks,
// continued, given more blocks, dropped, ids and blocks reused), that any engine can play, one step
// at a time or pipelined. What a row samples must not depend on who plays it, nor on the others in
// it: Alone() plays one life by itself.
#ifndef REPRISE_TESTS_TESTING_ROW_SCRIPT_H_
#define REPRISE_TESTS_TESTING_ROW_SCRIPT_H_

#include <cstdint>
#include <vector>

#include "engine/decode_engine.h"
#include "tests/testing/engine_driver.h"
#include "tests/testing/number.h"

namespace reprise::testing {

// A row from add to drop. Lives share row ids, one after another.
struct RowLife {
  RowPlan plan;
  uint32_t first_blocks = 0;  // of its table when it is added
  uint32_t num_tokens = 0;    // that it samples in the script
};

struct RowScript {
  struct Append {
    uint32_t life = 0;
    uint32_t num_blocks = 0;
  };
  struct Chunk {
    uint32_t life = 0;
    uint32_t begin = 0, count = 0;  // of the life's prompt
  };
  struct Step {
    std::vector<uint32_t> drop = {}, add = {};  // lives
    std::vector<Append> append = {};
    std::vector<Chunk> chunks = {};
    std::vector<uint32_t> continues = {};  // lives
    bool continue_all = false;             // `continues` are all that can
  };
  std::vector<RowLife> lives;
  std::vector<Step> steps;
};

struct RowScriptOptions {
  uint32_t num_steps = 40;
  uint32_t max_rows = 8;
  uint32_t max_step_tokens = 64;
  uint32_t block_size = 4;
  uint32_t max_context_length = 60;
  uint32_t vocab_size = 97;
  uint64_t seed = 1;
};
RowScript MakeRowScript(const RowScriptOptions& options);

// Plays a script on an engine, in a session of its own: allocates what a step needs before it,
// gives back what it drops right after it was submitted. Steps in order, results in order; Submit
// and Wait may be in different threads.
class RowScriptPlayer {
 public:
  RowScriptPlayer(engine::DecodeEngine& engine, const RowScript& script);

  // The next step.
  engine::StepTicket Submit(engine::ExecutionMode mode = engine::ExecutionMode::kReplay);
  // The oldest result.
  void Wait(engine::StepTicket ticket);
  bool AllSubmitted() const { return num_submitted_ == script_.steps.size(); }

  // Plays what is left with up to `depth` steps in flight.
  void Play(uint32_t depth, engine::ExecutionMode mode = engine::ExecutionMode::kReplay);

  // What every life sampled, by life. Complete once every step was waited for.
  const std::vector<std::vector<Token>>& tokens() const { return tokens_; }
  const EngineDriver& driver() const { return driver_; }

 private:
  StepDraft Draft(const RowScript::Step& step);
  std::vector<uint32_t> Runs(const RowScript::Step& step) const;

  const RowScript& script_;
  EngineDriver driver_;
  std::vector<std::vector<uint32_t>> blocks_;  // by life
  size_t num_submitted_ = 0;                   // submitter's
  size_t num_waited_ = 0;                      // waiter's
  std::vector<std::vector<Token>> tokens_;     // waiter's
};

// The same life with nobody beside it, chunked the same way.
std::vector<Token> Alone(engine::DecodeEngine& engine, const RowLife& life);

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_ROW_SCRIPT_H_
