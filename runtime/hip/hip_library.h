// SPDX-License-Identifier: Apache-2.0
// Finds the HIP runtime library on the machine and resolves its calls (hip_api.h). Nothing here
// talks to a device.
#ifndef REPRISE_RUNTIME_HIP_HIP_LIBRARY_H_
#define REPRISE_RUNTIME_HIP_HIP_LIBRARY_H_

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "runtime/hip/hip_api.h"

namespace reprise::runtime::hip {

// libamdhip64.so of ROCm 7, 6 and 5, newest first, then whatever carries the plain name.
std::span<const std::string_view> LibraryNames();

// A library that stays open until the process ends: it owns threads and exit handlers, and does not
// survive being closed.
struct Library {
  Api api;
  std::string name;  // as it was opened
};

// Opens `path`, or the first of LibraryNames() that the loader finds where `path` is empty. Nothing
// that the library defines becomes visible to others (RTLD_LOCAL). Errors: Unavailable with what
// was tried and what the loader said of each, or the library and the call that it lacks. Thread:
// any.
absl::StatusOr<Library> OpenLibrary(std::string_view path);

}  // namespace reprise::runtime::hip

#endif  // REPRISE_RUNTIME_HIP_HIP_LIBRARY_H_
