// SPDX-License-Identifier: Apache-2.0
// StepRows: rows of an engine that decode at a given context, and prompts beside them, for
// measuring: a session that holds their blocks, and steps over them. The engine's pool must be
// random (EngineDiagnostics), as nobody has prefilled the contexts that rows claim.
#ifndef REPRISE_TOOLS_PROFILE_STEP_ROWS_H_
#define REPRISE_TOOLS_PROFILE_STEP_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/decode_engine.h"
#include "tools/profile/step_points.h"

namespace reprise::tools {

// Decode steps whose contexts end at the wanted one; then the rows are added anew. Contexts of
// measured steps lie in (context - kWindowSteps, context].
inline constexpr uint32_t kWindowSteps = 16;

class StepRows {
 public:
  // `engine` must outlive the rows. `sampling`: of every row, seeds apart.
  StepRows(engine::DecodeEngine& engine, StepPoint point,
           const engine::SamplingParams& sampling = {});
  ~StepRows() { engine_.CloseSession(session_.id).IgnoreError(); }  // open until here
  StepRows(const StepRows&) = delete;
  StepRows& operator=(const StepRows&) = delete;

  // Blocks lie scattered over the pool, as they do after a while of serving.
  absl::Status Allocate();

  // All rows as new ones, and a token of each that decodes: after this step `context` tokens are in
  // its KV, or as many fewer as it has at the longest. Prompts run as they do in every step.
  absl::Status AddAll(uint32_t context, engine::StepResult* result);
  absl::StatusOr<engine::StepTicket> SubmitAll(uint32_t context);

  // One more token of each row that decodes, and the same prompts in rows that are added anew.
  // `stepper`: the engine, or its profiler.
  template <typename Stepper>
  absl::Status Continue(Stepper& stepper, engine::StepResult* result) {
    return stepper.Step(ContinueRequest(), result);
  }
  absl::StatusOr<engine::StepTicket> SubmitContinue() { return engine_.Submit(ContinueRequest()); }

 private:
  engine::StepRequest Request();
  // These two view add_ and chunks_.
  engine::StepRequest ContinueRequest();
  engine::StepRequest AddRequest(uint32_t context);
  void AddPrompts();

  engine::DecodeEngine& engine_;
  const engine::SessionInfo session_;
  const StepPoint point_;
  const std::vector<uint32_t> contexts_;  // of rows that decode
  const engine::SamplingParams sampling_;
  // Of rows: those that decode, then those of the prompts.
  std::vector<uint32_t> blocks_, ids_, tokens_;
  std::vector<uint32_t> history_;  // for penalties: what stands in every row's context
  std::vector<engine::RowAdd> add_;
  std::vector<engine::RowChunk> chunks_;
  uint64_t sequence_ = 0;
  bool resident_ = false;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_PROFILE_STEP_ROWS_H_
