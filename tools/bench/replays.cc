// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/replays.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::tools {

uint64_t DefaultPoolBytes(const runtime::DeviceProperties& device) {
  return uint64_t{device.kind == runtime::DeviceKind::kHost ? 64u : 256u} << 20;
}

absl::StatusOr<double> NsBetweenStamps(runtime::Stream& stream, const uint64_t* stamps,
                                       double stamp_cost_ns) {
  uint64_t ns[2] = {};
  REPRISE_RETURN_IF_ERROR(stream.CopyToHost(ns, stamps, sizeof(ns)));
  REPRISE_RETURN_IF_ERROR(stream.Synchronize());
  if (ns[1] < ns[0]) {
    return absl::InternalError(
        absl::StrCat("the device's clock went back by ", ns[0] - ns[1], " ns in a replay"));
  }
  return std::max(static_cast<double>(ns[1] - ns[0]) - stamp_cost_ns, 1.0);
}

}  // namespace reprise::tools
