// SPDX-License-Identifier: Apache-2.0
// What the two forms of `reprise profile` have in common, an engine in this process
// (cli_profile.cc) and a server (live_profile.h): the options, the rounds, and the report.
#ifndef REPRISE_TOOLS_PROFILE_RUN_H_
#define REPRISE_TOOLS_PROFILE_RUN_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graphs/profiled_graphs.h"
#include "nlohmann/json.hpp"
#include "tools/advise/step_sample.h"
#include "tools/cli.h"
#include "tools/connection.h"
#include "tools/console.h"
#include "tools/engine_flags.h"
#include "tools/profile/assertion.h"
#include "tools/profile/export_flags.h"
#include "tools/profile/profiler.h"
#include "tools/profile/report.h"
#include "tools/signals.h"

namespace reprise::tools {

// What --cupti says beside the name of a file.
inline constexpr char kAnyCupti[] = "auto", kNoCupti[] = "off";

struct ProfileFlags {
  EngineFlags engine;
  ConnectionOptions connection;  // of a server
  std::chrono::nanoseconds wait = std::chrono::seconds(5);
  ProfileOptions profile;
  uint64_t bandwidth_bytes = 0;  // 0: by device
  std::string cupti = kAnyCupti;
  std::vector<Assertion> assertions;
  std::vector<std::string> recorded_files;
  uint32_t recorded_points = 8;
  std::vector<SampledStep> recorded;  // what these came to
  std::string json_file;
  ExportFlags exports;

  // Whether the command fails without traces of kernels.
  bool must_trace() const {
    return (cupti != kAnyCupti && cupti != kNoCupti) || NeedsTraces(assertions);
  }
};

// Makes `steps` the points of the recordings, beside those that were asked for.
void SetRecorded(std::vector<SampledStep> steps, ProfileFlags* flags);
// Before anything is loaded or connected to: bounds name points that are measured, files can be
// written. Rounds become at most the iterations. Errors: usage; those of the files.
absl::Status PrepareProfile(const Invocation& invocation, ProfileFlags* flags);

// Before anything is measured, once the graphs are captured: whether every bound is of a figure, or
// of a kernel that a point of its has. `launches_of`: of a point. Errors: usage, with the names
// that there are; those of `launches_of`.
using LaunchesOfFn =
    std::function<absl::StatusOr<std::vector<graphs::ProfiledLaunch>>(const StepPoint& point)>;
absl::Status CheckKernelsOf(const ProfileFlags& flags, bool is_server,
                            const LaunchesOfFn& launches_of);

// Measures a point in a round, as Profiler::Measure does.
using MeasurePointFn =
    std::function<absl::Status(uint32_t round, const MeasuredSteps& measured, PointProfile* point)>;

// Traces a point that has been measured, as Profiler::Trace does.
using TracePointFn =
    std::function<absl::Status(const MeasuredSteps& measured, PointProfile* point)>;

struct ProfileRun {
  const ProfileFlags& flags;
  const ProfileContext& context;
  const Invocation& invocation;
  // Of the JSON: what was measured, and what was not, by key.
  nlohmann::json facts;
  uint32_t kinds = 2;  // of measured steps: plain and stamped ones, or plain ones alone
  MeasurePointFn measure;
  TracePointFn trace = {};  // empty: nothing is traced
};

// Every point in every round, then once more traced, then tables, files and bounds. Where tracing
// fails that nobody asked for by name, a warning and the JSON say so. What ends it early, such as a
// signal or a server that is gone, leaves those of the rounds that are complete. Errors: that;
// BeyondBoundError where a bound does not hold; those of the files.
absl::Status RunProfile(const ProfileRun& run, Interrupt* interrupt);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_PROFILE_RUN_H_
