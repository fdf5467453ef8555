// SPDX-License-Identifier: Apache-2.0
// LaunchBuilder: puts a launch together of one request, or of several that run in one replay each
// step: checks each alone (step 3 of the way of a step), picks the graphs that serve all taken so
// far (step 4), and lets it take effect on the host's mirror and in the ring entry (step 5). It
// launches nothing. Threads: the caller orders all calls.
#ifndef REPRISE_ENGINE_STEP_LAUNCH_BUILDER_H_
#define REPRISE_ENGINE_STEP_LAUNCH_BUILDER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/state/block_ledger.h"
#include "engine/state/row_table.h"
#include "engine/state/session_table.h"
#include "engine/state/swap_table.h"
#include "engine/step/launch_totals.h"
#include "engine/step/read.h"
#include "engine/step/select.h"
#include "engine/step/validate.h"
#include "engine/step/write.h"
#include "engine/step_request.h"
#include "kernels/block_copy/block_copy_args.h"
#include "kernels/step/step_limits.h"

namespace reprise::engine {

class LaunchBuilder {
 public:
  using Clock = std::chrono::steady_clock;

  // All are views.
  struct Parts {
    const kernels::StepLimits& limits;
    RowTable& rows;
    BlockLedger& ledger;
    SessionTable& sessions;
    StepValidator& validator;
    StepWriter& writer;
    StepGraphs& graphs;
    SwapTable& states;  // of rows in swap space
  };
  // Where the launch goes. `step` and `ring_entry` are touched once a request is taken.
  struct Place {
    StepTicket ticket = 0;
    uint64_t first_replay = 0;
    InFlightStep* step = nullptr;
    std::byte* ring_entry = nullptr;
    StepTicket ended = 0;         // the latest that was waited for
    uint64_t attention_tree = 0;  // version in force
    StepForm form = StepForm::kPlain;
    absl::Status full = {};  // OK, or what requests are refused with for want of a place
  };

  explicit LaunchBuilder(const Parts& parts) : parts_(parts) {
    copies_.reserve(parts.limits.max_rows);
    if (parts.limits.row_state_bytes == 0) return;
    forks_.reserve(parts.limits.max_rows);
    returns_.reserve(parts.limits.max_rows);
  }

  // Forgets the launch before; the new one has no requests yet.
  void Begin(const Place& place);
  // Takes the request, refuses it or leaves it, and says so in it: see
  // DecodeEngine::SubmitJoint. `entered`: when work on it began. Throws std::bad_alloc, with
  // nothing changed, for the launch's first request alone.
  void Add(JointRequest& joint, Clock::time_point entered);
  // Completes the ring entry. REQUIRES: a request was taken.
  void Finish() { parts_.writer.Finish(); }

  bool empty() const { return totals_.num_requests == 0; }
  // Of the requests taken: how they run, and the graphs of their first replay and of later ones.
  ExecutionMode mode() const { return mode_; }
  const StepGraphs::Target& first() const { return first_; }
  const StepGraphs::Target& repeat() const { return repeat_; }
  // KV blocks to be copied ahead of the first replay.
  std::span<const kernels::BlockPair> copies() const { return copies_; }
  // Slots between which state of rows is to be copied ahead of the first replay.
  struct Fork {
    uint32_t from = 0;
    uint32_t to = 0;
  };
  std::span<const Fork> forks() const { return forks_; }
  // Places in swap space from which state of rows is to be copied ahead of the first replay; free
  // from now on.
  struct Return {
    uint32_t place = 0;
    uint32_t slot = 0;
  };
  std::span<const Return> returns() const { return returns_; }

 private:
  // Whether its kind is that of the launch's requests, and its session none of theirs.
  bool MayJoin(const StepRequest& request) const;
  // Checks the request alone; what comes of it is staged.
  absl::StatusOr<Session*> Stage(const StepRequest& request);
  // The same, and picks the graphs that serve it beside those before it. nullptr where it does not
  // fit beside them; then nothing is staged. Errors: its refusal.
  absl::StatusOr<Session*> Fit(const StepRequest& request, LaunchTotals* totals);
  void BeginStep(const StepRequest& request);
  // Of rows that are added now, the state that is not their own tokens'.
  void NoteStates(const StepRequest& request, Session& session);
  // The staged request takes effect; its rows count as run.
  void Write(const StepRequest& request, Session& session);
  // The row in `slot` writes tokens at positions from `begin` on.
  void NoteWritten(uint32_t slot, uint32_t begin, uint32_t count);

  const Parts parts_;
  Place place_;
  LaunchTotals totals_;
  ExecutionMode mode_ = ExecutionMode::kReplay;
  uint32_t num_steps_ = 1;
  StepGraphs::Target first_, repeat_;
  std::vector<kernels::BlockPair> copies_;
  std::vector<Fork> forks_;
  std::vector<Return> returns_;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STEP_LAUNCH_BUILDER_H_
