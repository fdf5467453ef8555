// SPDX-License-Identifier: Apache-2.0
// ServerProfiler: measures steps of given sizes through a server's session, plain and, where the
// server lets it, stamped by turns: what profiler.h is to an engine in this process. Knows no
// command line and no gRPC.
#ifndef REPRISE_TOOLS_PROFILE_SERVER_PROFILER_H_
#define REPRISE_TOOLS_PROFILE_SERVER_PROFILER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graphs/profiled_graphs.h"
#include "models/config/model_spec.h"
#include "runtime/device_telemetry.h"
#include "runtime/dtype.h"
#include "tools/profile/profiler.h"
#include "tools/profile/server_rows.h"

namespace reprise::tools {

// What a server says of itself once, and results refer to.
struct ServerNames {
  std::map<std::string, int, std::less<>> num_kernels;  // by graph
  uint64_t attention_tree = 0;                          // the version that the leaves are of
  std::vector<std::string> batch_leaves;
};

// What a server has made ready for stamped steps of the session, and tells beside them.
struct ServerStamps {
  struct Graph {
    int num_kernel_nodes = 0;  // stamps among them
    uint32_t capacity = 0;     // rows of a decode graph, query tokens of another
    bool decode = false;
    std::vector<graphs::ProfiledLaunch> launches;
  };
  std::map<std::string, Graph, std::less<>> graphs;  // by name
  // Sizes of points that it has graphs without padding for.
  std::set<uint32_t> unpadded_rows, unpadded_tokens;
  // The model's sizes, and what its numbers are kept as.
  models::ModelSpec spec;
  runtime::DType dtype = runtime::DType::kBf16, kv_dtype = runtime::DType::kBf16;
  // Clocks and power now; empty: the server tells none.
  std::function<absl::StatusOr<runtime::TelemetrySample>()> read_telemetry = {};

  // Of the graph that stamped steps of the point replay. Errors: NotFound.
  absl::StatusOr<std::vector<graphs::ProfiledLaunch>> LaunchesOf(const StepPoint& point) const;
  bool IsUnpadded(const StepPoint& point) const;
};

class ServerProfiler {
 public:
  // `stamps`: nullptr: steps cannot be stamped. It and `session` must outlive the profiler.
  ServerProfiler(StepSession* session, ServerNames names, const ServerStamps* stamps = nullptr)
      : session_(*session), names_(std::move(names)), stamps_(stamps) {}

  // Adds a round to the point that `profile` names: prefills, measures plain steps in windows, and
  // stamped ones by turns where there are any, as Profiler::Measure does, and gives rows and blocks
  // back. After an error `profile` is as it was,
  // and the session may still have rows. Errors: those of the session; those of `measured`, which
  // is also told 0 steps now and then; Internal where a step ran other rows than it was to.
  absl::Status Measure(const ProfileOptions& options, uint32_t round, const MeasuredSteps& measured,
                       PointProfile* profile);

 private:
  StepSession& session_;
  const ServerNames names_;
  const ServerStamps* const stamps_;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_PROFILE_SERVER_PROFILER_H_
