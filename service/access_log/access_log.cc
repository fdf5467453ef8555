// SPDX-License-Identifier: Apache-2.0
#include "service/access_log/access_log.h"

#include <chrono>
#include <new>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "service/clock.h"
#include "service/utc_time.h"

namespace reprise::service {

absl::StatusOr<std::unique_ptr<AccessLog>> AccessLog::Open(const AccessLogOptions& options) {
  REPRISE_ASSIGN_OR_RETURN(LogFile file, LogFile::Open(options.path));
  try {
    return std::unique_ptr<AccessLog>(new AccessLog(options, std::move(file)));
  } catch (const std::system_error& error) {
    return absl::UnavailableError(absl::StrCat("access log: no thread: ", error.what()));
  }
}

AccessLog::AccessLog(const AccessLogOptions& options, LogFile file)
    : options_(options),
      ring_(options.max_waiting),
      file_(std::move(file)),
      followed_ns_(NowNs()),
      thread_(std::chrono::milliseconds(options.write_interval_ms), [this] { Turn(); }) {}

void AccessLog::Turn() {
  if (NowNs() - followed_ns_ >= options_.follow_interval_ms * 1'000'000) {
    file_.FollowPath();
    followed_ns_ = NowNs();
  }
  WriteWaiting();
}

// Where a line cannot be written the next ones are tried in the next turn, so that a reader who
// takes nothing costs one wait in each.
void AccessLog::WriteWaiting() {
  AccessRecord record;
  // No more than fit at a time: under any load the file is looked at between two turns.
  for (size_t i = 0; i < options_.max_waiting && ring_.Pop(&record); ++i) {
    if (WriteRecord(record)) continue;
    dropped_.Add();
    return;
  }
  TellDropped();
}

bool AccessLog::WriteRecord(const AccessRecord& record) {
  TellDropped();
  if (!Write([&record] { return AccessLine(record); })) return false;
  written_.Add();
  return true;
}

void AccessLog::TellDropped() {
  const uint64_t dropped = dropped_.value();
  if (dropped == told_dropped_) return;
  const auto line = [&] {
    return absl::StrCat("{\"time\":\"", UtcText(UtcNowNs()),
                        "\",\"event\":\"dropped\",\"records\":", dropped - told_dropped_, "}");
  };
  if (Write(line)) told_dropped_ = dropped;
}

bool AccessLog::Write(const std::function<std::string()>& line) {
  try {
    return file_.Write(line());
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace reprise::service
