// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/profiler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "models/decoder.h"
#include "runtime/status_macros.h"
#include "tools/profile/report_parts.h"

namespace reprise::tools {
namespace {

// Of the last profiled step, if it was one of this size.
absl::Status ReadStamps(const StepPoint& point, engine::EngineProfiler& profiler,
                        engine::StepStamps* stamps) {
  if (point.is_decode()) return profiler.ReadStamps(point.rows, stamps);
  return profiler.ReadMixedStamps(static_cast<uint32_t>(point.num_tokens()), stamps);
}

// Runs steps through graphs of exactly their size, as a stepper of StepRows.
struct UnpaddedStepper {
  engine::EngineProfiler& profiler;
  absl::Status Step(const engine::StepRequest& request, engine::StepResult* result) {
    return profiler.StepUnpadded(request, result);
  }
};

// Whether the engine has a bucket of exactly that size.
bool HasBucketOf(const engine::EngineInfo& info, const StepPoint& point) {
  const auto& buckets = point.is_decode() ? info.decode_buckets : info.mixed_buckets;
  return std::any_of(buckets.begin(), buckets.end(), [&](const graphs::CapturedBucket& captured) {
    return captured.bucket.capacity == point.size();
  });
}

// Measures one point, window by window.
class PointMeasurement {
 public:
  PointMeasurement(engine::DecodeEngine& engine, engine::EngineProfiler& profiler,
                   runtime::DeviceTelemetry* telemetry, StepRows& rows,
                   const MeasuredSteps& measured, PointProfile& profile)
      : engine_(engine),
        profiler_(profiler),
        telemetry_(telemetry),
        rows_(rows),
        measured_(measured),
        profile_(profile),
        point_(profile.point()),
        window_(WindowOf(point_)),
        leaves_(engine.attention_tree().batch_leaves) {}

  absl::Status Trace(uint32_t steps, KernelTracer& tracer) {
    const std::vector<std::string> names = profile_.kernels.LaunchKernels();
    for (uint32_t done = 0; done < steps; done += window_) {
      const uint32_t count = std::min(window_, steps - done);
      REPRISE_RETURN_IF_ERROR(tracer.Start());
      const absl::Status run = Window(count, engine_, [this](const engine::StepResult& result) {
        AddTimes(result.ledger, profile_.traced);
        return ReadStamps(point_, profiler_, &stamps_);  // as after a plain step; all is done then
      });
      const absl::StatusOr<std::vector<TracedKernel>> kernels = tracer.Stop();
      REPRISE_RETURN_IF_ERROR(run);
      REPRISE_RETURN_IF_ERROR(kernels.status());
      REPRISE_RETURN_IF_ERROR(profile_.trace.Add(*kernels, names, count));
      REPRISE_RETURN_IF_ERROR(measured_(count));
    }
    return absl::OkStatus();
  }

  absl::Status WarmUp(uint32_t steps) {
    for (uint32_t done = 0; done < steps; done += window_)
      REPRISE_RETURN_IF_ERROR(Window(std::min(window_, steps - done), engine_,
                                     [](const engine::StepResult&) { return absl::OkStatus(); }));
    return absl::OkStatus();
  }

  // `unpadded`: also without padding.
  absl::Status Measure(uint32_t iterations, bool unpadded) {
    for (uint32_t done = 0; done < iterations; done += window_) {
      const uint32_t steps = std::min(window_, iterations - done);
      REPRISE_RETURN_IF_ERROR(Window(
          steps, engine_, [this](const engine::StepResult& result) { return AddPlain(result); }));
      ReadTelemetry();
      REPRISE_RETURN_IF_ERROR(Window(steps, profiler_, [this](const engine::StepResult& result) {
        return AddStamped(result);
      }));
      if (unpadded) {
        UnpaddedStepper stepper{profiler_};
        REPRISE_RETURN_IF_ERROR(Window(steps, stepper, [this](const engine::StepResult& result) {
          AddTimes(result.ledger, profile_.unpadded);
          return ReadStamps(point_, profiler_, &stamps_);  // as after a plain step
        }));
      }
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
    REPRISE_RETURN_IF_ERROR(
        rows_.AddAll(point_.context - std::min(steps, point_.context), &result_));
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
    AddContexts(result);
    profile_.graph = std::string(result.report.graph);
    profile_.attention_leaf = leaves_.at(result.report.attention_leaf);
    profile_.padding_rows = result.report.padding_rows;
    profile_.padding_tokens = result.report.padding_tokens;
    // Stale ones, read so that the pause before the next step is that of a stamped one.
    return ReadStamps(point_, profiler_, &stamps_);
  }

  // Rows of one context are alike.
  void AddContexts(const engine::StepResult& result) {
    const size_t count = point_.is_decode() && point_.shortest == 0 ? 1 : result.rows.size();
    for (size_t i = 0; i < count; ++i) {
      const uint32_t context = result.rows[i].context_length;
      context_ += context / static_cast<double>(count);
      attended_ += engine_.info().model.MeanVisible(context) / static_cast<double>(count);
    }
  }

  absl::Status AddStamped(const engine::StepResult& result) {
    AddTimes(result.ledger, profile_.profiled);
    REPRISE_RETURN_IF_ERROR(ReadStamps(point_, profiler_, &stamps_));
    profile_.num_profiled_kernels = stamps_.num_kernel_nodes;
    return profile_.kernels.Add(stamps_);
  }

  void ReadTelemetry() {
    if (telemetry_ == nullptr) return;
    profile_.Add(telemetry_->Read());
  }

  engine::DecodeEngine& engine_;
  engine::EngineProfiler& profiler_;
  runtime::DeviceTelemetry* telemetry_;
  StepRows& rows_;
  const MeasuredSteps& measured_;
  PointProfile& profile_;
  const StepPoint point_;
  Samples replay_ns_;  // of this round's plain steps
  const uint32_t window_;
  // Tokens, over all plain steps: in the rows' KV, and of them within the model's window.
  double context_ = 0;
  double attended_ = 0;
  engine::StepResult result_;
  const std::vector<std::string> leaves_;
  engine::StepStamps stamps_;
};

// PointProfile::attended_pairs. `attended`: its mean_attended.
double AttendedPairs(const models::ModelSpec& model, const StepPoint& point, double attended) {
  if (point.is_decode()) return attended * point.rows;
  // A prompt's row counts in the mean with what its last token attends over.
  double pairs = attended * static_cast<double>(point.num_rows());
  for (const uint32_t tokens : point.prompts) {
    pairs -= model.MeanVisible(tokens);
    for (uint32_t context = 1; context <= tokens; ++context) pairs += model.MeanVisible(context);
  }
  return pairs;
}

int NumKernelsOf(const engine::EngineInfo& info, const std::string& graph) {
  for (const auto* buckets : {&info.decode_buckets, &info.mixed_buckets}) {
    for (const graphs::CapturedBucket& bucket : *buckets)
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

uint32_t NumTracedSteps(const ProfileOptions& options) {
  return std::min(kTracedSteps, options.iterations);
}

uint32_t WindowOf(const StepPoint& point) {
  return point.rows == 0 ? kWindowSteps : std::min(kWindowSteps, point.shortest_context() - 1);
}

std::vector<StepPoint> PointsOf(const ProfileOptions& options) {
  std::vector<StepPoint> points;
  for (const uint32_t rows : options.rows)
    for (const uint32_t context : options.contexts)
      points.push_back({.rows = rows, .context = context});
  for (const StepPoint& point : options.points) {
    if (std::find(points.begin(), points.end(), point) == points.end()) points.push_back(point);
  }
  return points;
}

void PointProfile::Add(const runtime::TelemetrySample& sample) {
  if (sample.sm_clock_mhz) sm_clock_mhz.Add(*sample.sm_clock_mhz);
  if (sample.memory_clock_mhz) memory_clock_mhz.Add(*sample.memory_clock_mhz);
  if (sample.power_w) power_w.Add(*sample.power_w);
}

double PointProfile::Skew() const {
  const double whole = plain.replay_ns.Percentile(50);
  return Share(profiled.replay_ns.Percentile(50) - whole, whole);
}

double PointProfile::DeviceSkew() const {
  const double whole = plain.device_ns.Percentile(50);
  return Share(profiled.device_ns.Percentile(50) - whole, whole);
}

double PointProfile::TracedSkew() const {
  const double whole = plain.replay_ns.Percentile(50);
  return Share(traced.replay_ns.Percentile(50) - whole, whole);
}

double PointProfile::PaddingReplayNs() const {
  return plain.replay_ns.Percentile(50) - unpadded.replay_ns.Percentile(50);
}

double PointProfile::PaddingDeviceNs() const {
  return plain.device_ns.Percentile(50) - unpadded.device_ns.Percentile(50);
}

std::optional<double> PointProfile::EnergyJ() const {
  if (power_w.empty()) return std::nullopt;
  return power_w.Mean() * plain.replay_ns.Percentile(50) * 1e-9;
}

double PointProfile::BytesPerSecond() const {
  return Share(static_cast<double>(bytes.total()) * 1e9, plain.device_ns.Percentile(50));
}

std::optional<double> PointProfile::Spread() const {
  if (round_replay_ns.count() < 2) return std::nullopt;
  return Share(round_replay_ns.Max() - round_replay_ns.Min(), round_replay_ns.Percentile(50));
}

absl::Status CountWork(const models::ModelSpec& spec, runtime::DType dtype, runtime::DType kv_dtype,
                       PointProfile* profile) {
  const StepPoint point = profile->point();
  // A step with prompts moves what a decode step of as many rows as it has tokens would, but for
  // KV, which is read for its rows, and what they carry beside it.
  const auto tokens = static_cast<double>(point.num_tokens());
  const double attended = profile->mean_attended * static_cast<double>(point.num_rows()) / tokens;
  REPRISE_ASSIGN_OR_RETURN(
      profile->bytes, models::BytesOfStep(spec, dtype, kv_dtype, point.row_counts(), attended));
  profile->attended_pairs = AttendedPairs(spec, point, profile->mean_attended);
  return absl::OkStatus();
}

absl::Status Profiler::Prepare(const ProfileOptions& options) {
  std::vector<uint32_t> rows, tokens;
  for (const StepPoint& point : PointsOf(options)) {
    if (point.is_decode()) {
      rows.push_back(point.rows);
    } else {
      tokens.push_back(static_cast<uint32_t>(point.num_tokens()));
    }
  }
  REPRISE_RETURN_IF_ERROR(engine_profiler_.Capture(rows, tokens));
  if (!options.padding) return absl::OkStatus();
  rows.clear();
  tokens.clear();
  unpadded_.clear();
  for (const StepPoint& point : PointsOf(options)) {
    if (HasBucketOf(engine_.info(), point)) continue;
    (point.is_decode() ? rows : tokens).push_back(point.size());
    unpadded_.push_back(point);
  }
  return unpadded_.empty() ? absl::OkStatus() : engine_profiler_.CaptureUnpadded(rows, tokens);
}

absl::StatusOr<std::vector<graphs::ProfiledLaunch>> Profiler::KernelsOf(const StepPoint& point) {
  engine::StepStamps stamps;
  REPRISE_RETURN_IF_ERROR(ReadStamps(point, engine_profiler_, &stamps));
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
  const StepPoint point = next.point();
  StepRows rows(engine_, point);
  REPRISE_RETURN_IF_ERROR(rows.Allocate());
  PointMeasurement measurement(engine_, engine_profiler_, telemetry_, rows, measured, next);
  REPRISE_RETURN_IF_ERROR(measurement.WarmUp(options.warmup));
  const bool unpadded = std::find(unpadded_.begin(), unpadded_.end(), point) != unpadded_.end();
  REPRISE_RETURN_IF_ERROR(measurement.Measure(StepsOfRound(options, round), unpadded));
  next.num_kernels = NumKernelsOf(engine_.info(), next.graph);
  const engine::EngineInfo& info = engine_.info();
  REPRISE_RETURN_IF_ERROR(CountWork(info.model, info.dtype, info.kv_dtype, &next));
  *profile = std::move(next);
  return absl::OkStatus();
}

absl::Status Profiler::Trace(const ProfileOptions& options, KernelTracer* tracer,
                             const MeasuredSteps& measured, PointProfile* profile) {
  PointProfile next = *profile;
  StepRows rows(engine_, next.point());
  REPRISE_RETURN_IF_ERROR(rows.Allocate());
  PointMeasurement measurement(engine_, engine_profiler_, telemetry_, rows, measured, next);
  REPRISE_RETURN_IF_ERROR(measurement.WarmUp(options.warmup));
  REPRISE_RETURN_IF_ERROR(measurement.Trace(NumTracedSteps(options), *tracer));
  *profile = std::move(next);
  return absl::OkStatus();
}

}  // namespace reprise::tools
