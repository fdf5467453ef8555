// SPDX-License-Identifier: Apache-2.0
// StepReader: waits for a submitted step's result and reads it from the result ring. This is step 7
// of the way of a step. It knows no rows but those of the step; what a result means for them is for
// the engine to decide.
#ifndef REPRISE_ENGINE_STEP_READ_H_
#define REPRISE_ENGINE_STEP_READ_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/session_info.h"
#include "engine/step_result.h"
#include "kernels/step/ring.h"
#include "runtime/device.h"
#include "runtime/memory/mapped_ring.h"

namespace reprise::engine {

// A row that runs in a step.
struct InFlightRow {
  uint32_t row = 0;  // the caller's id
  uint32_t slot = 0;
  uint64_t generation = 0;  // of the row in the slot
  uint32_t num_tokens = 0;
  uint32_t num_drafts = 0;  // of these
  uint32_t num_prompt_logprobs = 0;
};

// A replay that was launched.
struct InFlightReplay {
  std::vector<InFlightRow> rows;  // in result order
  bool decode = false;            // a decode graph
  StepReport report;              // every row counts as one that runs
};

// A request of a launch, and where its rows are among those of the replays.
struct InFlightRequest {
  struct Range {
    uint32_t begin = 0;
    uint32_t count = 0;
  };
  SessionId session = 0;
  uint64_t sequence = 0;
  uint32_t num_replays = 1;  // of those of the launch, the first ones
  Range first;
  Range repeat;
  StepLedger ledger = {};  // the host's part until the last launch
  std::vector<RefusedRow> refused_rows = {};

  const Range& rows(uint32_t replay) const { return replay == 0 ? first : repeat; }
};

// What was launched for one request, or for several together, between Submit and Wait.
struct InFlightStep {
  StepTicket ticket = 0;      // its metadata is in the entry of ticket - 1
  uint64_t first_replay = 0;  // its number; its results are in the entry of first_replay - 1
  uint32_t num_replays = 1;
  std::vector<InFlightRequest> requests;
  InFlightReplay first;
  InFlightReplay repeat;  // each later one
  std::chrono::steady_clock::time_point submitted;

  const InFlightReplay& replay(uint32_t index) const { return index == 0 ? first : repeat; }
};

class StepReader {
 public:
  // All but `vocab_size` and the timeout are views.
  StepReader(runtime::Stream& stream, const runtime::MappedRing& results,
             const kernels::ResultEntryLayout& layout, uint32_t vocab_size,
             uint64_t watchdog_timeout_ms);

  // Blocks until these replays are published, the steps of request `ticket`, which errors name.
  // Errors: Internal (device fault, or the device is idle and has published nothing),
  // DeadlineExceeded (watchdog, for each of them). Thread: any, one at a time.
  absl::Status Await(StepTicket ticket, uint64_t first_replay, uint32_t num_replays) const;
  // The whole result of each request. REQUIRES: Await was OK for the step's replays.
  void Read(const InFlightStep& step, std::span<StepResult> results) const;

 private:
  absl::Status AwaitReplay(uint64_t replay) const;
  kernels::ResultHeader HeaderOf(const InFlightStep& step, uint32_t replay) const;
  // Appends the rows and the outcome of one replay to the results of the requests that it is of.
  void ReadReplay(const InFlightStep& step, uint32_t index, std::span<StepResult> results) const;
  // A row's part of the result: `sampled` is the place of its first sampled token, and of that
  // token's report; `logits` where its logits are, if it returns them.
  void ReadRow(const InFlightRow& row, const std::byte* ring_entry, uint32_t index,
               uint32_t sampled, const std::byte* logits, StepResult* result) const;
  // The drafts that a row's `flags` say were accepted.
  AcceptedRange ReadAccepted(uint32_t flags, const std::byte* ring_entry, uint32_t sampled,
                             StepResult* result) const;
  // Of the rows of one request, which are the result's last. Returns the report behind theirs.
  uint32_t ReadPromptLogprobs(const InFlightReplay& replay, const InFlightRequest::Range& rows,
                              const std::byte* ring_entry, uint32_t first_report,
                              StepResult* result) const;

  runtime::Stream& stream_;
  const runtime::MappedRing& results_;
  const kernels::ResultEntryLayout layout_;
  const uint32_t vocab_size_;
  const uint64_t watchdog_timeout_ms_;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STEP_READ_H_
