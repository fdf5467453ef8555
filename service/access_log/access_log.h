// SPDX-License-Identifier: Apache-2.0
// AccessLog: a line of JSON for every step request that is answered or refused, and for every
// session that is opened or ends. Written by a thread of its own, so that no step waits for a disk:
// what comes faster than it can be written is dropped, counted, and said in a line.
//
// Threads: Add and the counters from any thread; Open and destruction by the owner.
#ifndef REPRISE_SERVICE_ACCESS_LOG_ACCESS_LOG_H_
#define REPRISE_SERVICE_ACCESS_LOG_ACCESS_LOG_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "service/access_log/access_record.h"
#include "service/access_log/log_file.h"
#include "service/metrics/counter.h"
#include "service/periodic_thread.h"
#include "service/record_ring.h"

namespace reprise::service {

struct AccessLogOptions {
  std::string path;  // "-": stderr
  // Records that wait to be written: a fifth of a second at 40,000 requests a second.
  size_t max_waiting = 8192;
  uint64_t write_interval_ms = 20;
  uint64_t follow_interval_ms = 1000;  // between two looks whether the path is another file
};

class AccessLog {
 public:
  // Errors: as LogFile::Open.
  static absl::StatusOr<std::unique_ptr<AccessLog>> Open(const AccessLogOptions& options);
  // Writes what waits, as far as it can be written without waiting.
  ~AccessLog() = default;
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  // Takes no lock and allocates nothing.
  void Add(const AccessRecord& record) {
    if (!ring_.Push(record)) dropped_.Add();
  }

  uint64_t written() const { return written_.value(); }
  // Dropped because too many waited, or because they could not be written.
  uint64_t dropped() const { return dropped_.value(); }

 private:
  AccessLog(const AccessLogOptions& options, LogFile file);
  // What the thread does every write_interval_ms.
  void Turn();
  // Stops at a record that cannot be written.
  void WriteWaiting();
  // False where it was not written.
  bool WriteRecord(const AccessRecord& record);
  bool Write(const std::function<std::string()>& line);
  // How many records are missing up to here, if any are.
  void TellDropped();

  const AccessLogOptions options_;
  RecordRing<AccessRecord> ring_;
  Counter written_;
  Counter dropped_;
  // Of the thread:
  LogFile file_;
  uint64_t told_dropped_ = 0;
  uint64_t followed_ns_ = 0;

  PeriodicThread thread_;  // the last member: it uses the others
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_ACCESS_LOG_ACCESS_LOG_H_
