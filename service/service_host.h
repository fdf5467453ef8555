// SPDX-License-Identifier: Apache-2.0
// ServiceHost: what every call needs once an engine is attached. All of it outlives every call.
#ifndef REPRISE_SERVICE_SERVICE_HOST_H_
#define REPRISE_SERVICE_SERVICE_HOST_H_

#include "engine/decode_engine.h"
#include "service/admission.h"
#include "service/memory_budget.h"
#include "service/profile_lease.h"
#include "service/record/recorder.h"
#include "service/session_registry.h"
#include "service/step_pipeline.h"
#include "service/telemetry.h"

namespace reprise::service {

struct ServiceHost {
  engine::DecodeEngine& engine;
  StepPipeline& pipeline;
  SessionRegistry& sessions;
  Admission& admission;
  MemoryBudget& memory;
  Telemetry& telemetry;
  ProfileLease& profile;
  // Longest that a session outlives its stream. 0: none does.
  uint64_t max_resume_grace_ms = 0;
  Recorder* recorder = nullptr;  // nullptr: nothing is recorded

  // Steps of a stream, and unary steps of a session, that may be unanswered: as many in flight as
  // the engine takes, and as many behind them to follow without a round trip.
  uint32_t max_unanswered() const { return 2 * engine.info().limits.pipeline_depth; }
  // What a session may keep of its answers, as MemoryBudget charges it: all together a quarter.
  uint64_t max_kept_bytes() const { return memory.bytes() / 4 / sessions.max_sessions(); }
  // For ScanWire: twice what a step can need, so that the engine says what is wrong with one that
  // has a little too much.
  uint32_t max_entries() const { return 2 * engine.info().limits.max_rows; }
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_SERVICE_HOST_H_
