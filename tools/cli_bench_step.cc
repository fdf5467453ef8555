// SPDX-License-Identifier: Apache-2.0
// `reprise bench step`: times whole decode steps of an engine, beside the time that reading weights
// and KV takes at the bandwidth that the same run measures.
#include <algorithm>
#include <bit>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/device_telemetry.h"
#include "runtime/status_macros.h"
#include "tools/bench/bench_flags.h"
#include "tools/bench/bench_rounds.h"
#include "tools/bench/step_bench.h"
#include "tools/bench/step_report.h"
#include "tools/cli.h"
#include "tools/console.h"
#include "tools/engine_flags.h"
#include "tools/profile/bandwidth.h"
#include "tools/profile/step_points.h"
#include "tools/record.h"
#include "tools/signals.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr char kBenchStepExamples[] =
    "Examples:\n"
    "  reprise bench step --model examples/byte-llama --cells 1@512,8@512\n"
    "  reprise bench step --device cuda --preset llama-3.1-8b --seconds 10 --json step.json --svg "
    "step.svg\n"
    "  reprise bench step --model examples/byte-llama --cells 4@256 --sampling penalised\n"
    "\n"
    "docs/bench_step.md says what each number is; docs/bench_step.schema.json describes the JSON.";

struct StepFlags {
  EngineFlags engine;
  std::vector<StepPoint> cells = StandardStepCells();
  StepBenchOptions bench;
  double sustain_seconds = 0;
  uint64_t bandwidth_bytes = 0;  // 0: by device
  OutputFlags output;
};

absl::Status MeasureRounds(const StepFlags& flags, const LoadedEngine& loaded,
                           const Interrupt& interrupt, StepBench* bench, Console* console,
                           StepContext* context, std::vector<StepCell>* cells) {
  const uint64_t bytes = flags.bandwidth_bytes != 0
                             ? flags.bandwidth_bytes
                             : DefaultBandwidthBytes(loaded.engine->info().device);
  const BenchRounds rounds{.rounds = flags.bench.rounds,
                           .units = uint64_t{flags.bench.replays} * cells->size(),
                           .unit = "steps"};
  return rounds.Measure(interrupt, console, [&](const BenchRounds::Told& told) {
    // In every round, so that a device that slows down is measured as it slows down.
    REPRISE_RETURN_IF_ERROR(told(0, absl::StrCat("bandwidth over ", FormatBytes(bytes))));
    REPRISE_ASSIGN_OR_RETURN(const Bandwidth bandwidth,
                             MeasureBandwidth(*loaded.device, bytes, kBandwidthPasses));
    context->bandwidth.AddAll(bandwidth);
    for (StepCell& cell : *cells) {
      const auto measured = [&](uint32_t steps) { return told(steps, NameOf(cell.cell)); };
      REPRISE_RETURN_IF_ERROR(bench->Measure(measured, &cell));
    }
    return absl::OkStatus();
  });
}

absl::Status SustainAll(double seconds, const Interrupt& interrupt, StepBench* bench,
                        Console* console, std::vector<StepCell>* cells) {
  for (StepCell& cell : *cells) {
    const auto measured = [&](uint32_t) {
      console->Progress(absl::StrCat("back to back for ", FormatDuration(seconds * 1e9), " each, ",
                                     NameOf(cell.cell)));
      return interrupt.status();
    };
    REPRISE_RETURN_IF_ERROR(bench->Sustain(seconds, measured, &cell));
  }
  return absl::OkStatus();
}

absl::Status Report(const StepFlags& flags, const LoadedEngine& loaded,
                    const std::vector<StepCell>& cells, const StepContext& context,
                    const absl::Status& status, const Invocation& invocation) {
  Console* console = invocation.console;
  console->Print(StepText(cells, context));
  for (const StepCell& cell : cells) {
    const std::string warning = StepWarning(cell);
    if (!warning.empty()) console->Note(absl::StrCat("reprise bench step: warning: ", warning));
  }
  nlohmann::json json = RecordOf("bench step", invocation);
  json["engine"] = EngineToJson(loaded);
  json.update(StepToJson(cells, context));
  if (!status.ok()) json["error"] = std::string(status.message());
  return WriteOutput(flags.output, json, StepChart(cells, context), console);
}

absl::Status MeasureAll(const StepFlags& flags, const LoadedEngine& loaded,
                        const Invocation& invocation, Interrupt* interrupt) {
  Console* console = invocation.console;
  auto telemetry = runtime::DeviceTelemetry::Open(loaded.engine->info().device);
  StepBench bench(loaded.engine.get(), telemetry.ok() ? telemetry->get() : nullptr, flags.bench);
  StepContext context{.info = loaded.engine->info(),
                      .options = flags.bench,
                      .telemetry = SourceOf(telemetry),
                      .sustain_seconds = flags.sustain_seconds,
                      .bandwidth = {},
                      .width = console->width()};
  console->Print(StepHeader(context));
  interrupt->Arm();
  std::vector<StepCell> cells(flags.cells.size());
  for (size_t i = 0; i < cells.size(); ++i) cells[i].cell = flags.cells[i];
  absl::Status status = MeasureRounds(flags, loaded, *interrupt, &bench, console, &context, &cells);
  if (status.ok() && flags.sustain_seconds > 0)
    status = SustainAll(flags.sustain_seconds, *interrupt, &bench, console, &cells);
  console->ClearProgress();
  std::erase_if(cells, [](const StepCell& c) { return c.round_device_ns.empty(); });
  if (cells.empty()) return status;
  const absl::Status reported = Report(flags, loaded, cells, context, status, invocation);
  return status.ok() ? reported : status;
}

// What memory was for.
absl::Status DoesNotFit(const StepFlags& flags, const absl::Status& status) {
  const uint32_t block_size = flags.engine.engine.block_size;
  const auto largest = std::max_element(
      flags.cells.begin(), flags.cells.end(), [=](const StepPoint& a, const StepPoint& b) {
        return BlocksNeeded({&a, 1}, block_size) < BlocksNeeded({&b, 1}, block_size);
      });
  return absl::ResourceExhaustedError(absl::StrCat(
      "memory: the model's weights and ", FormatBytes(flags.engine.engine.kv_cache_bytes),
      " of KV, of ", NameOf(*largest), " the most: ", status.message()));
}

absl::Status RunStep(StepFlags flags, const CLI::App& app, const Invocation& invocation) {
  REPRISE_RETURN_IF_ERROR(CheckOutput(flags.output));
  REPRISE_RETURN_IF_ERROR(CheckSource(flags.engine.source));
  if (flags.engine.diagnostics.poison) {
    return UsageError(
        "--poison: steps need contexts of numbers, and this mode fills them with NaN; allowed: no "
        "--poison");
  }
  // No more rows than are measured, as they take memory; but the buckets of any engine, which are
  // powers of two.
  if (app.count("--max-rows") == 0) {
    flags.engine.engine.max_rows = 1;
    for (const StepPoint& cell : flags.cells) {
      flags.engine.engine.max_rows =
          std::max(flags.engine.engine.max_rows, std::bit_ceil(cell.rows));
    }
  }
  REPRISE_RETURN_IF_ERROR(PrepareOutput(flags.output, invocation.console));
  REPRISE_RETURN_IF_ERROR(FitPool(flags.cells, &flags.engine));
  flags.engine.diagnostics.random_kv_cache = true;
  Interrupt interrupt;
  const absl::StatusOr<LoadedEngine> loaded = LoadEngine(flags.engine, invocation.console);
  if (absl::IsResourceExhausted(loaded.status())) return DoesNotFit(flags, loaded.status());
  REPRISE_RETURN_IF_ERROR(loaded.status());
  return MeasureAll(flags, *loaded, invocation, &interrupt);
}

void AddMeasuringOptions(CLI::App* app, StepFlags* flags) {
  AddOption(app, "--cells", &flags->cells, ParseStepCells, "ROWS@CONTEXT,...",
            "1,2,8,32,64,128 rows @512, 1@4096, 1@16384",
            "Rows of a step, and tokens in the KV of each, such as 1@512,8@4k");
  std::string kinds = "How rows sample";
  for (const SamplingKind& kind : SamplingKinds())
    absl::StrAppend(&kinds, &kind == &SamplingKinds()[0] ? ": " : "; ", std::string(kind.name),
                    " (", std::string(kind.description), ")");
  AddOption(app, "--sampling", &flags->bench.sampling, ParseSamplingKind, "KIND",
            std::string(SamplingKinds()[0].name), kinds);
  AddOption(app, "--rounds", &flags->bench.rounds, UnsignedIn(1, 1000), "N", "3",
            "Times that all cells are measured, one after the other");
  AddOption(app, "--replays", &flags->bench.replays, UnsignedIn(1, 1u << 20), "N", "32",
            "Measured steps of every cell, in every round");
  AddOption(app, "--warmup", &flags->bench.warmup, UnsignedIn(0, 1u << 20), "N", "16",
            "Steps before them");
  AddOption(
      app, "--seconds", &flags->sustain_seconds,
      [](std::string_view text) { return ParseDecimal(text, 0, 3600); }, "SECONDS", "0",
      "Then run the steps of every cell back to back for so long, and report clock, power and "
      "energy");
  AddBandwidthOption(app, &flags->bandwidth_bytes);
  AddOutputOptions(app, &flags->output);
  NameOptionGroup(app, "Measuring");
}

}  // namespace

Command AddBenchStepCommand(CLI::App* bench) {
  auto flags = std::make_shared<StepFlags>();
  CLI::App* app = bench->add_subcommand(
      "step", "Time whole decode steps, beside reading weights and KV at the measured bandwidth");
  app->footer(kBenchStepExamples);
  AddMeasuringOptions(app, flags.get());
  AddEngineOptions(app, &flags->engine);
  return {app,
          [app, flags](const Invocation& invocation) { return RunStep(*flags, *app, invocation); }};
}

}  // namespace reprise::tools
