// SPDX-License-Identifier: Apache-2.0
// A session of an engine whose steps are put together call by call, and printed as text that two
// builds can be compared by with `diff`. It compares nothing itself. record_script.cc is what runs.
//
// A step prints one line for itself (the graph that ran and its padding in rows and in tokens),
// then one line for each row that ran, then one for each prompt token whose likelihood was asked
// for:
//
//   LABEL mode=replay step=3 graph=mixed/64 replayed=1 rows=1 tokens=33 padding=0,31
//   LABEL mode=replay step=3 row=1 position=61 token=12 logprob=c0a1b2c3 rank=2 top=7:bf8a0001,...
//   LABEL mode=replay step=3 row=1 given=8 logprob=c0a1b2c3 rank=7 top=12:bf8a0001,...
//
// Log-probabilities are the bits of the float in hexadecimal. The line of a row ends with the
// numbers of its RowStatus and FinishReason, and with a hash of the bits of all its logits where it
// returned them.
#ifndef REPRISE_TESTS_TESTING_RECORD_SESSION_H_
#define REPRISE_TESTS_TESTING_RECORD_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/decode_engine.h"
#include "engine/step_request.h"
#include "engine/step_result.h"

namespace reprise::testing {

// Every method throws std::runtime_error with the engine's message when the engine refuses.
class RecordSession {
 public:
  using Tokens = std::vector<uint32_t>;

  // Every line starts with `label`.
  RecordSession(engine::DecodeEngine& engine, std::string label, engine::ExecutionMode mode,
                std::FILE* out);
  // Closes the session, with everything in it.
  ~RecordSession();
  RecordSession(const RecordSession&) = delete;
  RecordSession& operator=(const RecordSession&) = delete;

  // Each of these is a part of the next step. Arrays of `sampling` and `mask` are the caller's.
  // `num_tokens`: what the row's blocks have room for, the tokens that it holds included.
  void Add(uint32_t row, uint32_t num_tokens, const engine::SamplingParams& sampling = {},
           uint32_t prompt_length = 0);
  // In place of row `other`, whose blocks it takes with the KV of `known`.
  void AddInPlaceOf(uint32_t other, uint32_t row, const Tokens& known, uint32_t prompt_length,
                    const engine::SamplingParams& sampling);
  // Does nothing where the row's blocks have that room.
  void Append(uint32_t row, uint32_t num_tokens);
  void Mask(uint32_t row, std::span<const std::byte> mask);
  void Chunk(uint32_t row, const Tokens& tokens, bool sample = true);
  // Asks how likely the tokens are. `next`: the first token of the row's next chunk; without it the
  // row samples.
  void GivenChunk(uint32_t row, const Tokens& tokens, std::optional<uint32_t> next = {});
  void Continue(uint32_t row) { continue_rows_.push_back(row); }
  void ContinueAll() { continue_all_ = true; }
  // Its blocks are freed after the step.
  void Drop(uint32_t row) { drop_.push_back(row); }

  void Submit();
  // Waits for the oldest step in flight and prints it.
  void Wait();
  void Step();
  // So many steps of all rows that can continue.
  void Decode(int num_steps);

 private:
  struct InFlight {
    engine::StepTicket ticket = 0;
    std::vector<uint32_t> dropped = {};
  };

  void Grow(uint32_t row, uint32_t num_tokens);
  std::span<const uint32_t> Keep(const Tokens& tokens) { return kept_.emplace_back(tokens); }
  void ClearStep();
  void FreeBlocksOf(const std::vector<uint32_t>& rows);

  engine::DecodeEngine& engine_;
  const std::string label_;
  const engine::ExecutionMode mode_;
  std::FILE* const out_;
  const engine::SessionInfo session_;
  const uint32_t block_size_;
  std::map<uint32_t, std::vector<uint32_t>> blocks_;  // by row
  uint64_t sequence_ = 1;

  // The next step.
  std::deque<Tokens> kept_;  // addresses stay
  std::vector<uint32_t> drop_, continue_rows_;
  std::vector<engine::RowAdd> add_;
  std::vector<engine::RowAppend> append_;
  std::vector<engine::RowMask> masks_;
  std::vector<engine::RowChunk> chunks_;
  bool continue_all_ = false;

  std::deque<InFlight> in_flight_;
  engine::StepResult result_;
};

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_RECORD_SESSION_H_
