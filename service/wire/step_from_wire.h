// SPDX-License-Identifier: Apache-2.0
// A step's request from the wire: reprise.v1.StepRequest to the engine's structs. What ScanWire
// lets through is well formed, and meaning (rows, blocks, numbers) is the engine's to judge. Step 2
// of the way of a step. Threads: free functions, no state but what is passed in.
#ifndef REPRISE_SERVICE_WIRE_STEP_FROM_WIRE_H_
#define REPRISE_SERVICE_WIRE_STEP_FROM_WIRE_H_

#include <vector>

#include "absl/status/status.h"
#include "engine/step_request.h"
#include "reprise/v1/step_service.pb.h"

namespace reprise::service {

// The arrays of structs that a converted step's views point into. Reused from step to step, so that
// a steady state allocates nothing.
struct StepScratch {
  std::vector<engine::BlockCopy> copies;
  std::vector<engine::RowAdd> add;
  std::vector<engine::RowAppend> append;
  std::vector<engine::RowChunk> chunks;
  std::vector<engine::RowDraft> drafts;
  std::vector<engine::RowMask> masks;
  std::vector<engine::PrefixGroup> prefixes;
  std::vector<engine::TokenBias> biases;  // of all added rows
};

// Everything but the session, which the caller knows. `step` views `wire` and `scratch`: both must
// stay as they are until the engine's Submit has returned. Errors: InvalidArgument on an unknown
// mode, a trace_id of another size, or copy_blocks that are no pairs.
absl::Status StepFromWire(const v1::StepRequest& wire, StepScratch* scratch,
                          engine::StepRequest* step);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_WIRE_STEP_FROM_WIRE_H_
