// SPDX-License-Identifier: Apache-2.0
// A step's result, or its refusal, to the wire: the engine's structs to reprise.v1.StepResponse and
// reprise.v1.StepError. Step 8 of the way of a step. Threads: free functions without state.
#ifndef REPRISE_SERVICE_WIRE_RESULT_TO_WIRE_H_
#define REPRISE_SERVICE_WIRE_RESULT_TO_WIRE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/step_result.h"
#include "engine/step_stamps.h"
#include "reprise/v1/step_service.pb.h"
#include "service/step_times.h"
#include "service/trace_id.h"

namespace reprise::service {

// Everything but the times at which the reply leaves: see SetReplyTimes. Keeps the capacity of
// `wire`'s row columns.
void ResultToWire(const engine::StepResult& result, const StepTimes& times, bool omit_rows,
                  v1::StepResponse* wire);
// Of a stamped step; nullptr: it has none.
void StampsToWire(const engine::StepStamps* stamps, v1::StepResponse* wire);
// Fills reply_ns and total_ns; called at the moment the reply is handed to gRPC.
void SetReplyTimes(const StepTimes& times, uint64_t replied_ns, v1::StepLedger* ledger);

// What StepError carries.
void ErrorToWire(uint64_t sequence, const absl::Status& status, v1::StepError* wire);

// The trace of either, in place of that of an answer before; none where there is none.
void TraceToWire(const TraceId& trace, v1::StepResponse* wire);
void TraceToWire(const TraceId& trace, v1::StepError* wire);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_WIRE_RESULT_TO_WIRE_H_
