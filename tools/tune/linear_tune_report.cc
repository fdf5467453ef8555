// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/linear_tune_report.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/weight_format.h"
#include "tools/profile/profiler.h"
#include "tools/profile/report_parts.h"
#include "tools/table.h"
#include "tools/text_width.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

using nlohmann::json;

std::string NameOfKernel(const LinearKernelTimes& times) {
  return std::string(times.kernel->symbol);
}

double Microseconds(double ns) { return std::round(ns) / 1000; }

// "9 to 16", "1".
std::string RowsText(const LinearTuneCell& cell) {
  return cell.first_rows == cell.last_rows ? absl::StrCat(cell.last_rows)
                                           : absl::StrCat(cell.first_rows, " to ", cell.last_rows);
}

json CellToJson(const LinearTuneCell& cell, const LinearShape& shape) {
  json kernels = json::array();
  for (const LinearKernelTimes& times : cell.kernels)
    kernels.push_back({{"kernel", NameOfKernel(times)},
                       {"replays", times.ns.count()},
                       {"us", Microseconds(times.MedianNs())},
                       {"spread_us", Microseconds(times.SpreadNs())}});
  return {{"layer", shape.name},
          {"weights", std::string(kernels::NameOf(shape.format))},
          {"group_size", shape.group_size},
          {"out_features", shape.out_features},
          {"in_features", shape.in_features},
          {"rows", cell.last_rows},
          {"built_in", NameOfKernel(cell.built_in())},
          {"chosen", cell.chosen == 0 ? json(nullptr) : json(NameOfKernel(cell.best()))},
          {"kernels", std::move(kernels)}};
}

// Cells in which there was something to choose.
size_t NumMeasured(const TunedLinear& tuned) {
  return static_cast<size_t>(
      std::count_if(tuned.cells.begin(), tuned.cells.end(),
                    [](const LinearTuneCell& cell) { return cell.kernels.size() > 1; }));
}

std::string CellsTable(const TunedLinear& tuned, const std::vector<LinearShape>& shapes,
                       size_t width) {
  Table table({"layer", "weights", "rows", "built-in us", "spread us", "kernels", "chosen us",
               "spread us", "gain", "chosen"});
  table.SetKeys(3);
  for (const LinearTuneCell& cell : tuned.cells) {
    if (cell.kernels.size() == 1) continue;
    const LinearShape& shape = shapes[cell.shape];
    const bool chosen = cell.chosen != 0;
    table.AddRow(
        {absl::StrCat(shape.name, shape.per_step == 0 ? "" : " ",
                      shape.per_step == 0 ? "" : shape.SizeText()),
         std::string(kernels::NameOf(shape.format)), RowsText(cell), Us(cell.built_in().MedianNs()),
         Us(cell.built_in().SpreadNs()), absl::StrCat(cell.kernels.size()),
         chosen ? Us(cell.best().MedianNs()) : "-", chosen ? Us(cell.best().SpreadNs()) : "-",
         chosen ? FormatPercent(cell.Gain()) : "-", chosen ? NameOfKernel(cell.best()) : "-"});
  }
  return table.ToString(width);
}

}  // namespace

json LinearTuneNotes(const TunedLinear& tuned, const std::vector<LinearShape>& shapes,
                     const json& record, const json& device, const json& settings) {
  json measured = json::array();
  for (const LinearTuneCell& cell : tuned.cells)
    if (cell.kernels.size() > 1) measured.push_back(CellToJson(cell, shapes[cell.shape]));
  return {{"made_by", record},
          {"device", device},
          {"settings", settings},
          {"measured", std::move(measured)}};
}

std::string LinearTuneText(const TunedLinear& tuned, const std::vector<LinearShape>& shapes,
                           std::string_view device, size_t width) {
  if (NumMeasured(tuned) == 0) {
    std::set<std::string> names;
    for (const LinearTuneCell& cell : tuned.cells) names.insert(NameOfKernel(cell.built_in()));
    return Paragraph(
        absl::StrCat("nothing to choose from: on ", std::string(device),
                     " no kernel but the built-in choice, ", absl::StrJoin(names, " or "),
                     ", has its bits; nothing was measured, and the table has no entries"),
        width);
  }
  const auto chosen = static_cast<size_t>(
      std::count_if(tuned.cells.begin(), tuned.cells.end(),
                    [](const LinearTuneCell& cell) { return cell.chosen != 0; }));
  const size_t measured = NumMeasured(tuned), alone = tuned.cells.size() - measured;
  return absl::StrCat(
      CellsTable(tuned, shapes, width), "\n",
      Paragraph(
          absl::StrCat(
              "chosen: ", chosen, " of ", measured,
              " cells; in the others no kernel was faster than the built-in choice "
              "by more than the spread",
              alone == 0 ? "" : absl::StrCat("; ", alone, " more have the built-in choice alone")),
          width));
}

std::string LinearTuneWarning(const TunedLinear& tuned) {
  Samples spreads;
  for (const LinearTuneCell& cell : tuned.cells)
    if (cell.kernels.size() > 1)
      spreads.Add(cell.built_in().SpreadNs() / cell.built_in().MedianNs());
  const double spread = spreads.empty() ? 0 : spreads.Percentile(50);
  if (spread <= kTrustedSpread) return "";
  return absl::StrCat("replays of one kernel differ by ", FormatPercent(spread), " (more than ",
                      FormatPercent(kTrustedSpread),
                      "): something else uses the device, or its clocks change");
}

}  // namespace reprise::tools
