// SPDX-License-Identifier: Apache-2.0
// A client of DecodeEngine for tests, as a scheduler would be: opens a session, allocates blocks,
// adds rows, chunks prompts, continues, collects what comes out. It expects every step to succeed
// (a refusal fails the test and throws) and compares nothing itself.
//
//   EngineDriver driver(*engine);
//   const std::vector<Token> tokens = driver.Generate({.row = 3, .prompt = {5, 9, 2}}, 8);
#ifndef REPRISE_TESTS_TESTING_ENGINE_DRIVER_H_
#define REPRISE_TESTS_TESTING_ENGINE_DRIVER_H_

#include <cstdint>
#include <map>
#include <ostream>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/decode_engine.h"
#include "engine/engine_profiler.h"
#include "engine/step_draft.h"

namespace reprise::testing {

// A sampled token, its log-probability to the bit.
struct Token {
  uint32_t id = 0;
  uint32_t logprob_bits = 0;
  uint32_t context_length = 0;
  float logprob() const;
  bool operator==(const Token&) const = default;
};
void PrintTo(const Token& token, std::ostream* os);

// The token of a row that sampled.
Token TokenOf(const engine::RowOutcome& row);

using engine::StepDraft;

// A row's life.
struct RowPlan {
  uint32_t row = 0;
  std::vector<uint32_t> prompt = {};
  engine::SamplingParams sampling = {};
  std::vector<uint32_t> chunks = {};  // lengths of the prompt's chunks; empty: one chunk
};

class EngineDriver {
 public:
  explicit EngineDriver(engine::DecodeEngine& engine)
      : engine_(engine), session_(engine.OpenSession()) {}
  // Closes the session, with everything in it.
  ~EngineDriver();
  EngineDriver(const EngineDriver&) = delete;
  EngineDriver& operator=(const EngineDriver&) = delete;

  engine::DecodeEngine& engine() { return engine_; }
  const engine::SessionInfo& session() const { return session_; }
  // What the next step carries.
  uint64_t sequence() const { return sequence_; }
  void CountStep() { ++sequence_; }

  std::vector<uint32_t> Allocate(uint32_t count);
  std::vector<uint32_t> AllocateFor(uint32_t tokens);
  void Free(std::span<const uint32_t> blocks);

  // Submits and waits; through `profiler`, the engine's, where there is one. Errors: the engine's;
  // the sequence number counts successes only.
  absl::StatusOr<engine::StepResult> TryStep(const StepDraft& draft,
                                             engine::EngineProfiler* profiler = nullptr);
  // The same, and collects tokens; fails the test and throws on an error.
  const engine::StepResult& Step(const StepDraft& draft,
                                 engine::EngineProfiler* profiler = nullptr);
  // Submits only, wherever that may succeed at once.
  engine::StepTicket Submit(const StepDraft& draft);
  // Takes the oldest result and collects its tokens.
  const engine::StepResult& Wait(engine::StepTicket ticket);

  // Adds the row with blocks of its own for the prompt and `count` tokens, runs the prompt, one
  // chunk a step; returns when the first token is there.
  void Start(const RowPlan& plan, uint32_t count);
  // Runs `count` decode steps of all rows that can continue.
  void ContinueAll(uint32_t count);
  // A row's whole life, alone: start, continue until `count` tokens are there, drop, free.
  std::vector<Token> Generate(const RowPlan& plan, uint32_t count);
  // Drops the row and frees the blocks that Start gave it.
  void Drop(uint32_t row);

  // Everything that a row id has sampled in this session, in order, accepted drafts too.
  const std::vector<Token>& tokens(uint32_t row) { return tokens_[row]; }
  const std::vector<uint32_t>& blocks(uint32_t row) { return blocks_[row]; }

 private:
  void Collect();

  engine::DecodeEngine& engine_;
  const engine::SessionInfo session_;
  uint64_t sequence_ = 1;
  engine::StepResult result_;
  std::map<uint32_t, std::vector<Token>> tokens_;
  std::map<uint32_t, std::vector<uint32_t>> blocks_;
};

// Chunk lengths that sum to `tokens`, each `chunk` or, at the end, less.
std::vector<uint32_t> EvenChunks(uint32_t tokens, uint32_t chunk);

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_ENGINE_DRIVER_H_
