// SPDX-License-Identifier: Apache-2.0
// ServerProfiler: measures steps of given sizes through a server's session: what profiler.h is to
// an engine in this process, as far as a server tells. Knows no command line and no gRPC.
#ifndef REPRISE_TOOLS_PROFILE_SERVER_PROFILER_H_
#define REPRISE_TOOLS_PROFILE_SERVER_PROFILER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/profile/profiler.h"
#include "tools/profile/server_rows.h"

namespace reprise::tools {

// What a server says of itself once, and results refer to.
struct ServerNames {
  std::map<std::string, int, std::less<>> num_kernels;  // by graph
  uint64_t attention_tree = 0;                          // the version that the leaves are of
  std::vector<std::string> batch_leaves;
};

class ServerProfiler {
 public:
  // `session` must outlive the profiler.
  ServerProfiler(StepSession* session, ServerNames names)
      : session_(*session), names_(std::move(names)) {}

  // Adds a round of plain steps to the point that `profile` names: prefills, measures in windows as
  // Profiler::Measure does, and gives rows and blocks back. After an error `profile` is as it was,
  // and the session may still have rows. Errors: those of the session; those of `measured`, which
  // is also told 0 steps now and then; Internal where a step ran other rows than it was to.
  absl::Status Measure(const ProfileOptions& options, uint32_t round, const MeasuredSteps& measured,
                       PointProfile* profile);

 private:
  StepSession& session_;
  const ServerNames names_;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_PROFILE_SERVER_PROFILER_H_
