// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/profiler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "models/decoder.h"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

double Share(double part, double whole) { return whole > 0 ? part / whole : 0.0; }

// Measures one point, window by window.
class PointMeasurement {
 public:
  PointMeasurement(engine::DecodeEngine& engine, engine::EngineProfiler& profiler,
                   Telemetry* telemetry, DecodeRows& rows, const MeasuredSteps& measured,
                   PointProfile& profile)
      : engine_(engine),
        profiler_(profiler),
        telemetry_(telemetry),
        rows_(rows),
        measured_(measured),
        profile_(profile),
        window_(std::min(kWindowSteps, profile.context - 1)),
        leaves_(engine.attention_tree().batch_leaves) {}

  absl::Status WarmUp(uint32_t steps) {
    for (uint32_t done = 0; done < steps; done += window_)
      REPRISE_RETURN_IF_ERROR(Window(std::min(window_, steps - done), engine_,
                                     [](const engine::StepResult&) { return absl::OkStatus(); }));
    return absl::OkStatus();
  }

  absl::Status Measure(uint32_t iterations) {
    for (uint32_t done = 0; done < iterations; done += window_) {
      const uint32_t steps = std::min(window_, iterations - done);
      REPRISE_RETURN_IF_ERROR(Window(
          steps, engine_, [this](const engine::StepResult& result) { return AddPlain(result); }));
      ReadTelemetry();
      REPRISE_RETURN_IF_ERROR(Window(steps, profiler_, [this](const engine::StepResult& result) {
        return AddStamped(result);
      }));
      REPRISE_RETURN_IF_ERROR(measured_(2 * steps));
    }
    profile_.round_replay_ns.Add(replay_ns_.Percentile(50));
    profile_.round_steps.push_back(iterations);
    const auto all = static_cast<double>(profile_.plain.replay_ns.count());
    const double before = all - iterations;
    profile_.mean_context = (profile_.mean_context * before + context_) / all;
    profile_.mean_attended = (profile_.mean_attended * before + attended_) / all;
    return absl::OkStatus();
  }

 private:
  // One unmeasured step that adds the rows, then `steps` whose contexts end at the point's.
  template <typename Stepper, typename Take>
  absl::Status Window(uint32_t steps, Stepper& stepper, Take take) {
    REPRISE_RETURN_IF_ERROR(rows_.AddAll(profile_.context - steps, &result_));
    for (uint32_t i = 0; i < steps; ++i) {
      REPRISE_RETURN_IF_ERROR(rows_.Continue(stepper, &result_));
      REPRISE_RETURN_IF_ERROR(take(result_));
    }
    return absl::OkStatus();
  }

  static double ReplayNs(const engine::StepLedger& ledger) {
    return static_cast<double>(ledger.total_ns - ledger.validate_ns - ledger.ring_ns);
  }

  static void AddTimes(const engine::StepLedger& ledger, StepTimes& times) {
    times.replay_ns.Add(ReplayNs(ledger));
    times.device_ns.Add(static_cast<double>(ledger.device_ns));
    times.launch_ns.Add(static_cast<double>(ledger.launch_ns));
  }

  absl::Status AddPlain(const engine::StepResult& result) {
    AddTimes(result.ledger, profile_.plain);
    replay_ns_.Add(ReplayNs(result.ledger));
    const uint32_t context = result.rows.front().context_length;
    context_ += context;
    attended_ += engine_.info().model.MeanVisible(context);
    profile_.graph = std::string(result.report.graph);
    profile_.attention_leaf = leaves_.at(result.report.attention_leaf);
    profile_.padding_rows = result.report.padding_rows;
    // Stale ones, read so that the pause before the next step is that of a stamped one.
    return profiler_.ReadStamps(profile_.rows, &stamps_);
  }

  absl::Status AddStamped(const engine::StepResult& result) {
    AddTimes(result.ledger, profile_.profiled);
    REPRISE_RETURN_IF_ERROR(profiler_.ReadStamps(profile_.rows, &stamps_));
    profile_.num_profiled_kernels = stamps_.num_kernel_nodes;
    return profile_.kernels.Add(stamps_);
  }

  void ReadTelemetry() {
    if (telemetry_ == nullptr) return;
    const TelemetrySample sample = telemetry_->Read();
    if (sample.sm_clock_mhz) profile_.sm_clock_mhz.Add(*sample.sm_clock_mhz);
    if (sample.memory_clock_mhz) profile_.memory_clock_mhz.Add(*sample.memory_clock_mhz);
    if (sample.power_w) profile_.power_w.Add(*sample.power_w);
  }

  engine::DecodeEngine& engine_;
  engine::EngineProfiler& profiler_;
  Telemetry* telemetry_;
  DecodeRows& rows_;
  const MeasuredSteps& measured_;
  PointProfile& profile_;
  Samples replay_ns_;  // of this round's plain steps
  const uint32_t window_;
  // Tokens, over all plain steps: in the rows' KV, and of them within the model's window.
  double context_ = 0;
  double attended_ = 0;
  engine::StepResult result_;
  const std::vector<std::string> leaves_;
  engine::StepStamps stamps_;
};

int NumKernelsOf(const engine::EngineInfo& info, const std::string& graph) {
  for (const graphs::CapturedBucket& bucket : info.decode_buckets) {
    if (bucket.bucket.name == graph) return bucket.num_kernel_nodes;
  }
  return 0;
}

}  // namespace

uint32_t StepsOfRound(const ProfileOptions& options, uint32_t round) {
  const uint64_t steps = options.iterations;
  return static_cast<uint32_t>(steps * (round + 1) / options.rounds -
                               steps * round / options.rounds);
}

std::vector<DecodePoint> PointsOf(const ProfileOptions& options) {
  std::vector<DecodePoint> points;
  for (const uint32_t rows : options.rows)
    for (const uint32_t context : options.contexts) points.push_back({rows, context});
  return points;
}

double PointProfile::Skew() const {
  const double whole = plain.replay_ns.Percentile(50);
  return Share(profiled.replay_ns.Percentile(50) - whole, whole);
}

double PointProfile::DeviceSkew() const {
  const double whole = plain.device_ns.Percentile(50);
  return Share(profiled.device_ns.Percentile(50) - whole, whole);
}

double PointProfile::BytesPerSecond() const {
  return Share(static_cast<double>(bytes.total()) * 1e9, plain.device_ns.Percentile(50));
}

std::optional<double> PointProfile::Spread() const {
  if (round_replay_ns.count() < 2) return std::nullopt;
  return Share(round_replay_ns.Max() - round_replay_ns.Min(), round_replay_ns.Percentile(50));
}

absl::Status Profiler::Prepare(const ProfileOptions& options) {
  return engine_profiler_.Capture(options.rows);
}

absl::StatusOr<std::vector<graphs::ProfiledLaunch>> Profiler::KernelsOf(uint32_t rows) {
  engine::StepStamps stamps;
  REPRISE_RETURN_IF_ERROR(engine_profiler_.ReadStamps(rows, &stamps));
  std::vector<graphs::ProfiledLaunch> kernels;
  for (const graphs::ProfiledLaunch& launch : stamps.launches) {
    if (std::find(kernels.begin(), kernels.end(), launch) == kernels.end())
      kernels.push_back(launch);
  }
  return kernels;
}

absl::Status Profiler::Measure(const ProfileOptions& options, uint32_t round,
                               const MeasuredSteps& measured, PointProfile* profile) {
  PointProfile next = *profile;
  DecodeRows point(engine_, next.rows, next.context);
  REPRISE_RETURN_IF_ERROR(point.Allocate());
  PointMeasurement measurement(engine_, engine_profiler_, telemetry_, point, measured, next);
  REPRISE_RETURN_IF_ERROR(measurement.WarmUp(options.warmup));
  REPRISE_RETURN_IF_ERROR(measurement.Measure(StepsOfRound(options, round)));
  next.num_kernels = NumKernelsOf(engine_.info(), next.graph);
  REPRISE_ASSIGN_OR_RETURN(next.bytes, models::BytesOfDecodeStep(
                                           engine_.info().model, engine_.info().dtype,
                                           engine_.info().kv_dtype, next.rows, next.mean_attended));
  *profile = std::move(next);
  return absl::OkStatus();
}

}  // namespace reprise::tools
