// SPDX-License-Identifier: Apache-2.0
// Profiler: measures steps of given sizes, plain and stamped by turns: rows that decode at a
// context, prompts, both. Knows no command line and prints nothing.
#ifndef REPRISE_TOOLS_PROFILE_PROFILER_H_
#define REPRISE_TOOLS_PROFILE_PROFILER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/decode_engine.h"
#include "engine/engine_profiler.h"
#include "models/config/model_spec.h"
#include "models/step_bytes.h"
#include "runtime/device_telemetry.h"
#include "runtime/dtype.h"
#include "tools/profile/kernel_times.h"
#include "tools/profile/kernel_trace.h"
#include "tools/profile/kernel_tracer.h"
#include "tools/profile/step_points.h"
#include "tools/profile/step_rows.h"
#include "tools/samples.h"

namespace reprise::tools {

struct ProfileOptions {
  std::vector<uint32_t> rows = {1, 8, 64};
  std::vector<uint32_t> contexts = {128, 1024};  // tokens in each row's KV
  std::vector<StepPoint> points = {};            // beside these
  uint32_t iterations = 100;                     // measured steps, plain and stamped each
  uint32_t warmup = 16;  // plain steps before them, of every point and round
  // Parts that the measured steps come in, minutes apart where there are many points: how far their
  // medians differ says how far the figures can be trusted. At most `iterations`.
  uint32_t rounds = 5;
  // Also through graphs of exactly each point's size, where its bucket is larger.
  bool padding = false;
};

// Measured steps of one point in one round, of either kind. round < rounds.
uint32_t StepsOfRound(const ProfileOptions& options, uint32_t round);

// Rounds whose medians are further apart than this, as a share of their median, earn a warning.
inline constexpr double kTrustedSpread = 0.05;

// Steps of a window of this point: kWindowSteps, or what its shortest context has room for.
uint32_t WindowOf(const StepPoint& point);

// Every number of rows at every context, and the points that are not among them.
std::vector<StepPoint> PointsOf(const ProfileOptions& options);

// Host times of plain steps, or of stamped ones.
struct StepTimes {
  Samples replay_ns;  // host: the launch call's begin to the result seen
  Samples device_ns;  // device clock: the first kernel's start to the publishing one
  Samples launch_ns;  // host: the launch call
};

// What one point came to.
struct PointProfile {
  uint32_t rows = 0;
  uint32_t context = 0;
  std::vector<uint32_t> prompts;
  uint32_t shortest = 0;  // as StepPoint has these
  std::string graph;
  std::string attention_leaf;   // the name of the attention tree's, that the last step came to
  uint32_t padding_rows = 0;    // of a decode graph
  uint32_t padding_tokens = 0;  // of either kind
  int num_kernels = 0;
  int num_profiled_kernels = 0;  // of the profiled graph, stamps among them
  StepTimes plain;
  StepTimes profiled;
  // Through a graph of exactly so many rows or tokens; empty where that was not asked for, or the
  // bucket is of that size.
  StepTimes unpadded;
  // Plain steps whose kernels were traced, behind all others; empty where they were not.
  StepTimes traced;
  KernelTrace trace;
  // Of the plain steps, in the mean of their rows: tokens in a row's KV, and tokens that it
  // attended over, in the mean of all layers, which are the last of them where layers have a
  // sliding window.
  double mean_context = 0;
  double mean_attended = 0;
  models::StepBytes bytes;  // at mean_attended
  // Of a plain step: pairs of a query token and a token that it attends over, in the mean of all
  // layers.
  double attended_pairs = 0;
  KernelTimes kernels;
  Samples round_replay_ns;  // by round: the median of its plain steps
  // By round: its steps of either kind. Samples of all rounds lie one after the other.
  std::vector<uint32_t> round_steps;
  // Read at the end of every window; empty where the platform does not report it.
  Samples sm_clock_mhz, memory_clock_mhz, power_w;
  // Of a server's steps (server_profiler.h); empty where the engine is in this process.
  Samples wall_ns;                // client: the step handed over to its result in hand
  Samples overhead_ns;            // of each step, wall less device
  uint32_t num_shared_steps = 0;  // of the plain ones: those that ran rows of other sessions too

  bool is_of_server() const { return !wall_ns.empty(); }
  // Whether there are stamped steps, and with them kernels and all that is counted of them: always
  // of an engine in this process, of a server where it lets the client.
  bool has_stamps() const { return !profiled.replay_ns.empty(); }

  StepPoint point() const {
    return {.rows = rows, .context = context, .prompts = prompts, .shortest = shortest};
  }
  // What was read at the end of a window.
  void Add(const runtime::TelemetrySample& sample);
  // (profiled - plain) / plain, of medians.
  double Skew() const;
  double DeviceSkew() const;
  // (traced - plain) / plain, likewise of replay. REQUIRES: !trace.empty().
  double TracedSkew() const;
  // Joules of a plain step: the mean power times the median of replay; unset where the platform
  // does not tell.
  std::optional<double> EnergyJ() const;
  // Bytes per second: the step's bytes by the median of its device time.
  double BytesPerSecond() const;
  bool has_unpadded() const { return !unpadded.replay_ns.empty(); }
  // What padding costs: plain less unpadded, of medians. REQUIRES: has_unpadded().
  double PaddingReplayNs() const;
  double PaddingDeviceNs() const;
  // (largest - smallest) / median of round_replay_ns; unset with fewer than two rounds.
  std::optional<double> Spread() const;
};

// Bytes and pairs of a point that has been measured, from its mean_attended. Errors:
// InvalidArgument for a spec of no model.
absl::Status CountWork(const models::ModelSpec& spec, runtime::DType dtype, runtime::DType kv_dtype,
                       PointProfile* profile);

// Steps of a point that are traced, at most.
inline constexpr uint32_t kTracedSteps = 32;
uint32_t NumTracedSteps(const ProfileOptions& options);

// Told how many steps were measured since it was last told; an error ends the measurement.
using MeasuredSteps = std::function<absl::Status(uint32_t)>;

class Profiler {
 public:
  // `telemetry`: nullptr where there is none. Both must outlive the profiler.
  Profiler(engine::DecodeEngine* engine, runtime::DeviceTelemetry* telemetry)
      : engine_(*engine), engine_profiler_(*engine), telemetry_(telemetry) {}

  // Captures the profiled graphs of all points, and those without padding where they are asked for.
  // Errors: those of EngineProfiler.
  absl::Status Prepare(const ProfileOptions& options);
  // The kernels of a step of that size, in the order of their first launch. After Prepare.
  // Errors: the engine's.
  absl::StatusOr<std::vector<graphs::ProfiledLaunch>> KernelsOf(const StepPoint& point);
  // Adds a round to the point that `profile` names, in a session of its
  // own. After an error `profile` is as it was. Errors: the engine's, those of `measured`.
  absl::Status Measure(const ProfileOptions& options, uint32_t round, const MeasuredSteps& measured,
                       PointProfile* profile);
  // Plain steps of a point that has been measured, kernel by kernel: NumTracedSteps of them. What a
  // tracer costs may stay on, so this comes behind all rounds of all points. After an error
  // `profile` is as it was. Errors: the engine's, those of `tracer` and of `measured`; Internal
  // where the tracer tells other kernels than the graph has.
  absl::Status Trace(const ProfileOptions& options, KernelTracer* tracer,
                     const MeasuredSteps& measured, PointProfile* profile);

 private:
  engine::DecodeEngine& engine_;
  engine::EngineProfiler engine_profiler_;
  runtime::DeviceTelemetry* telemetry_;
  std::vector<StepPoint> unpadded_;  // points that have graphs of their size
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_PROFILE_PROFILER_H_
