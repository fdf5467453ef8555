// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/tune_report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/profile/profiler.h"
#include "tools/table.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

using nlohmann::json;

constexpr char kNone[] = "-";

// Time by time, less 1, in the geometric mean.
double MeanChange(const Samples& logs) { return std::exp(logs.Mean()) - 1; }

json RegretToJson(const Regret& regret) {
  if (regret.values.empty()) return {{"batches", 0}};
  return {{"batches", regret.values.count()},
          {"mean", regret.values.Mean()},
          {"largest", regret.values.Max()},
          {"largest_in", regret.worst}};
}

json ChangeToJson(const Samples& logs) {
  if (logs.empty()) return nullptr;
  return {{"batches", logs.count()}, {"mean_change", MeanChange(logs)}};
}

json StageToJson(const TuneStage& stage) {
  return {{"stage", stage.name},
          {"batches", stage.num_batches},
          {"left_out", stage.num_left_out},
          {"candidates", stage.num_candidates},
          {"most_rows", stage.most_rows},
          {"longest_row", stage.longest},
          {"spread", stage.spread},
          {"seconds", std::round(stage.seconds * 10) / 10},
          {"mean_cost", stage.mean_cost},
          {"mean_cost_of_built_in", stage.mean_cost_first}};
}

json InvarianceToJson(const std::vector<InvarianceCost>& costs) {
  json list = json::array();
  for (const InvarianceCost& cost : costs)
    list.push_back({{"batch", cost.batch},
                    {"standard", cost.standard},
                    {"us", std::round(cost.ns) / 1000},
                    {"best_us", std::round(cost.best_ns) / 1000},
                    {"choice", cost.choice.empty() ? json(nullptr) : json(cost.choice)},
                    {"cost", std::round(cost.Cost() * 1e5) / 1e5}});
  return list;
}

// The standard cells, one by one.
std::string InvarianceTable(const std::vector<InvarianceCost>& costs, size_t width) {
  Table table({"cell", "invariant us", "best us", "best choice", "cost"});
  for (const InvarianceCost& cost : costs)
    if (cost.standard)
      table.AddRow({cost.batch, absl::StrFormat("%.2f", cost.ns / 1000),
                    absl::StrFormat("%.2f", cost.best_ns / 1000),
                    cost.choice.empty() ? "the tree's" : cost.choice, FormatPercent(cost.Cost())});
  return table.empty() ? "" : table.ToString(width) + "\n";
}

// "cost of invariance: held-out batches, 30: 1.0 % in the mean, 4.2 % at most (...); 2 with a
// faster choice left out for want of time". Batches without one are never left out, so the mean is
// too low then.
std::string InvarianceText(const TunedTree& tuned) {
  std::string text;
  for (const bool standard : {false, true}) {
    Regret all;
    for (const InvarianceCost& cost : tuned.invariance) {
      if (cost.standard != standard) continue;
      if (all.values.empty() || cost.Cost() > all.values.Max()) all.worst = cost.batch;
      all.values.Add(cost.Cost());
    }
    if (all.values.empty()) continue;
    absl::StrAppend(&text, text.empty() ? "" : "; ",
                    standard ? "standard cells, " : "held-out batches, ", all.values.count(), ": ",
                    FormatPercent(all.values.Mean()), " in the mean, ",
                    FormatPercent(all.values.Max()), " at most (", all.worst, ")");
  }
  if (tuned.invariance_left_out != 0)
    absl::StrAppend(&text, text.empty() ? "" : "; ", tuned.invariance_left_out,
                    " with a faster choice left out for want of time");
  return text.empty() ? "" : absl::StrCat("cost of invariance: ", text);
}

// "3.1 % less time", "0.2 % more time".
std::string ChangeText(const Samples& logs) {
  const double change = MeanChange(logs);
  return absl::StrCat(FormatPercent(std::abs(change)), change > 0 ? " more time" : " less time");
}

std::string StagesText(const TunedTree& tuned) {
  std::string text;
  for (const TuneStage& stage : tuned.stages) {
    absl::StrAppend(&text, text.empty() ? "measured: " : "; ", stage.name, " ", stage.num_batches,
                    stage.num_batches == 1 ? " batch x " : " batches x ", stage.num_candidates);
    if (stage.num_left_out != 0)
      absl::StrAppend(&text, " (", stage.num_left_out, " left out for want of time)");
  }
  return text;
}

}  // namespace

json TuneNotes(const TunedTree& tuned, const json& record, const json& settings) {
  json swept = json::array(), leaves = json::array();
  for (const TuneStage& stage : tuned.stages) swept.push_back(StageToJson(stage));
  for (const LeafReport& leaf : tuned.leaves)
    leaves.push_back({{"tree", leaf.tree},
                      {"leaf", leaf.leaf},
                      {"when", leaf.when},
                      {"fitted_on", leaf.fitted_on},
                      {"regret", RegretToJson(leaf.regret)}});
  return {{"made_by", record},
          {"settings", settings},
          {"swept", std::move(swept)},
          {"leaves", std::move(leaves)},
          {"regret", RegretToJson(tuned.regret)},
          {"of_built_in", ChangeToJson(tuned.of_before)},
          {"of_batch_invariant", tuned.of_invariant ? ChangeToJson(*tuned.of_invariant) : nullptr},
          {"invariance", InvarianceToJson(tuned.invariance)},
          {"invariance_left_out", tuned.invariance_left_out}};
}

std::string TuneText(const TunedTree& tuned, size_t width) {
  Table table({"tree", "leaf", "when", "fitted on", "held out", "regret", "largest"});
  table.AlignLeft();
  table.SetKeys(2);
  for (const LeafReport& leaf : tuned.leaves) {
    const Samples& regret = leaf.regret.values;
    table.AddRow({leaf.tree, leaf.leaf, leaf.when, absl::StrCat(leaf.fitted_on),
                  absl::StrCat(regret.count()),
                  regret.empty() ? kNone : FormatPercent(regret.Mean()),
                  regret.empty() ? kNone : FormatPercent(regret.Max())});
  }
  std::string text = table.ToString(width) + "\n" + InvarianceTable(tuned.invariance, width) +
                     Paragraph(StagesText(tuned), width);
  const Regret& all = tuned.regret;
  if (!all.values.empty()) {
    text += Paragraph(
        absl::StrCat("held out: ", all.values.count(), " batches, ",
                     FormatPercent(all.values.Mean()), " over the best choice in the mean, ",
                     FormatPercent(all.values.Max()), " at most (", all.worst, "); ",
                     ChangeText(tuned.of_before), " than by the built-in tree"),
        width);
  }
  if (tuned.of_invariant && !tuned.of_invariant->empty())
    text += Paragraph(absl::StrCat("asking rows for the batch: ", ChangeText(*tuned.of_invariant),
                                   " than by the tree that does not"),
                      width);
  const std::string invariance = InvarianceText(tuned);
  if (!invariance.empty()) text += Paragraph(invariance, width);
  return text;
}

std::string TuneWarning(const TunedTree& tuned) {
  double spread = 0;
  for (const TuneStage& stage : tuned.stages) spread = std::max(spread, stage.spread);
  std::string text;
  if (spread > kTrustedSpread)
    text = absl::StrCat("replays of one candidate differ by ", FormatPercent(spread),
                        " (more than ", FormatPercent(kTrustedSpread),
                        "): something else uses the device, or its clocks change");
  if (!tuned.of_before.empty() && MeanChange(tuned.of_before) > 0)
    absl::StrAppend(&text, text.empty() ? "" : "; ",
                    "on held-out batches the tree is no faster than the built-in one");
  return text;
}

}  // namespace reprise::tools
