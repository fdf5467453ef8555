// SPDX-License-Identifier: Apache-2.0
// Telemetry: what the service tells of its calls: counters, which metrics read, and records for the
// access log. Step 8 of the way of a step ends here.
//
// Threads: every method from any thread, except as said. Note* methods take no lock and allocate
// nothing.
#ifndef REPRISE_SERVICE_TELEMETRY_H_
#define REPRISE_SERVICE_TELEMETRY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/step_result.h"
#include "service/access_log/access_log.h"
#include "service/call_origin.h"
#include "service/metrics/counter.h"
#include "service/metrics/step_metrics.h"
#include "service/step_queue.h"

namespace reprise::service {

// Why a session ended.
enum class SessionEnd : uint8_t {
  kClosed,     // by its client
  kCancelled,  // by its client, or its connection is gone
  kIdle,       // the server's idle timeout
  kDrained,    // the server stops
  kExpired,    // its grace time was over
  kEvicted,    // by an administrator
  kError       // anything else: a message over the limit, no memory for an answer
};
inline constexpr size_t kNumSessionEnds = 7;
// "closed", "cancelled", "idle", "drained", "expired", "evicted", "error".
const char* NameOf(SessionEnd end);
// By the status with which the stream ends.
SessionEnd SessionEndOf(const absl::Status& status);

// gRPC's codes; OK among them.
inline constexpr size_t kNumStatusCodes = 17;
// "INVALID_ARGUMENT"; "UNKNOWN" for what is no code of gRPC's.
const char* NameOfCode(absl::StatusCode code);

// Whose step it is.
struct StepOrigin {
  const CallOrigin& call;
  const TraceId& trace;  // the step's own, or the call's
  uint64_t session = 0;  // 0: not known
  uint64_t sequence = 0;
};

class Telemetry {
 public:
  // Where records go, which must outlive the calls; nullptr: nowhere. Before the first call, by the
  // owner.
  void SetAccessLog(AccessLog* log) { access_log_ = log; }
  // Before the first step: what the engine's graphs are called. Once, by the owner.
  void SetGraphs(const std::vector<std::string>& graphs);
  // Before steps replay them: what further graphs are called. After SetGraphs.
  void AddGraphs(const std::vector<std::string>& graphs) { steps_->AddGraphs(graphs); }

  // A step request has its answer, made now. `result` is set where `status` is OK.
  void NoteStep(const StepOrigin& origin, const StepJob& job, const absl::Status& status,
                const engine::StepResult* result);
  // A unary step was given the answer that another call of the same bytes brought.
  void NoteRepeated(const StepOrigin& origin, const absl::Status& status);

  // `client`: what it calls itself.
  void NoteSessionOpened(const CallOrigin& call, uint64_t session, std::string_view client);
  void NoteSessionRefused() { sessions_refused_.Add(); }
  // Its stream is lost; its grace time begins.
  void NoteSessionDetached(const CallOrigin& call, uint64_t session);
  // A stream has it again, that of `call`.
  void NoteSessionResumed(const CallOrigin& call, uint64_t session);
  void NoteSessionEnded(const CallOrigin& call, uint64_t session, SessionEnd end);
  // A call has ended with `status`: counts it where its caller proved no identity, or may not make
  // it; any other status is none of this.
  void NoteDenied(const absl::Status& status);
  // The server's files were read again, and taken or refused.
  void NoteReload(bool taken) { (taken ? reloads_taken_ : reloads_refused_).Add(); }
  // The watch over idle and expired sessions found no memory for its work, and tries again.
  void NoteLookOutOfMemory() { looks_out_of_memory_.Add(); }

  // nullptr before SetGraphs.
  const StepMetrics* steps() const { return steps_.get(); }
  const AccessLog* access_log() const { return access_log_; }
  uint64_t refused(size_t code) const { return refused_[code].value(); }
  uint64_t lost() const { return lost_.value(); }
  uint64_t repeated() const { return repeated_.value(); }
  // `code`: Unauthenticated or PermissionDenied.
  uint64_t denied(absl::StatusCode code) const {
    return (code == absl::StatusCode::kUnauthenticated ? unauthenticated_ : not_permitted_).value();
  }
  uint64_t reloads_taken() const { return reloads_taken_.value(); }
  uint64_t reloads_refused() const { return reloads_refused_.value(); }
  uint64_t looks_out_of_memory() const { return looks_out_of_memory_.value(); }
  uint64_t sessions_opened() const { return sessions_opened_.value(); }
  uint64_t sessions_refused() const { return sessions_refused_.value(); }
  uint64_t sessions_resumed() const { return sessions_resumed_.value(); }
  uint64_t rows_refused() const { return rows_refused_.value(); }
  uint64_t sessions_ended(size_t end) const { return sessions_ended_[end].value(); }

 private:
  AccessLog* access_log_ = nullptr;
  std::unique_ptr<StepMetrics> steps_;
  std::array<Counter, kNumStatusCodes> refused_;
  Counter lost_;
  Counter repeated_;
  Counter unauthenticated_;
  Counter not_permitted_;
  Counter sessions_opened_;
  Counter sessions_refused_;
  Counter sessions_resumed_;
  Counter rows_refused_;  // alone
  Counter reloads_taken_;
  Counter reloads_refused_;
  Counter looks_out_of_memory_;
  std::array<Counter, kNumSessionEnds> sessions_ended_;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_TELEMETRY_H_
