// SPDX-License-Identifier: Apache-2.0
#include "tools/sched/arrival_trace.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/status_macros.h"
#include "tools/number_lines.h"

namespace reprise::tools {
namespace {

constexpr double kMaxSeconds = 1e9;
constexpr double kMaxTokens = 1u << 24;
constexpr std::array<NumberField, 4> kFields = {
    NumberField{"time_s", 0, kMaxSeconds, /*whole=*/false},
    NumberField{"prompt_tokens", 1, kMaxTokens}, NumberField{"new_tokens", 1, kMaxTokens},
    NumberField{"priority", -1e9, 1e9, /*whole=*/true, /*otherwise=*/0.0}};

}  // namespace

absl::StatusOr<std::vector<TracedRequest>> ReadArrivalTrace(const std::string& path) {
  REPRISE_ASSIGN_OR_RETURN(const auto records, ReadNumberLines(path, kFields, "request"));
  std::vector<TracedRequest> requests;
  for (const std::vector<double>& values : records) {
    requests.push_back({.arrival_ns = static_cast<uint64_t>(std::llround(values[0] * 1e9)),
                        .prompt_tokens = static_cast<uint32_t>(values[1]),
                        .new_tokens = static_cast<uint32_t>(values[2]),
                        .priority = static_cast<int32_t>(values[3])});
  }
  std::stable_sort(
      requests.begin(), requests.end(),
      [](const TracedRequest& a, const TracedRequest& b) { return a.arrival_ns < b.arrival_ns; });
  return requests;
}

}  // namespace reprise::tools
