// SPDX-License-Identifier: Apache-2.0
// StepReader: waits for a submitted step's result and reads it from the result ring. This is step 7
// of the way of a step. It knows no rows but those of the step; what a result means for them is for
// the engine to decide.
#ifndef REPRISE_ENGINE_STEP_READ_H_
#define REPRISE_ENGINE_STEP_READ_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
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
  uint32_t context_before = 0;
  uint32_t num_tokens = 0;
  uint32_t num_prompt_logprobs = 0;
};

// A step between Submit and Wait.
struct InFlightStep {
  StepTicket ticket = 0;  // its ring entries are those of step ticket - 1
  SessionId session = 0;
  uint64_t sequence = 0;
  std::vector<InFlightRow> rows;  // in result order
  bool decode = false;            // a decode graph
  StepReport report;              // every row counts as one that runs
  StepLedger ledger;              // the host's part until the launch
  std::chrono::steady_clock::time_point submitted;
};

class StepReader {
 public:
  // All but `vocab_size` and the timeout are views.
  StepReader(runtime::Stream& stream, const runtime::MappedRing& results,
             const kernels::ResultEntryLayout& layout, uint32_t vocab_size,
             uint64_t watchdog_timeout_ms);

  // Blocks until the step is published. Errors: Internal (device fault, or the device is idle and
  // has published nothing), DeadlineExceeded (watchdog). Thread: any, one at a time.
  absl::Status Await(StepTicket ticket) const;
  // The whole result. REQUIRES: Await(step.ticket) was OK.
  void Read(const InFlightStep& step, StepResult* result) const;

 private:
  // A row's part of the result: `report` is that of its sampled token.
  void ReadRow(const InFlightRow& row, const std::byte* ring_entry, uint32_t index, uint32_t report,
               StepResult* result) const;
  void ReadPromptLogprobs(const InFlightStep& step, const std::byte* ring_entry,
                          uint32_t first_report, StepResult* result) const;

  runtime::Stream& stream_;
  const runtime::MappedRing& results_;
  const kernels::ResultEntryLayout layout_;
  const uint32_t vocab_size_;
  const uint64_t watchdog_timeout_ms_;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STEP_READ_H_
