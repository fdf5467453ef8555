// SPDX-License-Identifier: Apache-2.0
#include "service/telemetry.h"

#include "service/clock.h"
#include "service/utc_time.h"

namespace reprise::service {
namespace {

constexpr const char* kCodeNames[kNumStatusCodes] = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

size_t IndexOf(absl::StatusCode code) {
  const auto number = static_cast<size_t>(code);
  return number < kNumStatusCodes ? number : static_cast<size_t>(absl::StatusCode::kUnknown);
}

AccessRecord RecordOf(AccessRecord::Event event, const CallOrigin& call, uint64_t session,
                      std::string_view detail) {
  AccessRecord record;
  record.event = event;
  record.time_ns = UtcNowNs();
  record.session = session;
  record.trace = call.trace;
  record.peer = ShortText<64>(call.peer);
  record.identity = ShortText<64>(call.identity);
  record.detail = ShortText<200>(detail);
  return record;
}

AccessRecord RecordOf(AccessRecord::Event event, const StepOrigin& origin,
                      const absl::Status& status) {
  AccessRecord record = RecordOf(event, origin.call, origin.session,
                                 {status.message().data(), status.message().size()});
  record.code = status.code();
  record.sequence = origin.sequence;
  record.trace = origin.trace;
  return record;
}

void AddResult(const StepTimes& times, const engine::StepResult& result, AccessRecord* record) {
  record->steps = static_cast<uint32_t>(result.steps.size());
  record->rows = result.report.rows;
  record->tokens = result.report.tokens;
  record->sampled += engine::NumSampledTokens(result);
  record->queue_ns = times.submitted_ns - times.converted_ns;
  record->device_ns = result.ledger.device_ns;
  record->graph = ShortText<24>(result.report.graph);
}

}  // namespace

const char* NameOf(SessionEnd end) {
  switch (end) {
    case SessionEnd::kClosed:
      return "closed";
    case SessionEnd::kCancelled:
      return "cancelled";
    case SessionEnd::kIdle:
      return "idle";
    case SessionEnd::kDrained:
      return "drained";
    case SessionEnd::kExpired:
      return "expired";
    case SessionEnd::kEvicted:
      return "evicted";
    case SessionEnd::kError:
      return "error";
  }
  return "error";
}

SessionEnd SessionEndOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return SessionEnd::kClosed;
    case absl::StatusCode::kCancelled:
      return SessionEnd::kCancelled;
    case absl::StatusCode::kAborted:
      return SessionEnd::kIdle;
    case absl::StatusCode::kUnavailable:
      return SessionEnd::kDrained;
    default:
      return SessionEnd::kError;
  }
}

const char* NameOfCode(absl::StatusCode code) { return kCodeNames[IndexOf(code)]; }

void Telemetry::SetGraphs(const std::vector<std::string>& graphs) {
  steps_ = std::make_unique<StepMetrics>(graphs);
}

void Telemetry::NoteStep(const StepOrigin& origin, const StepJob& job, const absl::Status& status,
                         const engine::StepResult* result) {
  const uint64_t answered_ns = NowNs();
  if (status.ok()) {
    steps_->NoteAnswered(job.request, job.times, *result, answered_ns);
    if (!result->refused_rows.empty()) rows_refused_.Add(result->refused_rows.size());
  } else {
    refused_[IndexOf(status.code())].Add();
    // It was launched, and nothing came of it.
    if (job.times.result_ns != 0) lost_.Add();
  }
  if (access_log_ == nullptr) return;
  AccessRecord record = RecordOf(AccessRecord::Event::kStep, origin, status);
  record.wall_ns = answered_ns - job.times.received_ns;
  if (status.ok()) AddResult(job.times, *result, &record);
  access_log_->Add(record);
}

void Telemetry::NoteRepeated(const StepOrigin& origin, const absl::Status& status) {
  repeated_.Add();
  if (access_log_ == nullptr) return;
  access_log_->Add(RecordOf(AccessRecord::Event::kStepRepeated, origin, status));
}

void Telemetry::NoteSessionOpened(const CallOrigin& call, uint64_t session,
                                  std::string_view client) {
  sessions_opened_.Add();
  if (access_log_ == nullptr) return;
  access_log_->Add(RecordOf(AccessRecord::Event::kSessionOpened, call, session, client));
}

void Telemetry::NoteSessionDetached(const CallOrigin& call, uint64_t session) {
  if (access_log_ == nullptr) return;
  access_log_->Add(RecordOf(AccessRecord::Event::kSessionDetached, call, session, ""));
}

void Telemetry::NoteSessionResumed(const CallOrigin& call, uint64_t session) {
  sessions_resumed_.Add();
  if (access_log_ == nullptr) return;
  access_log_->Add(RecordOf(AccessRecord::Event::kSessionResumed, call, session, ""));
}

void Telemetry::NoteSessionEnded(const CallOrigin& call, uint64_t session, SessionEnd end) {
  sessions_ended_[static_cast<size_t>(end)].Add();
  if (access_log_ == nullptr) return;
  access_log_->Add(RecordOf(AccessRecord::Event::kSessionEnded, call, session, NameOf(end)));
}

void Telemetry::NoteDenied(const absl::Status& status) {
  if (status.code() == absl::StatusCode::kUnauthenticated) unauthenticated_.Add();
  if (status.code() == absl::StatusCode::kPermissionDenied) not_permitted_.Add();
}

}  // namespace reprise::service
