// SPDX-License-Identifier: Apache-2.0
#include "service/access_log/access_record.h"

#include "nlohmann/json.hpp"
#include "service/telemetry.h"
#include "service/utc_time.h"

namespace reprise::service {
namespace {

using nlohmann::ordered_json;
using Event = AccessRecord::Event;

const char* NameOf(Event event) {
  switch (event) {
    case Event::kStep:
      return "step";
    case Event::kStepRepeated:
      return "step_repeated";
    case Event::kSessionOpened:
      return "session_opened";
    case Event::kSessionDetached:
      return "session_detached";
    case Event::kSessionResumed:
      return "session_resumed";
    case Event::kSessionEnded:
      return "session_ended";
  }
  return "step";
}

double Seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

void AddStep(const AccessRecord& record, ordered_json* line) {
  (*line)["sequence"] = record.sequence;
  (*line)["status"] = NameOfCode(record.code);
  if (record.event == Event::kStep && record.code == absl::StatusCode::kOk) {
    (*line)["graph"] = record.graph.text();
    (*line)["steps"] = record.steps;
    (*line)["rows"] = record.rows;
    (*line)["tokens"] = record.tokens;
    (*line)["sampled"] = record.sampled;
    (*line)["queue_seconds"] = Seconds(record.queue_ns);
    (*line)["device_seconds"] = Seconds(record.device_ns);
  }
  if (record.event == Event::kStep) (*line)["wall_seconds"] = Seconds(record.wall_ns);
  if (record.code != absl::StatusCode::kOk) (*line)["message"] = record.detail.text();
  if (!record.trace.empty()) (*line)["trace_id"] = record.trace.Hex();
}

}  // namespace

std::string AccessLine(const AccessRecord& record) {
  ordered_json line;
  line["time"] = UtcText(record.time_ns);
  line["event"] = NameOf(record.event);
  line["peer"] = record.peer.text();
  if (!record.identity.text().empty()) line["identity"] = record.identity.text();
  if (record.session != 0) line["session"] = record.session;
  switch (record.event) {
    case Event::kStep:
    case Event::kStepRepeated:
      AddStep(record, &line);
      break;
    case Event::kSessionOpened:
      line["client"] = record.detail.text();
      if (!record.trace.empty()) line["trace_id"] = record.trace.Hex();
      break;
    case Event::kSessionDetached:
    case Event::kSessionResumed:
      if (!record.trace.empty()) line["trace_id"] = record.trace.Hex();
      break;
    case Event::kSessionEnded:
      line["reason"] = record.detail.text();
      if (!record.trace.empty()) line["trace_id"] = record.trace.Hex();
      break;
  }
  // Bytes that are no UTF-8 are replaced: a line is always JSON.
  return line.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace reprise::service
