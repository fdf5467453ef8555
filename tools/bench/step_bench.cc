// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/step_bench.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "models/decoder.h"
#include "runtime/status_macros.h"
#include "tools/bench/name_list.h"
#include "tools/profile/step_rows.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

using Clock = std::chrono::steady_clock;

// Of steps back to back: contexts reach from so much shorter than the cell's, as a share of it, up
// to it. The rarer rows are added anew, the less that adds to a step.
constexpr uint32_t kSustainedShare = 8, kMostSustainedSteps = 256;

constexpr SamplingKind kSamplingKinds[] = {
    {.name = "greedy", .description = "the likeliest token", .params = {}},
    {.name = "top-p",
     .description = "temperature 0.8, top-p 0.95",
     .params = {.temperature = 0.8f, .top_p = 0.95f}},
    {.name = "penalised",
     .description = "the same with a repetition penalty of 1.1, presence and frequency of 0.1",
     .params = {.temperature = 0.8f,
                .top_p = 0.95f,
                .repetition_penalty = 1.1f,
                .presence_penalty = 0.1f,
                .frequency_penalty = 0.1f}},
};

int KernelsOf(const engine::EngineInfo& info, const std::string& graph) {
  for (const graphs::CapturedBucket& bucket : info.decode_buckets)
    if (bucket.bucket.name == graph) return bucket.num_kernel_nodes;
  return 0;
}

void ReadTelemetry(runtime::DeviceTelemetry* telemetry, SustainedSteps* sustained) {
  if (telemetry == nullptr) return;
  const runtime::TelemetrySample sample = telemetry->Read();
  if (sample.sm_clock_mhz) sustained->sm_clock_mhz.Add(*sample.sm_clock_mhz);
  if (sample.memory_clock_mhz) sustained->memory_clock_mhz.Add(*sample.memory_clock_mhz);
  if (sample.power_w) sustained->power_w.Add(*sample.power_w);
}

}  // namespace

absl::StatusOr<std::vector<StepPoint>> ParseStepCells(std::string_view text) {
  std::vector<StepPoint> cells;
  const std::vector<absl::string_view> parts =
      absl::StrSplit(absl::string_view(text.data(), text.size()), ',');
  for (const absl::string_view part : parts) {
    REPRISE_ASSIGN_OR_RETURN(const StepPoint cell, ParseStepPoint({part.data(), part.size()}));
    if (!cell.is_decode() || cell.shortest != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "cell: got ", NameOf(cell), ", allowed: decode steps at one context, such as 8@512"));
    }
    if (std::find(cells.begin(), cells.end(), cell) != cells.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("cell: got \"", part, "\" twice, allowed: every cell once"));
    }
    cells.push_back(cell);
  }
  return cells;
}

std::vector<StepPoint> StandardStepCells() {
  std::vector<StepPoint> cells;
  for (const uint32_t rows : {1u, 2u, 8u, 32u, 64u, 128u}) cells.push_back({rows, 512});
  cells.push_back({1, 4096});
  cells.push_back({1, 16384});
  return cells;
}

std::span<const SamplingKind> SamplingKinds() { return kSamplingKinds; }

absl::StatusOr<const SamplingKind*> ParseSamplingKind(std::string_view text) {
  std::vector<std::string> names;
  for (const SamplingKind& kind : kSamplingKinds) names.emplace_back(kind.name);
  REPRISE_ASSIGN_OR_RETURN(const std::vector<size_t> chosen,
                           ParseNameList("sampling", text, names));
  if (chosen.size() == 1) return &kSamplingKinds[chosen[0]];
  return absl::InvalidArgumentError(
      absl::StrCat("sampling: got \"", std::string(text), "\", allowed: one kind"));
}

double FloorNs(const models::StepBytes& bytes, double read_bytes_per_second) {
  if (read_bytes_per_second <= 0) return 0.0;
  return static_cast<double>(bytes.weights + bytes.kv_read) * 1e9 / read_bytes_per_second;
}

double SustainedSteps::StepNs() const {
  return contexts.steps > 0 ? seconds * 1e9 / static_cast<double>(contexts.steps) : 0.0;
}

double SustainedSteps::TokensPerSecond(uint32_t rows) const {
  return seconds > 0 ? rows * static_cast<double>(contexts.steps) / seconds : 0.0;
}

std::optional<double> SustainedSteps::EnergyPerToken(uint32_t rows) const {
  const double rate = TokensPerSecond(rows);
  if (power_w.empty() || rate <= 0) return std::nullopt;
  return power_w.Mean() / rate;
}

absl::Status StepBench::AddContext(const engine::StepResult& result, uint32_t expected,
                                   ContextSums* contexts) const {
  for (const engine::RowOutcome& row : result.rows) {
    if (row.context_length == expected && row.sampled) continue;
    return absl::InternalError(absl::StrCat(
        "row ", row.row, " has ", row.context_length, " tokens in its KV",
        row.sampled ? "" : " and sampled nothing", ", expected ", expected, " and a sampled one"));
  }
  contexts->steps += 1;
  contexts->context += expected;
  contexts->attended += engine_.info().model.MeanVisible(expected);
  return absl::OkStatus();
}

absl::StatusOr<models::StepBytes> StepBench::BytesOf(const StepPoint& cell,
                                                     const ContextSums& contexts) const {
  const engine::EngineInfo& info = engine_.info();
  return models::BytesOfStep(info.model, info.dtype, info.kv_dtype, cell.row_counts(),
                             contexts.MeanAttended());
}

absl::Status StepBench::Measure(const MeasuredReplays& measured, StepCell* times) {
  StepCell next = *times;
  const StepPoint cell = next.cell;
  StepRows rows(engine_, cell, options_.sampling->params);
  REPRISE_RETURN_IF_ERROR(rows.Allocate());
  const uint32_t window = std::min(kWindowSteps, cell.context - 1);
  engine::StepResult result;
  Samples device_ns, wall_ns;
  // One step that adds the rows and does not count, then `steps` whose contexts end at the cell's.
  const auto run_window = [&](uint32_t steps, bool counts) -> absl::Status {
    REPRISE_RETURN_IF_ERROR(rows.AddAll(cell.context - steps, &result));
    for (uint32_t i = 0; i < steps; ++i) {
      REPRISE_RETURN_IF_ERROR(rows.Continue(engine_, &result));
      if (!counts) continue;
      device_ns.Add(static_cast<double>(result.ledger.device_ns));
      wall_ns.Add(static_cast<double>(result.ledger.total_ns));
      next.launch_ns.Add(static_cast<double>(result.ledger.launch_ns));
      REPRISE_RETURN_IF_ERROR(AddContext(result, cell.context - steps + i + 1, &next.contexts));
    }
    return absl::OkStatus();
  };
  for (uint32_t done = 0; done < options_.warmup; done += window)
    REPRISE_RETURN_IF_ERROR(run_window(std::min(window, options_.warmup - done), false));
  for (uint32_t done = 0; done < options_.replays; done += window) {
    const uint32_t steps = std::min(window, options_.replays - done);
    REPRISE_RETURN_IF_ERROR(run_window(steps, true));
    REPRISE_RETURN_IF_ERROR(measured(steps));
  }
  next.device_ns.AddAll(device_ns);
  next.wall_ns.AddAll(wall_ns);
  next.round_device_ns.Add(device_ns.Percentile(50));
  next.round_wall_ns.Add(wall_ns.Percentile(50));
  next.graph = std::string(result.report.graph);
  next.padding_rows = result.report.padding_rows;
  next.num_kernels = KernelsOf(engine_.info(), next.graph);
  REPRISE_ASSIGN_OR_RETURN(next.bytes, BytesOf(cell, next.contexts));
  *times = std::move(next);
  return absl::OkStatus();
}

absl::Status StepBench::Sustain(double seconds, const MeasuredReplays& measured, StepCell* times) {
  const StepPoint cell = times->cell;
  StepRows rows(engine_, cell, options_.sampling->params);
  REPRISE_RETURN_IF_ERROR(rows.Allocate());
  const uint32_t window =
      std::min(std::clamp(cell.context / kSustainedShare, kWindowSteps, kMostSustainedSteps),
               cell.context - 1);
  const uint32_t depth = std::min(engine_.info().limits.pipeline_depth, 2u);
  SustainedSteps sustained;
  engine::StepResult result;
  // Oldest first: what was submitted and not waited for, and the context that it ends with.
  std::vector<std::pair<engine::StepTicket, uint32_t>> in_flight;
  const auto wait = [&]() -> absl::Status {
    const auto [ticket, context] = in_flight.front();
    in_flight.erase(in_flight.begin());
    REPRISE_RETURN_IF_ERROR(engine_.Wait(ticket, &result));
    return AddContext(result, context, &sustained.contexts);
  };
  // Steps are taken back, whatever ends the run: a session with steps in flight cannot be measured
  // again.
  const auto run_window = [&]() -> absl::Status {
    for (uint32_t i = 0; i <= window; ++i) {
      if (in_flight.size() == depth) REPRISE_RETURN_IF_ERROR(wait());
      const uint32_t context = cell.context - window + i;
      REPRISE_ASSIGN_OR_RETURN(const engine::StepTicket ticket,
                               i == 0 ? rows.SubmitAll(context) : rows.SubmitContinue());
      in_flight.emplace_back(ticket, context);
    }
    ReadTelemetry(telemetry_, &sustained);  // while the device is busy
    return measured(0);
  };
  const Clock::time_point start = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  absl::Status status;
  do {
    status = run_window();
  } while (status.ok() && elapsed() < seconds);
  while (!in_flight.empty()) {
    const absl::Status waited = wait();
    if (status.ok()) status = waited;
  }
  REPRISE_RETURN_IF_ERROR(status);
  sustained.seconds = elapsed();
  REPRISE_ASSIGN_OR_RETURN(sustained.bytes, BytesOf(cell, sustained.contexts));
  times->sustained = std::move(sustained);
  return absl::OkStatus();
}

}  // namespace reprise::tools
