// SPDX-License-Identifier: Apache-2.0
// The directory of recordings: that it can be used, what the recordings in it take, and how a new
// one is called. Threads: free functions without state.
#ifndef REPRISE_SERVICE_RECORD_RECORD_DIRECTORY_H_
#define REPRISE_SERVICE_RECORD_RECORD_DIRECTORY_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reprise::service {

// "cannot <doing> <path>: <the system's reason>": AlreadyExists, NotFound, PermissionDenied, or
// Unavailable for any other `error`, an errno.
absl::Status RecordError(std::string_view doing, const std::string& path, int error);

// Makes the directory where it is missing. Errors name it: NotFound, PermissionDenied, Unavailable.
absl::Status PrepareRecordDirectory(const std::string& path);

// Of all recordings in a directory, whoever wrote them.
struct RecordUse {
  uint64_t files = 0;
  uint64_t bytes = 0;
};
// Looks at every file of the directory. Errors: as PrepareRecordDirectory's.
absl::StatusOr<RecordUse> MeasureRecords(const std::string& directory);

// "<directory>/session-<UTC time>-<process>-<number>.record".
std::string NewRecordPath(const std::string& directory, uint64_t number);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_RECORD_RECORD_DIRECTORY_H_
