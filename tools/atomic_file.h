// SPDX-License-Identifier: Apache-2.0
// A file that is written whole or not at all: beside its place first, then moved there.
#ifndef REPRISE_TOOLS_ATOMIC_FILE_H_
#define REPRISE_TOOLS_ATOMIC_FILE_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace reprise::tools {

// Finds out, before there is anything to write, whether WriteAtomically could write `bytes` to
// `path` now. Leaves nothing behind. Errors: WriteAtomically's.
absl::Status CheckWritable(const std::string& path, size_t bytes);

// Replaces the file at `path`, or where a link there leads, or leaves it as it is. Its mode stays,
// and its owner where the system allows. Devices and pipes, and what /dev/stdout and the like name,
// are written to. Errors: InvalidArgument where a directory is there; PermissionDenied where no
// file may be put there, as where one is mounted by itself; Unavailable names the file and the
// system's reason.
absl::Status WriteAtomically(const std::string& path, std::string_view text);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_ATOMIC_FILE_H_
