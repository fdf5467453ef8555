// SPDX-License-Identifier: Apache-2.0
// DecodeRows: rows of an engine that decode at a given context, for measuring: a session that holds
// their blocks, and steps over them. The engine's pool must be random (EngineDiagnostics), as
// nobody has prefilled the contexts that rows claim.
#ifndef REPRISE_TOOLS_PROFILE_DECODE_ROWS_H_
#define REPRISE_TOOLS_PROFILE_DECODE_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/decode_engine.h"

namespace reprise::tools {

// Decode steps whose contexts end at the wanted one; then the rows are added anew. Contexts of
// measured steps lie in (context - kWindowSteps, context].
inline constexpr uint32_t kWindowSteps = 16;

uint64_t BlocksOf(uint64_t rows, uint64_t context, uint32_t block_size);

class DecodeRows {
 public:
  // `engine` must outlive the rows. `sampling`: of every row, seeds apart.
  DecodeRows(engine::DecodeEngine& engine, uint32_t rows, uint32_t context,
             const engine::SamplingParams& sampling = {});
  ~DecodeRows() { engine_.CloseSession(session_.id).IgnoreError(); }  // open until here
  DecodeRows(const DecodeRows&) = delete;
  DecodeRows& operator=(const DecodeRows&) = delete;

  // Blocks lie scattered over the pool, as they do after a while of serving.
  absl::Status Allocate();

  // The rows as new ones, and a token each: after this step `context` tokens are in their KV.
  absl::Status AddAll(uint32_t context, engine::StepResult* result);
  absl::StatusOr<engine::StepTicket> SubmitAll(uint32_t context);

  // One more token of each. `stepper`: the engine, or its profiler.
  template <typename Stepper>
  absl::Status Continue(Stepper& stepper, engine::StepResult* result) {
    return stepper.Step(ContinueRequest(), result);
  }
  absl::StatusOr<engine::StepTicket> SubmitContinue() { return engine_.Submit(ContinueRequest()); }

 private:
  engine::StepRequest Request();
  engine::StepRequest ContinueRequest();
  // Views add_ and chunks_.
  engine::StepRequest AddRequest(uint32_t context);

  engine::DecodeEngine& engine_;
  const engine::SessionInfo session_;
  const uint32_t rows_;
  const uint32_t context_;
  const engine::SamplingParams sampling_;
  std::vector<uint32_t> blocks_, ids_, tokens_;
  std::vector<uint32_t> history_;  // for penalties: what stands in every row's context
  std::vector<engine::RowAdd> add_;
  std::vector<engine::RowChunk> chunks_;
  uint64_t sequence_ = 0;
  bool resident_ = false;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_PROFILE_DECODE_ROWS_H_
