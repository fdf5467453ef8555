// SPDX-License-Identifier: Apache-2.0
// Checks that ops' launches make before they touch a stream.
#ifndef REPRISE_KERNELS_LAUNCH_CHECK_H_
#define REPRISE_KERNELS_LAUNCH_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace reprise::kernels {

// InvalidArgument "<op>: <what> is <got>; allowed: at least <min>".
inline absl::Status CheckAtLeast(const char* op, const char* what, int64_t got, int64_t min) {
  if (got >= min) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(op, ": ", what, " is ", got, "; allowed: at least ", min));
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_LAUNCH_CHECK_H_
