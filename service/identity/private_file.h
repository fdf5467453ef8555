// SPDX-License-Identifier: Apache-2.0
// Reading files on which it depends who may do what: one that others could have written, or a
// secret that others could have read, is refused. Threads: free functions without state.
#ifndef REPRISE_SERVICE_IDENTITY_PRIVATE_FILE_H_
#define REPRISE_SERVICE_IDENTITY_PRIVATE_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace reprise::service {

enum class FileKind : uint8_t {
  kTrusted,  // nobody but its owner may write it
  kSecret,   // that, and only its owner and its group may read it
};

// The text of `path`, at most 1 MiB of it. `what` names the file in errors, "identities". The owner
// must be root or this process's user. Errors name the path: NotFound and others (cannot be
// opened); PermissionDenied (owner or mode: got, allowed); InvalidArgument (too large, or no
// regular file, which is never waited for).
absl::StatusOr<std::string> ReadPrivateFile(const std::string& what, const std::string& path,
                                            FileKind kind);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_IDENTITY_PRIVATE_FILE_H_
