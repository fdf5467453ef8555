// SPDX-License-Identifier: Apache-2.0
// `reprise bench linear`: times the linear layers of a decode step alone, beside the read bandwidth
// that the same run measures.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "tools/bench/bench_flags.h"
#include "tools/bench/bench_rounds.h"
#include "tools/bench/linear_bench.h"
#include "tools/bench/linear_flags.h"
#include "tools/bench/linear_report.h"
#include "tools/cli.h"
#include "tools/console.h"
#include "tools/device_flags.h"
#include "tools/profile/bandwidth.h"
#include "tools/record.h"
#include "tools/signals.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr char kBenchLinearExamples[] =
    "Examples:\n"
    "  reprise bench linear --model examples/byte-llama --rows 1,8 --check\n"
    "  reprise bench linear --device cuda --preset llama-3.1-8b --json linear.json --svg "
    "linear.svg\n"
    "  reprise bench linear --shape 6144x4096,4096x4096 --rows 1 --candidate best,portable\n"
    "  reprise bench linear --device cuda --preset llama-3.1-8b-fp8 --candidate packed --rows 1,8\n"
    "  reprise bench linear --shape 4096x4096 --weights int4 --group-size 64 --rows 1 --check\n"
    "\n"
    "docs/bench_linear.md says what each number is; docs/bench_linear.schema.json describes the "
    "JSON.";

struct LinearFlags {
  LinearShapeFlags shapes;
  std::vector<const LinearCandidateEntry*> candidates = {&LinearCandidates()[0]};
  LinearBenchOptions bench;
  bool check = false;
  uint64_t bandwidth_bytes = 0;  // 0: by device
  DeviceFlags device;
  OutputFlags output;
};

absl::Status CheckAll(const Interrupt& interrupt, LinearBench* bench, Console* console,
                      std::vector<LinearCell>* cells) {
  double worst = 0;
  size_t checked = 0;
  for (LinearCell& cell : *cells) {
    console->Progress(absl::StrCat("checking ", LinearCellName(cell, *bench)), /*now=*/true);
    REPRISE_RETURN_IF_ERROR(bench->Check(&cell));
    for (const LinearTimes& times : cell.candidates) {
      if (!times.check) continue;
      worst = std::max(worst, times.check->worst);
      ++checked;
    }
    REPRISE_RETURN_IF_ERROR(interrupt.status());
  }
  console->Note(absl::StrCat("checked: ", checked, checked == 1 ? " cell" : " cells",
                             " by candidate, worst error ", FormatPercent(worst),
                             " of what is allowed"));
  return absl::OkStatus();
}

absl::Status MeasureRounds(const LinearFlags& flags, runtime::Device& device,
                           const Interrupt& interrupt, LinearBench* bench, Console* console,
                           LinearContext* context, std::vector<LinearCell>* cells) {
  const LinearBenchOptions& options = bench->options();
  const uint64_t bytes = flags.bandwidth_bytes != 0 ? flags.bandwidth_bytes
                                                    : DefaultBandwidthBytes(device.properties());
  const BenchRounds rounds{.rounds = options.rounds,
                           .units = uint64_t{options.replays} * cells->size(),
                           .unit = "replays"};
  return rounds.Measure(interrupt, console, [&](const BenchRounds::Told& told) {
    // In every round, so that a device that slows down is measured as it slows down.
    REPRISE_RETURN_IF_ERROR(told(0, absl::StrCat("bandwidth over ", FormatBytes(bytes))));
    REPRISE_ASSIGN_OR_RETURN(const Bandwidth bandwidth,
                             MeasureBandwidth(device, bytes, kBandwidthPasses));
    context->bandwidth.AddAll(bandwidth);
    for (LinearCell& cell : *cells) {
      const auto measured = [&](uint32_t replays) {
        return told(replays, LinearCellName(cell, *bench));
      };
      REPRISE_RETURN_IF_ERROR(bench->Measure(measured, &cell));
    }
    return absl::OkStatus();
  });
}

absl::Status Report(const LinearFlags& flags, const std::vector<LinearCell>& cells,
                    const LinearContext& context, const absl::Status& status,
                    const Invocation& invocation) {
  Console* console = invocation.console;
  console->Print(LinearText(cells, context));
  for (const LinearCell& cell : cells) {
    const std::string warning = LinearWarning(cell, context);
    if (!warning.empty()) console->Note(absl::StrCat("reprise bench linear: warning: ", warning));
  }
  nlohmann::json json = RecordOf("bench linear", invocation);
  json.update(LinearToJson(cells, context));
  if (!status.ok()) json["error"] = std::string(status.message());
  return WriteOutput(flags.output, json, LinearChart(cells, context), console);
}

absl::Status RunLinear(LinearFlags flags, const Invocation& invocation) {
  REPRISE_RETURN_IF_ERROR(CheckOutput(flags.output));
  REPRISE_ASSIGN_OR_RETURN(const LinearShapes of, ShapesOf(flags.shapes));
  flags.bench.dtype = of.dtype;
  Console* console = invocation.console;
  REPRISE_RETURN_IF_ERROR(PrepareOutput(flags.output, console));
  Interrupt interrupt;
  REPRISE_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Device> device,
                           OpenDevice(flags.device, console));
  console->Progress("filling memory", /*now=*/true);
  REPRISE_ASSIGN_OR_RETURN(const std::unique_ptr<LinearBench> bench,
                           LinearBench::Create(*device, of.shapes, flags.candidates, flags.bench));
  LinearContext context{.bench = *bench,
                        .model = of.model.name,
                        .device = device->properties(),
                        .bandwidth = {},
                        .width = console->width()};
  console->Print(LinearHeader(context));
  interrupt.Arm();
  std::vector<LinearCell> cells = bench->Cells();
  absl::Status status;
  if (flags.check) status = CheckAll(interrupt, bench.get(), console, &cells);
  if (status.ok()) {
    status = MeasureRounds(flags, *device, interrupt, bench.get(), console, &context, &cells);
  }
  console->ClearProgress();
  // Without a complete round there is nothing to say of some cells, and no sum over a step.
  if (cells.back().candidates[0].round_ns.empty()) return status;
  const absl::Status reported = Report(flags, cells, context, status, invocation);
  return status.ok() ? reported : status;
}

void AddMeasuringOptions(CLI::App* app, LinearFlags* flags) {
  std::string candidates = "Which kernels";
  for (const LinearCandidateEntry& entry : LinearCandidates())
    absl::StrAppend(&candidates, &entry == &LinearCandidates()[0] ? ": " : "; ",
                    std::string(entry.name), " (", std::string(entry.description), ")");
  AddOption(app, "--candidate", &flags->candidates, ParseLinearCandidates, "NAME,...",
            std::string(LinearCandidates()[0].name), candidates);
  app->add_flag("--check", flags->check,
                "Compare outputs with a double-precision reference before anything is timed");
  AddRoundOptions(app, &flags->bench.rounds, &flags->bench.replays);
  AddOption(app, "--calls", &flags->bench.calls, UnsignedIn(1, 4096), "N", "",
            "Calls of a shape in a graph (default: as many as a step has, and so many that they "
            "read more than caches hold, at most 512)");
  AddOption(app, "--pool-bytes", &flags->bench.pool_bytes, ParsePoolBytes, "SIZE", "",
            "Weights that calls cycle over, at least the largest one (default: all of the model's "
            "that fit, on the host up to 512MiB of them, but at least 256MiB, host 64MiB)");
  AddBandwidthOption(app, &flags->bandwidth_bytes);
  AddOption(app, "--seed", &flags->bench.seed, UnsignedIn(0, UINT64_MAX), "N", "1",
            "Of weights, inputs, and which outputs --check looks at");
  AddOutputOptions(app, &flags->output);
  NameOptionGroup(app, "Measuring");
}

}  // namespace

Command AddBenchLinearCommand(CLI::App* bench) {
  auto flags = std::make_shared<LinearFlags>();
  CLI::App* app = bench->add_subcommand(
      "linear",
      "Time the linear layers of a decode step alone, beside the measured read bandwidth");
  app->footer(kBenchLinearExamples);
  AddLinearShapeOptions(app, &flags->shapes, &flags->bench.rows);
  AddMeasuringOptions(app, flags.get());
  AddDeviceOptions(app, &flags->device);
  NameOptionGroup(app, "Device");
  return {app, [flags](const Invocation& invocation) { return RunLinear(*flags, invocation); }};
}

}  // namespace reprise::tools
