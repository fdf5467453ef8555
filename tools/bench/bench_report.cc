// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/bench_report.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/device_flags.h"
#include "tools/profile/report_parts.h"
#include "tools/table.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr char kFloor[] = "page walk";

// The floor first, then the candidates.
struct Subject {
  std::string name;
  const SubjectTimes* times = nullptr;
  bool is_floor = false;
};
std::vector<Subject> SubjectsOf(const CellTimes& times, const AttentionBench& bench) {
  std::vector<Subject> subjects = {{kFloor, &times.floor, true}};
  for (size_t i = 0; i < times.candidates.size(); ++i)
    subjects.push_back({std::string(bench.candidates()[i]->name), &times.candidates[i], false});
  return subjects;
}

// How many times the floor.
double OfFloor(const SubjectTimes& times, const CellTimes& cell) {
  const double floor = cell.floor.MedianNs();
  return floor > 0 ? times.MedianNs() / floor : 0.0;
}

// Which leaf the batch of each cell came to, and its rows: "short", or "3 short, 29 long".
std::string LeavesTable(const std::vector<MeasuredCell>& cells, const BenchContext& context) {
  if (context.tree_file.empty()) return "";
  const engine::NamedAttentionTree& tree = context.bench.tree();
  Table table({"cell", "batch leaf", "row leaves"});
  table.AlignLeft();
  for (const MeasuredCell& cell : cells) {
    const TakenLeaves& taken = cell.times.leaves;
    std::vector<std::string> rows;
    for (size_t leaf = 0; leaf < taken.rows.size(); ++leaf)
      if (taken.rows[leaf] != 0)
        rows.push_back(absl::StrCat(taken.rows[leaf], " ", tree.row_leaves[leaf]));
    table.AddRow({context.bench.cells()[cell.index].name, tree.batch_leaves[taken.batch],
                  absl::StrJoin(rows, ", ")});
  }
  return absl::StrCat("\n", table.ToString(context.width));
}

nlohmann::json LeavesToJson(const TakenLeaves& taken, const engine::NamedAttentionTree& tree) {
  nlohmann::json rows = nlohmann::json::array();
  for (size_t leaf = 0; leaf < taken.rows.size(); ++leaf)
    rows.push_back({{"leaf", tree.row_leaves[leaf]}, {"rows", taken.rows[leaf]}});
  return {{"batch", tree.batch_leaves[taken.batch]}, {"rows", std::move(rows)}};
}

std::string SustainedTable(const std::vector<MeasuredCell>& cells, const BenchContext& context) {
  Table table({"cell", "candidate", "sustained us", "p10", "p90", "GB/s", "SM clock", "power"});
  table.SetKeys(2);
  for (const MeasuredCell& cell : cells) {
    for (const Subject& subject : SubjectsOf(cell.times, context.bench)) {
      if (!subject.times->sustained) continue;
      const SustainedTimes& times = *subject.times->sustained;
      const double ns = times.call_ns.Percentile(50);
      table.AddRow({context.bench.cells()[cell.index].name, subject.name, Us(ns),
                    Us(times.call_ns.Percentile(10)), Us(times.call_ns.Percentile(90)),
                    GigabytesPerSecond(static_cast<double>(cell.times.kv_bytes) * 1e9 / ns),
                    MeanText(times.sm_clock_mhz, "MHz"), MeanText(times.power_w, "W")});
    }
  }
  return table.empty() ? "" : absl::StrCat("\n", table.ToString(context.width));
}

nlohmann::json SustainedToJson(const SubjectTimes& subject, const CellTimes& cell) {
  if (!subject.sustained) return nullptr;
  const SustainedTimes& times = *subject.sustained;
  return {{"seconds", times.seconds},
          {"us", UsToJson(times.call_ns)},
          {"bytes_per_s", static_cast<double>(cell.kv_bytes) * 1e9 / times.call_ns.Percentile(50)},
          {"sm_mhz", MeanJson(times.sm_clock_mhz)},
          {"memory_mhz", MeanJson(times.memory_clock_mhz)},
          {"power_w", MeanJson(times.power_w)}};
}

nlohmann::json SubjectToJson(const Subject& subject, const CellTimes& cell) {
  const SubjectTimes& times = *subject.times;
  nlohmann::json json = {
      {"us", UsToJson(times.call_ns)},
      {"round_us", times.round_ns.ValuesToJson(kNsToUs)},
      {"spread", times.Spread() ? nlohmann::json(*times.Spread()) : nlohmann::json(nullptr)},
      {"bytes_per_s", cell.BytesPerSecond(times)},
      {"sustained", SustainedToJson(times, cell)}};
  if (subject.is_floor) return json;
  json["name"] = subject.name;
  json["of_floor"] = OfFloor(times, cell);
  json["plan_us"] = UsToJson(times.plan_ns);
  json["check"] = nullptr;
  if (times.check) {
    json["check"] = {{"pairs", times.check->num_pairs},
                     {"worst", times.check->worst},
                     {"allowed", times.check->allowed}};
  }
  return json;
}

nlohmann::json CellToJson(const MeasuredCell& measured, const BenchContext& context) {
  const BenchCell& cell = context.bench.cells()[measured.index];
  const CellTimes& times = measured.times;
  nlohmann::json lengths = nlohmann::json::array();
  for (const BatchRow& row : cell.rows) lengths.push_back({row.history, row.query_tokens});
  nlohmann::json floor, candidates = nlohmann::json::array();
  for (const Subject& subject : SubjectsOf(times, context.bench)) {
    nlohmann::json json = SubjectToJson(subject, times);
    if (subject.is_floor) {
      floor = std::move(json);
    } else {
      candidates.push_back(std::move(json));
    }
  }
  return {{"name", cell.name},
          {"batch", std::string(NameOf(cell.kind))},
          {"rows", cell.rows.size()},
          {"decode_rows", cell.num_decode_rows()},
          {"query_tokens", cell.query_tokens()},
          {"longest", cell.longest()},
          {"shared_tokens", cell.shared_tokens},
          {"lengths", std::move(lengths)},
          {"seen_tokens", cell.SeenTokens(context.bench.shape().window)},
          {"kv_bytes", times.kv_bytes},
          {"calls", times.calls},
          {"cycled_bytes", times.cycled_bytes},
          {"leaves", LeavesToJson(times.leaves, context.bench.tree())},
          {"floor", std::move(floor)},
          {"candidates", std::move(candidates)}};
}

nlohmann::json SettingsToJson(const BenchContext& context) {
  const AttentionBenchOptions& options = context.bench.options();
  return {{"max_context", options.max_context},
          {"rounds", options.rounds},
          {"replays", options.replays},
          {"calls", options.calls == 0 ? nlohmann::json(nullptr) : nlohmann::json(options.calls)},
          {"pool_bytes", options.pool_bytes},
          {"seed", options.seed},
          {"sustain_s", context.sustain_seconds}};
}

nlohmann::json TreeToJson(const BenchContext& context) {
  return {{"file", TextOrNull(context.tree_file)},
          {"tree", nlohmann::json::parse(AttentionTreeText(context.bench.tree()))}};
}

}  // namespace

std::string ShapeText(const AttentionShape& shape) {
  return absl::StrCat(shape.num_heads, " heads of ", shape.head_dim, " on ", shape.num_kv_heads,
                      " KV heads, ", std::string(runtime::NameOf(shape.dtype)),
                      shape.kv_dtype() == shape.dtype
                          ? ""
                          : absl::StrCat(" over ", std::string(runtime::NameOf(shape.kv_dtype()))),
                      ", blocks of ", shape.block_size, shape.window == 0 ? "" : ", window of ",
                      shape.window == 0 ? "" : absl::StrCat(shape.window));
}

nlohmann::json ShapeToJson(const AttentionShape& shape) {
  return {{"model", TextOrNull(shape.model)},
          {"heads", shape.num_heads},
          {"kv_heads", shape.num_kv_heads},
          {"head_dim", shape.head_dim},
          {"block_size", shape.block_size},
          {"dtype", std::string(runtime::NameOf(shape.dtype))},
          {"kv_dtype", std::string(runtime::NameOf(shape.kv_dtype()))},
          {"window", shape.window}};
}

std::string BenchHeader(const BenchContext& context) {
  const AttentionBench& bench = context.bench;
  Table table({});
  table.AlignLeft();
  if (!bench.shape().model.empty()) table.AddRow({"model", bench.shape().model});
  table.AddRow({"attention", ShapeText(bench.shape())});
  if (!context.tree_file.empty()) table.AddRow({"tree", context.tree_file});
  table.AddRow({"captured for", absl::StrCat("rows of up to ",
                                             FormatCount(bench.options().max_context), " tokens")});
  table.AddRow({"device", DeviceText(context.device)});
  table.AddRow({"memory", absl::StrCat(FormatBytes(bench.bytes()), "; calls cycle over ",
                                       FormatBytes(bench.options().pool_bytes), " of KV")});
  table.AddRow({"clock, power", TelemetryText(context.telemetry)});
  return absl::StrCat(table.ToString(context.width), "\n");
}

std::string CellsText(const std::vector<MeasuredCell>& cells, const BenchContext& context) {
  Table table(
      {"cell", "candidate", "us", "p10", "p90", "GB/s", "of floor", "plan us", "KV read", "calls"});
  table.SetKeys(2);
  for (const MeasuredCell& cell : cells) {
    const CellTimes& times = cell.times;
    for (const Subject& subject : SubjectsOf(times, context.bench)) {
      const SubjectTimes& t = *subject.times;
      table.AddRow({context.bench.cells()[cell.index].name, subject.name, Us(t.MedianNs()),
                    Us(t.call_ns.Percentile(10)), Us(t.call_ns.Percentile(90)),
                    GigabytesPerSecond(times.BytesPerSecond(t)),
                    subject.is_floor ? "1" : absl::StrFormat("%.3f", OfFloor(t, times)),
                    t.plan_ns.empty() ? kNoFigure : Us(t.plan_ns.Percentile(50)),
                    FormatBytes(times.kv_bytes), absl::StrCat(times.calls)});
    }
  }
  return absl::StrCat(table.ToString(context.width), SustainedTable(cells, context),
                      LeavesTable(cells, context));
}

std::string CellWarning(const MeasuredCell& cell, const BenchContext& context) {
  UnsteadyRounds unsteady;
  for (const Subject& subject : SubjectsOf(cell.times, context.bench))
    unsteady.Add(subject.name, subject.times->Spread());
  return unsteady.Warning(context.bench.cells()[cell.index].name);
}

nlohmann::json BenchToJson(const std::vector<MeasuredCell>& cells, const BenchContext& context) {
  nlohmann::json list = nlohmann::json::array(), candidates = nlohmann::json::array();
  for (const MeasuredCell& cell : cells) list.push_back(CellToJson(cell, context));
  for (size_t i = 0; i < context.bench.candidates().size(); ++i) {
    const AttentionCandidateEntry& candidate = *context.bench.candidates()[i];
    const engine::NamedAttentionTree* const tree = context.bench.OwnTree(i);
    candidates.push_back(
        {{"name", std::string(candidate.name)},
         {"description", std::string(candidate.description)},
         {"between_graphs", candidate.between_graphs},
         {"tree", tree == nullptr ? nlohmann::json(nullptr)
                                  : nlohmann::json::parse(AttentionTreeText(*tree))}});
  }
  return {{"schema", "reprise.bench_attention/1"},
          {"error", nullptr},
          {"shape", ShapeToJson(context.bench.shape())},
          {"device", DeviceToJson(context.device)},
          {"settings", SettingsToJson(context)},
          {"tree", TreeToJson(context)},
          {"telemetry", TelemetryToJson(context.telemetry)},
          {"stamp_cost_us", context.bench.stamp_cost_ns() * kNsToUs},
          {"candidates", std::move(candidates)},
          {"cells", std::move(list)}};
}

Chart BenchChart(const std::vector<MeasuredCell>& cells, const BenchContext& context) {
  ChartPanel time{.axis = "us per call", .log = true, .series = {}};
  ChartPanel rate{.axis = "GB/s of KV", .log = false, .series = {}};
  Chart chart{
      .title = "Paged attention",
      .subtitle = absl::StrCat(ShapeText(context.bench.shape()), "; ", DeviceText(context.device)),
      .categories = {},
      .panels = {}};
  for (const MeasuredCell& cell : cells) {
    chart.categories.push_back(context.bench.cells()[cell.index].name);
    const std::vector<Subject> subjects = SubjectsOf(cell.times, context.bench);
    for (size_t i = 0; i < subjects.size(); ++i) {
      if (time.series.size() <= i) {
        const std::string name = subjects[i].is_floor ? "page walk (floor)" : subjects[i].name;
        for (ChartPanel* panel : {&time, &rate})
          panel->series.push_back({.name = name, .values = {}, .dashed = subjects[i].is_floor});
      }
      time.series[i].values.push_back(subjects[i].times->MedianNs() * kNsToUs);
      rate.series[i].values.push_back(cell.times.BytesPerSecond(*subjects[i].times) / 1e9);
    }
  }
  chart.panels = {std::move(time), std::move(rate)};
  return chart;
}

}  // namespace reprise::tools
