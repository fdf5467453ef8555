// SPDX-License-Identifier: Apache-2.0
// StepBench: times whole decode steps of an engine, one graph launch each: one at a time, and back
// to back for a while. Knows no command line and prints nothing. docs/bench_step.md has the method.
#ifndef REPRISE_TOOLS_BENCH_STEP_BENCH_H_
#define REPRISE_TOOLS_BENCH_STEP_BENCH_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/decode_engine.h"
#include "models/step_bytes.h"
#include "runtime/device_telemetry.h"
#include "tools/bench/replays.h"
#include "tools/profile/step_points.h"
#include "tools/samples.h"

namespace reprise::tools {

// "1@512,8@4k": rows at a context. Errors: InvalidArgument with what, got, allowed; on a cell that
// comes twice too.
absl::StatusOr<std::vector<StepPoint>> ParseStepCells(std::string_view text);
// 1, 2, 8, 32, 64 and 128 rows at 512 tokens, and one at 4,096 and at 16,384.
std::vector<StepPoint> StandardStepCells();

// How the rows of every step sample.
struct SamplingKind {
  std::string_view name;
  std::string_view description;
  engine::SamplingParams params;
};
std::span<const SamplingKind> SamplingKinds();
// "top-p". Errors: InvalidArgument with what, got, a name that is near, allowed.
absl::StatusOr<const SamplingKind*> ParseSamplingKind(std::string_view text);

struct StepBenchOptions {
  uint32_t rounds = 3;    // over all cells, one cell after the other
  uint32_t replays = 32;  // measured steps of every cell, in every round
  uint32_t warmup = 16;   // steps before them
  const SamplingKind* sampling = &SamplingKinds()[0];
};

// Tokens of the rows' contexts, over some steps.
struct ContextSums {
  uint64_t steps = 0;
  double context = 0;   // in a row's KV
  double attended = 0;  // of them, those that layers see, in the mean of all layers

  double MeanContext() const { return steps > 0 ? context / static_cast<double>(steps) : 0.0; }
  double MeanAttended() const { return steps > 0 ? attended / static_cast<double>(steps) : 0.0; }
};

// Steps back to back for a while.
struct SustainedSteps {
  double seconds = 0;
  ContextSums contexts = {};
  models::StepBytes bytes = {};  // of a step, by the mean context
  // Read while the device was busy; empty where the platform does not report it.
  Samples sm_clock_mhz = {}, memory_clock_mhz = {}, power_w = {};

  double StepNs() const;
  double TokensPerSecond(uint32_t rows) const;
  // Joules; unset without power.
  std::optional<double> EnergyPerToken(uint32_t rows) const;
};

// What one cell came to.
struct StepCell {
  StepPoint cell = {};
  std::string graph = {};
  uint32_t padding_rows = 0;
  int num_kernels = 0;
  Samples device_ns =
      {};  // by step, on the device's clock: first kernel's start to the publishing one
  Samples wall_ns = {};    // by step, on the host: Submit entered to the result seen
  Samples launch_ns = {};  // by step, on the host: the graph launch
  Samples round_device_ns = {}, round_wall_ns = {};  // by round: medians
  ContextSums contexts = {};
  models::StepBytes bytes = {};  // of a step, by the mean context
  std::optional<SustainedSteps> sustained = {};
};

// What a step has to read by a bandwidth: weights and KV, nanoseconds. 0 without one.
double FloorNs(const models::StepBytes& bytes, double read_bytes_per_second);

class StepBench {
 public:
  // `engine`: made with a random KV cache; must outlive the bench, as `telemetry` must, nullptr
  // where there is none.
  StepBench(engine::DecodeEngine* engine, runtime::DeviceTelemetry* telemetry,
            const StepBenchOptions& options)
      : engine_(*engine), telemetry_(telemetry), options_(options) {}

  const StepBenchOptions& options() const { return options_; }

  // Adds a round to the cell that `times` names. After an error `times` is as it was. Errors: the
  // engine's; Internal when a row has another context than it should; those of `measured`.
  absl::Status Measure(const MeasuredReplays& measured, StepCell* times);
  // `measured` is told of 0 replays. Errors: as above.
  absl::Status Sustain(double seconds, const MeasuredReplays& measured, StepCell* times);

 private:
  absl::Status AddContext(const engine::StepResult& result, uint32_t expected,
                          ContextSums* contexts) const;
  absl::StatusOr<models::StepBytes> BytesOf(const StepPoint& cell,
                                            const ContextSums& contexts) const;

  engine::DecodeEngine& engine_;
  runtime::DeviceTelemetry* const telemetry_;
  const StepBenchOptions options_;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_BENCH_STEP_BENCH_H_
