// SPDX-License-Identifier: Apache-2.0
// ServerRows: rows of a server's session that decode at a given context, and prompts beside them,
// for measuring: what step_rows.h is to an engine in this process. A server takes no context that
// nobody has written, so tokens are prefilled first; where rows carry state beside their KV, which
// steps move on, before every AddAll.
#ifndef REPRISE_TOOLS_PROFILE_SERVER_ROWS_H_
#define REPRISE_TOOLS_PROFILE_SERVER_ROWS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "engine/step_form.h"
#include "tools/profile/step_points.h"
#include "tools/sched/channel.h"

namespace reprise::tools {

// A session, and the number of its next step. One step at a time.
class StepSession {
 public:
  // Both must outlive the session.
  StepSession(StepChannel* channel, BlockSource* source, const ServerInfo& server)
      : channel_(channel), source_(source), server_(server) {}

  // Submits, and waits for the result. Errors: why the server refused the step, which changed
  // nothing; those of the channel.
  absl::Status Step(PlannedStep step, StepOutcome* outcome);

  BlockSource& source() { return *source_; }
  const ServerInfo& server() const { return server_; }

 private:
  StepChannel* channel_;
  BlockSource* source_;
  const ServerInfo server_;
  uint64_t last_sequence_ = 0;
};

// Asked between two steps of a prefill; an error ends it.
using GoOnFn = std::function<absl::Status()>;

class ServerRows {
 public:
  // `session` must outlive the rows.
  ServerRows(StepSession* session, StepPoint point);

  // Blocks of all rows, and tokens in them for every context that steps of the point have: so many
  // as the largest mixed bucket takes in a step. `go_on` is kept. Errors: those of the blocks, of
  // steps, of `go_on`.
  absl::Status Prefill(GoOnFn go_on);
  // After this step `context` tokens are in the KV of the longest row, as StepRows::AddAll has it.
  absl::Status AddAll(uint32_t context, StepOutcome* outcome);
  // One more token of each row that decodes, and the same prompts in rows that are added anew.
  absl::Status Continue(engine::StepForm form, StepOutcome* outcome);
  // Drops the rows and frees their blocks, for the next point.
  absl::Status Release();

 private:
  using Draft = engine::StepDraft;
  // Takes from `next` on as many of the session's blocks as so many tokens need.
  std::vector<uint32_t> TakeBlocks(uint32_t tokens, size_t* next) const;
  bool carries_state() const { return session_.server().limits.row_state_bytes != 0; }
  // Tokens that a row holds before the step with which the longest has `context`: each is as far
  // from its end as the longest.
  uint32_t HeldBefore(uint32_t context, uint32_t row) const {
    return contexts_[row] - (point_.context - context) - 1;
  }
  // In place of all rows, those that decode, with their tokens before that step.
  absl::Status Write(uint32_t context);
  void AddPrompts(PlannedStep* step) const;

  StepSession& session_;
  const StepPoint point_;
  const std::vector<uint32_t> contexts_;  // of rows that decode
  // Of rows: those that decode, then those of the prompts.
  std::vector<uint32_t> blocks_, ids_;
  std::vector<uint32_t> resident_;  // rows that have to be dropped before they are added again
  GoOnFn go_on_;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_PROFILE_SERVER_ROWS_H_
