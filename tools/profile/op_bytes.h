// SPDX-License-Identifier: Apache-2.0
// OpBytes: what a step's kernels have to read and to write, counted from the model's sizes: of all
// but linear layers, experts' products and attention, which roofs.h adds. docs/profile.md says what
// is counted.
#ifndef REPRISE_TOOLS_PROFILE_OP_BYTES_H_
#define REPRISE_TOOLS_PROFILE_OP_BYTES_H_

#include <optional>

#include "tools/profile/kernel_times.h"
#include "tools/profile/profiler.h"
#include "tools/profile/report.h"

namespace reprise::tools {

// Of all launches of an op in a step.
struct OpBytes {
  double read = 0, written = 0;
  double total() const { return read + written; }
};

// Unset of ops that move metadata or partial results alone, and of those that are not known.
std::optional<OpBytes> BytesByModel(const OpTime& op, const PointProfile& point,
                                    const ProfileContext& context);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_PROFILE_OP_BYTES_H_
