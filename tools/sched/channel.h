// SPDX-License-Identifier: Apache-2.0
// StepChannel stands between the scheduler and whoever runs its steps: client.h carries them over
// gRPC, run/ into an engine in this process. Steps, results and limits are the engine's own
// vocabulary structs; this header adds what a scheduler has to know besides.
#ifndef REPRISE_TOOLS_SCHED_CHANNEL_H_
#define REPRISE_TOOLS_SCHED_CHANNEL_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/step_draft.h"
#include "engine/step_form.h"
#include "engine/step_result.h"
#include "kernels/step/step_limits.h"

namespace reprise::tools {

// What the scheduler must know of the other side. From Describe, or from an engine's info.
struct ServerInfo {
  kernels::StepLimits limits = {};
  uint32_t num_blocks = 0;          // of the pool, the scratch block included
  uint32_t max_session_blocks = 0;  // of them; 0: all but that one
  std::vector<uint32_t> eos_token_ids = {};
  bool byte_tokens = false;             // an id below 256 is that byte
  uint32_t num_swap_blocks = 0;         // of swap space; 0: none
  uint32_t num_swap_states = 0;         // rows whose state it has room for, where they carry some
  uint32_t max_kv_blocks_per_call = 0;  // of SwapOut and SwapIn

  // Blocks that a session may hold.
  uint32_t usable_blocks() const {
    const uint32_t of_pool = num_blocks == 0 ? 0 : num_blocks - 1;
    return max_session_blocks == 0 ? of_pool : std::min(of_pool, max_session_blocks);
  }
};

// A step as the scheduler plans it; the session is the channel's. Lists of sampling parameters are
// those of the step's requests, which outlive it.
struct PlannedStep : engine::StepDraft {
  uint64_t sequence = 0;
  // Of a session that profiles its server (server_profiler.h), others than plain.
  engine::StepForm form = engine::StepForm::kPlain;
};

// A step's result, and what the channel adds. Names in it are valid as long as the channel is.
struct StepOutcome : engine::StepResult {
  // Not OK: the step was refused, nothing changed, and the rest but `sequence` is unset.
  absl::Status refusal = {};
  // The server's part besides the engine's ledger, ns; 0 where there is no server between.
  // `ledger.total_ns` includes them.
  uint64_t wire_ns = 0;
  uint64_t queue_ns = 0;
  uint64_t reply_ns = 0;
  uint64_t round_trip_ns = 0;  // Submit entered to result in hand
  // Of a stamped step, else empty: when the first kernel began and each launch was done,
  // nanoseconds on the device's clock.
  uint64_t stamps_begin_ns = 0;
  std::vector<uint64_t> stamps_done_ns = {};
};

// Carries steps in order. One thread. An error means that the channel is gone, for good unless it
// is reopened; a refused step is not an error but an outcome.
class StepChannel {
 public:
  virtual ~StepChannel() = default;
  virtual absl::Status Submit(const PlannedStep& step) = 0;
  // Blocks for the outcome of the oldest step that has none yet.
  virtual absl::Status Receive(StepOutcome* outcome) = 0;
  // After `error`, of the channel or of its block source. OK: the session was lost with its server,
  // and another one was opened in its place, which begins at step 1 and has no rows, no blocks and
  // nothing in swap space; no step is in flight. Otherwise why there is none.
  virtual absl::Status Reopen(const absl::Status& error) { return error; }
};

// Where blocks come from.
class BlockSource {
 public:
  virtual ~BlockSource() = default;
  // All or nothing. ResourceExhausted: the pool lacks them right now.
  virtual absl::StatusOr<std::vector<uint32_t>> Allocate(uint32_t count) = 0;
  virtual absl::Status Free(const std::vector<uint32_t>& blocks) = 0;

  // To swap space and back (docs/kv.md), with what steps before have written; all or nothing, the
  // result in the order of the argument. ResourceExhausted: no room there. DataLoss: the call may
  // have been made, but which blocks came of it is not known. Unimplemented: there is no swap
  // space.
  virtual absl::StatusOr<std::vector<uint32_t>> SwapOut(const std::vector<uint32_t>& blocks);
  virtual absl::StatusOr<std::vector<uint32_t>> SwapIn(const std::vector<uint32_t>& swapped);
  virtual absl::Status FreeSwapped(const std::vector<uint32_t>& swapped);
  // What a resident row without steps in flight carries beside its KV, to swap space: what it is
  // called there. ResourceExhausted, Unimplemented: as above.
  virtual absl::StatusOr<uint32_t> SwapOutState(uint32_t row);
  virtual absl::Status FreeSwappedState(uint32_t state);
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_SCHED_CHANNEL_H_
