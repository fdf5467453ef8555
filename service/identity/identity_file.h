// SPDX-License-Identifier: Apache-2.0
// The file that lists a server's identities: JSON, read strictly. Nothing that could be a token is
// repeated in an error. docs/identity.md describes the format. Threads: free functions without
// state.
#ifndef REPRISE_SERVICE_IDENTITY_IDENTITY_FILE_H_
#define REPRISE_SERVICE_IDENTITY_IDENTITY_FILE_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "service/identity/identity.h"

namespace reprise::service {

// At least one. Errors: InvalidArgument with `file`, line and place in it, got,
// allowed.
absl::StatusOr<std::vector<Identity>> ParseIdentities(std::string_view text,
                                                      const std::string& file);
// Errors: those of ReadPrivateFile and ParseIdentities.
absl::StatusOr<std::vector<Identity>> ReadIdentities(const std::string& path);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_IDENTITY_IDENTITY_FILE_H_
