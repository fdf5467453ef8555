// SPDX-License-Identifier: Apache-2.0
// Arrival traces: when requests came, and how long they were, from a file.
//
//   time_s,prompt_tokens,new_tokens,priority        {"time_s": 0.0, "prompt_tokens": 512,
//   0.0,512,128,0                                    "new_tokens": 128, "priority": 0}
//
// CSV with a header that names its columns in any order, or a line of JSON for each request;
// `priority` may be left out, and is 0 then.
#ifndef REPRISE_TOOLS_SCHED_ARRIVAL_TRACE_H_
#define REPRISE_TOOLS_SCHED_ARRIVAL_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace reprise::tools {

struct TracedRequest {
  uint64_t arrival_ns = 0;  // since the start of the trace
  uint32_t prompt_tokens = 0;
  uint32_t new_tokens = 0;
  int32_t priority = 0;  // higher ones go first
};

// Sorted by arrival, of equals in the file's order. Errors: NotFound names a file that cannot be
// read; InvalidArgument the line and what in it is wrong, got, allowed; a file without requests.
absl::StatusOr<std::vector<TracedRequest>> ReadArrivalTrace(const std::string& path);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_SCHED_ARRIVAL_TRACE_H_
