// SPDX-License-Identifier: Apache-2.0
#include "engine/simulation/step_cost.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::engine {
namespace {

// The first of two neighbours between which `x` is read: beyond the ends, the nearest two.
template <typename Items, typename KeyOf>
size_t Segment(const Items& items, double x, const KeyOf& key_of) {
  size_t i = 0;
  while (i + 2 < items.size() && key_of(items[i + 1]) < x) ++i;
  return i;
}

double Straight(double x, double x0, double y0, double x1, double y1) {
  return y0 + (y1 - y0) * (x - x0) / (x1 - x0);
}

// A line between points that are close rises beyond any number far from them.
double Bounded(double ns) {
  constexpr auto kMost = static_cast<double>(kMaxStepNs);
  return ns < kMost ? ns : kMost;  // also of what is no number
}

absl::Status CheckPoint(const StepCostPoint& point) {
  // Numbers that are none fail as well.
  if (point.rows >= 1 && point.rows <= kMaxCostRows && point.context > 0 &&
      point.context <= kMaxCostContext && point.device_ns > 0 &&
      point.device_ns <= static_cast<double>(kMaxStepNs))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("point: got ", point.rows, " rows, context ", point.context, ", ",
                   point.device_ns, " ns; allowed: all of them above 0, up to ", kMaxCostRows,
                   " rows, context ", kMaxCostContext, ", ", kMaxStepNs, " ns"));
}

}  // namespace

absl::StatusOr<StepCost> StepCost::Create(std::vector<StepCostPoint> points,
                                          std::vector<PromptCostPoint> prompts) {
  std::sort(points.begin(), points.end(), [](const StepCostPoint& a, const StepCostPoint& b) {
    return std::tuple(a.rows, a.context) < std::tuple(b.rows, b.context);
  });
  StepCost cost;
  for (const StepCostPoint& point : points) {
    if (const absl::Status checked = CheckPoint(point); !checked.ok()) return checked;
    if (cost.lines_.empty() || cost.lines_.back().rows != point.rows)
      cost.lines_.push_back({.rows = static_cast<double>(point.rows)});
    std::vector<StepCostPoint>& line = cost.lines_.back().points;
    if (!line.empty() && line.back().context == point.context) {
      return absl::InvalidArgumentError(absl::StrCat("points: got two of ", point.rows,
                                                     " rows and context ", point.context,
                                                     ", allowed: one"));
    }
    line.push_back(point);
    cost.shortest_ns_ =
        cost.shortest_ns_ == 0 ? point.device_ns : std::min(cost.shortest_ns_, point.device_ns);
  }
  if (cost.lines_.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("points: got ", cost.lines_.size(), " numbers of rows, allowed: two or more"));
  }
  for (const Line& line : cost.lines_) {
    if (line.points.size() >= 2) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("points: got one context for ", line.rows, " rows, allowed: two or more"));
  }
  REPRISE_ASSIGN_OR_RETURN(cost.prompts_, PromptCost::Create(std::move(prompts)));
  return cost;
}

double StepCost::Line::At(double context) const {
  const size_t i = Segment(points, context, [](const StepCostPoint& p) { return p.context; });
  return Straight(context, points[i].context, points[i].device_ns, points[i + 1].context,
                  points[i + 1].device_ns);
}

double StepCost::DecodeNs(double tokens, double kv_tokens) const {
  tokens = std::max(tokens, 1.0);
  const double context = kv_tokens / tokens;
  const double rows = std::max(tokens, lines_.front().rows);
  const size_t i = Segment(lines_, rows, [](const Line& line) { return line.rows; });
  const double ns = Straight(rows, lines_[i].rows, lines_[i].At(context), lines_[i + 1].rows,
                             lines_[i + 1].At(context));
  return Bounded(std::max(ns, shortest_ns_));
}

// As if the step ran nothing else. What as many rows take that decode is what reading the chunks'
// KV takes at least.
double StepCost::ChunksNs(const StepLoad& load) const {
  const auto tokens = static_cast<double>(load.chunk_tokens);
  const double attended = static_cast<double>(load.chunk_pairs) / tokens;
  const double ns = prompts_.TimeNs(tokens, attended, shortest_ns_);
  return std::max(ns, DecodeNs(static_cast<double>(load.chunk_rows),
                               static_cast<double>(load.chunk_kv_tokens)));
}

uint64_t StepCost::TimeNs(const StepLoad& load) const {
  double ns = 0;
  if (prompts_.empty() || load.chunk_tokens == 0) {
    ns = DecodeNs(static_cast<double>(load.tokens), static_cast<double>(load.kv_tokens));
  } else {
    ns = ChunksNs(load);
    if (load.tokens > load.chunk_tokens) {
      // Both read the weights, which is all that the shortest step does.
      ns += DecodeNs(static_cast<double>(load.tokens - load.chunk_tokens),
                     static_cast<double>(load.kv_tokens - load.chunk_kv_tokens)) -
            shortest_ns_;
    }
  }
  return static_cast<uint64_t>(std::llround(Bounded(ns)));
}

}  // namespace reprise::engine
