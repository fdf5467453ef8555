// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/step_report.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/device_flags.h"
#include "tools/profile/report.h"
#include "tools/table.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr double kNsToMs = 1e-6;

std::string Ms(double ns) { return absl::StrFormat("%.3f", ns * kNsToMs); }

double TokensPerSecond(const StepCell& cell) {
  const double ns = cell.wall_ns.Percentile(50);
  return ns > 0 ? cell.cell.rows * 1e9 / ns : 0.0;
}

std::string CellsTable(const std::vector<StepCell>& cells, const StepContext& context) {
  Table table({"cell", "graph", "floor ms", "device ms", "p10", "p90", "of floor", "wall ms", "p90",
               "launch us", "tokens/s", "weights", "KV read"});
  table.SetKeys(1);
  for (const StepCell& cell : cells) {
    const double device_ns = cell.device_ns.Percentile(50);
    table.AddRow({NameOf(cell.cell), cell.graph, Ms(context.FloorOf(cell.bytes)), Ms(device_ns),
                  Ms(cell.device_ns.Percentile(10)), Ms(cell.device_ns.Percentile(90)),
                  FormatPercent(context.Share(cell.bytes, device_ns)),
                  Ms(cell.wall_ns.Percentile(50)), Ms(cell.wall_ns.Percentile(90)),
                  Us(cell.launch_ns.Percentile(50)), FormatRate(TokensPerSecond(cell)),
                  FormatBytes(cell.bytes.weights), FormatBytes(cell.bytes.kv_read)});
  }
  return table.ToString(context.width);
}

std::string SustainedTable(const std::vector<StepCell>& cells, const StepContext& context) {
  Table table({"cell", "back to back ms", "of floor", "tokens/s", "steps", "mean context",
               "SM clock", "memory clock", "power", "mJ/token"});
  for (const StepCell& cell : cells) {
    if (!cell.sustained) continue;
    const SustainedSteps& sustained = *cell.sustained;
    const std::optional<double> energy = sustained.EnergyPerToken(cell.cell.rows);
    table.AddRow({NameOf(cell.cell), Ms(sustained.StepNs()),
                  FormatPercent(context.Share(sustained.bytes, sustained.StepNs())),
                  FormatRate(sustained.TokensPerSecond(cell.cell.rows)),
                  FormatCount(sustained.contexts.steps),
                  absl::StrFormat("%.1f", sustained.contexts.MeanContext()),
                  MeanText(sustained.sm_clock_mhz, "MHz"),
                  MeanText(sustained.memory_clock_mhz, "MHz"), MeanText(sustained.power_w, "W"),
                  energy ? absl::StrFormat("%.1f", *energy * 1e3) : kNoFigure});
  }
  return table.empty() ? "" : absl::StrCat("\n", table.ToString(context.width));
}

nlohmann::json BytesToJson(const models::StepBytes& bytes) {
  return {{"weights", bytes.weights}, {"kv_read", bytes.kv_read}};
}

// A distribution, and how its rounds differ.
nlohmann::json TimesToJson(const Samples& ns, const Samples& rounds) {
  return {{"us", UsToJson(ns)},
          {"round_us", rounds.ValuesToJson(kNsToUs)},
          {"spread", NumberOrNull(SpreadOf(rounds))}};
}

nlohmann::json SustainedToJson(const StepCell& cell, const StepContext& context) {
  if (!cell.sustained) return nullptr;
  const SustainedSteps& sustained = *cell.sustained;
  return {{"seconds", sustained.seconds},
          {"steps", sustained.contexts.steps},
          {"mean_context", sustained.contexts.MeanContext()},
          {"step_us", sustained.StepNs() * kNsToUs},
          {"floor_us", context.FloorOf(sustained.bytes) * kNsToUs},
          {"share_of_floor", context.Share(sustained.bytes, sustained.StepNs())},
          {"tokens_per_s", sustained.TokensPerSecond(cell.cell.rows)},
          {"sm_mhz", MeanJson(sustained.sm_clock_mhz)},
          {"memory_mhz", MeanJson(sustained.memory_clock_mhz)},
          {"power_w", MeanJson(sustained.power_w)},
          {"energy_per_token_j", NumberOrNull(sustained.EnergyPerToken(cell.cell.rows))}};
}

nlohmann::json CellToJson(const StepCell& cell, const StepContext& context) {
  return {{"name", NameOf(cell.cell)},
          {"rows", cell.cell.rows},
          {"context", cell.cell.context},
          {"mean_context", cell.contexts.MeanContext()},
          {"mean_attended", cell.contexts.MeanAttended()},
          {"graph", cell.graph},
          {"padding_rows", cell.padding_rows},
          {"kernels", cell.num_kernels},
          {"bytes", BytesToJson(cell.bytes)},
          {"floor_us", context.FloorOf(cell.bytes) * kNsToUs},
          {"device", TimesToJson(cell.device_ns, cell.round_device_ns)},
          {"wall", TimesToJson(cell.wall_ns, cell.round_wall_ns)},
          {"launch_us", UsToJson(cell.launch_ns)},
          {"share_of_floor", context.Share(cell.bytes, cell.device_ns.Percentile(50))},
          {"wall_share_of_floor", context.Share(cell.bytes, cell.wall_ns.Percentile(50))},
          {"tokens_per_s", TokensPerSecond(cell)},
          {"sustained", SustainedToJson(cell, context)}};
}

}  // namespace

double StepContext::FloorOf(const models::StepBytes& bytes) const {
  return FloorNs(bytes, bandwidth.best_read());
}

double StepContext::Share(const models::StepBytes& bytes, double ns) const {
  return ns > 0 ? FloorOf(bytes) / ns : 0.0;
}

std::string StepHeader(const StepContext& context) {
  Table table({});
  table.AlignLeft();
  table.AddRow({"model", absl::StrCat(context.info.model.name, ", ",
                                      std::string(runtime::NameOf(context.info.dtype)), ", KV in ",
                                      std::string(runtime::NameOf(context.info.kv_dtype)))});
  table.AddRow({"sampling", absl::StrCat(std::string(context.options.sampling->name), ": ",
                                         std::string(context.options.sampling->description))});
  table.AddRow({"device", DeviceText(context.info.device)});
  table.AddRow(
      {"memory", absl::StrCat(FormatBytes(context.info.memory.weights_bytes), " of weights, ",
                              FormatBytes(context.info.memory.kv_cache_bytes), " of KV")});
  table.AddRow({"clock, power", TelemetryText(context.telemetry)});
  return absl::StrCat(table.ToString(context.width), "\n");
}

std::string StepText(const std::vector<StepCell>& cells, const StepContext& context) {
  return absl::StrCat(BandwidthText(context.bandwidth), "\n\n", CellsTable(cells, context),
                      SustainedTable(cells, context));
}

std::string StepWarning(const StepCell& cell) {
  UnsteadyRounds unsteady;
  unsteady.Add("device time", SpreadOf(cell.round_device_ns));
  unsteady.Add("wall time", SpreadOf(cell.round_wall_ns));
  return unsteady.Warning(NameOf(cell.cell));
}

nlohmann::json StepToJson(const std::vector<StepCell>& cells, const StepContext& context) {
  nlohmann::json list = nlohmann::json::array();
  for (const StepCell& cell : cells) list.push_back(CellToJson(cell, context));
  const SamplingKind& sampling = *context.options.sampling;
  return {{"schema", "reprise.bench_step/1"},
          {"error", nullptr},
          {"settings",
           {{"rounds", context.options.rounds},
            {"replays", context.options.replays},
            {"warmup", context.options.warmup},
            {"sampling",
             {{"name", std::string(sampling.name)},
              {"description", std::string(sampling.description)}}},
            {"seconds", context.sustain_seconds}}},
          {"telemetry", TelemetryToJson(context.telemetry)},
          {"bandwidth", BandwidthToJson(context.bandwidth)},
          {"cells", std::move(list)}};
}

Chart StepChart(const std::vector<StepCell>& cells, const StepContext& context) {
  const char* names[] = {"floor", "device", "wall"};
  ChartPanel time{.axis = "ms per step", .log = true, .series = {}};
  ChartPanel share{.axis = "floor, % of time", .log = false, .series = {}};
  for (const char* name : names) {
    const bool floor = name == names[0];
    for (ChartPanel* panel : {&time, &share})
      panel->series.push_back({.name = name, .values = {}, .dashed = floor});
  }
  Chart chart{
      .title = "Decode steps",
      .subtitle = absl::StrCat(context.info.model.name, "; ", DeviceText(context.info.device)),
      .categories = {},
      .panels = {}};
  for (const StepCell& cell : cells) {
    chart.categories.push_back(NameOf(cell.cell));
    const double ns[] = {context.FloorOf(cell.bytes), cell.device_ns.Percentile(50),
                         cell.wall_ns.Percentile(50)};
    for (size_t i = 0; i < std::size(ns); ++i) {
      time.series[i].values.push_back(ns[i] * kNsToMs);
      share.series[i].values.push_back(context.Share(cell.bytes, ns[i]) * 100);
    }
  }
  chart.panels = {std::move(time), std::move(share)};
  return chart;
}

}  // namespace reprise::tools
