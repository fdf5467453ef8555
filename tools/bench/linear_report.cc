// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/linear_report.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/weight_format.h"
#include "tools/device_flags.h"
#include "tools/profile/report.h"
#include "tools/profile/report_parts.h"
#include "tools/table.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

// What a step costs by one candidate with so many rows.
struct StepSum {
  uint32_t rows = 0;
  size_t candidate = 0;
  uint64_t weight_bytes = 0;
  double sum_ns = 0;  // of medians of the shapes' calls, each as often as a step has it
  const LinearTimes* chain = nullptr;  // the whole step as one chain
};

// Of the rows whose chain of a step was measured: the cells of a number of rows lie together, that
// chain behind the shapes'.
std::vector<StepSum> StepsOf(const std::vector<LinearCell>& cells, const LinearContext& context) {
  const LinearBench& bench = context.bench;
  std::vector<StepSum> steps;
  for (size_t c = 0; c < cells.size(); ++c) {
    const LinearChain& chain = bench.chains()[cells[c].chain];
    if (!chain.is_step()) continue;
    for (size_t i = 0; i < bench.candidates().size(); ++i) {
      StepSum step{.rows = cells[c].rows,
                   .candidate = i,
                   .weight_bytes = chain.unit_bytes,
                   .chain = &cells[c].candidates[i]};
      for (size_t s = 0; s < bench.shapes().size(); ++s) {
        const LinearCell& of_shape = cells[c - bench.shapes().size() + s];
        step.sum_ns += bench.shapes()[s].per_step * of_shape.candidates[i].MedianNs();
      }
      steps.push_back(step);
    }
  }
  return steps;
}

std::string NameOfCandidate(const LinearBench& bench, size_t candidate) {
  return std::string(bench.candidates()[candidate]->name);
}

std::string ShapesTable(const std::vector<LinearCell>& cells, const LinearContext& context) {
  const LinearBench& bench = context.bench;
  Table table({"rows", "shape", "candidate", "us", "p10", "p90", "GB/s", "of read", "weight",
               "calls", "cycled"});
  table.SetKeys(3);
  for (const LinearCell& cell : cells) {
    const LinearChain& chain = bench.chains()[cell.chain];
    if (chain.is_step()) continue;
    for (size_t i = 0; i < bench.candidates().size(); ++i) {
      const LinearTimes& times = cell.candidates[i];
      const double ns = times.MedianNs();
      table.AddRow({absl::StrCat(cell.rows), chain.name, NameOfCandidate(bench, i), Us(ns),
                    Us(times.unit_ns.Percentile(10)), Us(times.unit_ns.Percentile(90)),
                    GigabytesPerSecond(LinearContext::Rate(chain.unit_bytes, ns)),
                    FormatPercent(context.Share(chain.unit_bytes, ns)),
                    FormatBytes(chain.unit_bytes), absl::StrCat(chain.shapes.size()),
                    FormatBytes(chain.cycled_bytes)});
    }
  }
  return table.ToString(context.width);
}

std::string StepsTable(const std::vector<LinearCell>& cells, const LinearContext& context) {
  Table table({"rows", "step of", "sum us", "of read", "chain us", "p10", "p90", "GB/s", "of read",
               "weights", "cycled"});
  table.SetKeys(2);
  for (const StepSum& step : StepsOf(cells, context)) {
    const double chain_ns = step.chain->MedianNs();
    table.AddRow(
        {absl::StrCat(step.rows), NameOfCandidate(context.bench, step.candidate), Us(step.sum_ns),
         FormatPercent(context.Share(step.weight_bytes, step.sum_ns)), Us(chain_ns),
         Us(step.chain->unit_ns.Percentile(10)), Us(step.chain->unit_ns.Percentile(90)),
         GigabytesPerSecond(LinearContext::Rate(step.weight_bytes, chain_ns)),
         FormatPercent(context.Share(step.weight_bytes, chain_ns)), FormatBytes(step.weight_bytes),
         FormatBytes(context.bench.chains().back().cycled_bytes)});
  }
  return table.empty() ? "" : absl::StrCat("\n", table.ToString(context.width));
}

// Times of a chain, with what they come to.
nlohmann::json TimesToJson(const LinearTimes& times, uint64_t bytes, const LinearContext& context) {
  const double ns = times.MedianNs();
  return {{"us", UsToJson(times.unit_ns)},
          {"round_us", times.round_ns.ValuesToJson(kNsToUs)},
          {"spread", NumberOrNull(SpreadOf(times.round_ns))},
          {"bytes_per_s", LinearContext::Rate(bytes, ns)},
          {"share_of_read", context.Share(bytes, ns)}};
}

nlohmann::json CellToJson(const LinearCell& cell, const LinearContext& context) {
  const LinearBench& bench = context.bench;
  const LinearChain& chain = bench.chains()[cell.chain];
  nlohmann::json candidates = nlohmann::json::array();
  for (size_t i = 0; i < bench.candidates().size(); ++i) {
    const LinearTimes& times = cell.candidates[i];
    nlohmann::json json = TimesToJson(times, chain.unit_bytes, context);
    json["name"] = NameOfCandidate(bench, i);
    json["check"] = nullptr;
    if (times.check)
      json["check"] = {{"outputs", times.check->num_outputs}, {"worst", times.check->worst}};
    candidates.push_back(std::move(json));
  }
  return {{"rows", cell.rows}, {"shape", chain.name}, {"candidates", std::move(candidates)}};
}

nlohmann::json StepToJson(const StepSum& step, const LinearContext& context) {
  return {{"rows", step.rows},
          {"candidate", NameOfCandidate(context.bench, step.candidate)},
          {"weight_bytes", step.weight_bytes},
          {"sum_us", step.sum_ns * kNsToUs},
          {"sum_share_of_read", context.Share(step.weight_bytes, step.sum_ns)},
          {"chain", TimesToJson(*step.chain, step.weight_bytes, context)}};
}

nlohmann::json ShapeToJson(const LinearShape& shape, const LinearChain& chain) {
  return {
      {"name", shape.name},
      {"out_features", shape.out_features},
      {"in_features", shape.in_features},
      {"per_step", shape.per_step == 0 ? nlohmann::json(nullptr) : nlohmann::json(shape.per_step)},
      {"biased", shape.biased},
      {"out_is_f32", shape.out_is_f32},
      {"weight_format", std::string(kernels::NameOf(shape.format))},
      {"group_size",
       shape.group_size == 0 ? nlohmann::json(nullptr) : nlohmann::json(shape.group_size)},
      {"weight_bytes", chain.unit_bytes},
      {"calls", chain.shapes.size()},
      {"cycled_bytes", chain.cycled_bytes}};
}

nlohmann::json SettingsToJson(const LinearContext& context) {
  const LinearBenchOptions& options = context.bench.options();
  return {{"rows", options.rows},
          {"rounds", options.rounds},
          {"replays", options.replays},
          {"calls", options.calls == 0 ? nlohmann::json(nullptr) : nlohmann::json(options.calls)},
          {"pool_bytes", options.pool_bytes},
          {"seed", options.seed}};
}

// "fp8_e4m3", "int4 in groups of 64".
std::string FormatText(const LinearShape& shape) {
  std::string text(kernels::NameOf(shape.format));
  if (shape.format == kernels::WeightFormat::kInt4)
    absl::StrAppend(&text, " in groups of ", shape.group_size);
  return text;
}

// "bf16, qkv 6144x4096, ..."; where weights are of formats of their own "bf16, weights fp8_e4m3:
// qkv 6144x4096, ...; weights bf16: lm_head 128256x4096".
std::string ShapesText(const LinearContext& context) {
  std::string format(runtime::NameOf(context.bench.options().dtype)), text = format;
  const char* separator = ", ";
  for (const LinearShape& shape : context.bench.shapes()) {
    if (FormatText(shape) == format) {
      absl::StrAppend(&text, ", ", shape.name);
    } else {
      format = FormatText(shape);
      absl::StrAppend(&text, separator, "weights ", format, ": ", shape.name);
      separator = "; ";
    }
    if (shape.per_step != 0) absl::StrAppend(&text, " ", shape.SizeText());
  }
  return text;
}

}  // namespace

double LinearContext::Rate(uint64_t bytes, double ns) {
  return ns > 0 ? static_cast<double>(bytes) * 1e9 / ns : 0.0;
}

double LinearContext::Share(uint64_t bytes, double ns) const {
  const double read = bandwidth.best_read();
  return read > 0 ? Rate(bytes, ns) / read : 0.0;
}

std::string LinearCellName(const LinearCell& cell, const LinearBench& bench) {
  return absl::StrCat(bench.chains()[cell.chain].name, " with ", cell.rows,
                      cell.rows == 1 ? " row" : " rows");
}

std::string LinearHeader(const LinearContext& context) {
  const LinearBench& bench = context.bench;
  Table table({});
  table.AlignLeft();
  if (!context.model.empty()) table.AddRow({"model", context.model});
  table.AddRow({"linear", ShapesText(context)});
  table.AddRow({"device", DeviceText(context.device)});
  table.AddRow({"memory", absl::StrCat(FormatBytes(bench.bytes()), "; calls cycle over up to ",
                                       FormatBytes(bench.options().pool_bytes), " of weights")});
  return absl::StrCat(table.ToString(context.width), "\n");
}

std::string LinearText(const std::vector<LinearCell>& cells, const LinearContext& context) {
  return absl::StrCat(BandwidthText(context.bandwidth), "\n\n", ShapesTable(cells, context),
                      StepsTable(cells, context));
}

std::string LinearWarning(const LinearCell& cell, const LinearContext& context) {
  UnsteadyRounds unsteady;
  for (size_t i = 0; i < cell.candidates.size(); ++i)
    unsteady.Add(NameOfCandidate(context.bench, i), SpreadOf(cell.candidates[i].round_ns));
  return unsteady.Warning(LinearCellName(cell, context.bench));
}

nlohmann::json LinearToJson(const std::vector<LinearCell>& cells, const LinearContext& context) {
  const LinearBench& bench = context.bench;
  nlohmann::json shapes = nlohmann::json::array(), candidates = nlohmann::json::array(),
                 list = nlohmann::json::array(), steps = nlohmann::json::array();
  for (size_t i = 0; i < bench.shapes().size(); ++i)
    shapes.push_back(ShapeToJson(bench.shapes()[i], bench.chains()[i]));
  for (const LinearCandidateEntry* candidate : bench.candidates())
    candidates.push_back({{"name", std::string(candidate->name)},
                          {"description", std::string(candidate->description)}});
  for (const LinearCell& cell : cells)
    if (!bench.chains()[cell.chain].is_step()) list.push_back(CellToJson(cell, context));
  for (const StepSum& step : StepsOf(cells, context)) steps.push_back(StepToJson(step, context));
  nlohmann::json step_chain = nullptr;
  if (const LinearChain& chain = bench.chains().back(); chain.is_step()) {
    step_chain = {{"steps", chain.steps},
                  {"calls", chain.shapes.size()},
                  {"cycled_bytes", chain.cycled_bytes}};
  }
  return {{"schema", "reprise.bench_linear/1"},
          {"error", nullptr},
          {"model", TextOrNull(context.model)},
          {"dtype", std::string(runtime::NameOf(bench.options().dtype))},
          {"device", DeviceToJson(context.device)},
          {"settings", SettingsToJson(context)},
          {"bandwidth", BandwidthToJson(context.bandwidth)},
          {"stamp_cost_us", bench.stamp_cost_ns() * kNsToUs},
          {"shapes", std::move(shapes)},
          {"step_chain", std::move(step_chain)},
          {"candidates", std::move(candidates)},
          {"cells", std::move(list)},
          {"steps", std::move(steps)}};
}

Chart LinearChart(const std::vector<LinearCell>& cells, const LinearContext& context) {
  const LinearBench& bench = context.bench;
  ChartPanel time{.axis = "us per call", .log = true, .series = {}};
  ChartPanel share{.axis = "% of read bandwidth", .log = false, .series = {}};
  Chart chart{.title = "Linear layers",
              .subtitle = absl::StrCat(context.model.empty() ? "" : context.model + "; ",
                                       DeviceText(context.device)),
              .categories = {},
              .panels = {}};
  const size_t num_candidates = bench.candidates().size();
  for (const LinearCell& cell : cells) {
    const LinearChain& chain = bench.chains()[cell.chain];
    if (cell.chain == 0)
      chart.categories.push_back(absl::StrCat(cell.rows, cell.rows == 1 ? " row" : " rows"));
    for (size_t i = 0; i < num_candidates; ++i) {
      const size_t series = cell.chain * num_candidates + i;
      if (time.series.size() <= series) {
        const std::string name = absl::StrCat(chain.name, " ", NameOfCandidate(bench, i));
        for (ChartPanel* panel : {&time, &share})
          panel->series.push_back({.name = name, .values = {}, .dashed = chain.is_step()});
      }
      const double ns = cell.candidates[i].MedianNs();
      time.series[series].values.push_back(ns * kNsToUs);
      share.series[series].values.push_back(context.Share(chain.unit_bytes, ns) * 100);
    }
  }
  chart.panels = {std::move(time), std::move(share)};
  return chart;
}

}  // namespace reprise::tools
