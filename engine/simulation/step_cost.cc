// SPDX-License-Identifier: Apache-2.0
#include "engine/simulation/step_cost.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <tuple>

#include "absl/strings/str_cat.h"

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

absl::StatusOr<StepCost> StepCost::Create(std::vector<StepCostPoint> points) {
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
  return cost;
}

double StepCost::Line::At(double context) const {
  const size_t i = Segment(points, context, [](const StepCostPoint& p) { return p.context; });
  return Straight(context, points[i].context, points[i].device_ns, points[i + 1].context,
                  points[i + 1].device_ns);
}

uint64_t StepCost::TimeNs(const StepLoad& load) const {
  const auto tokens = static_cast<double>(std::max<uint64_t>(load.tokens, 1));
  const double context = static_cast<double>(load.kv_tokens) / tokens;
  const double rows = std::max(tokens, lines_.front().rows);
  const size_t i = Segment(lines_, rows, [](const Line& line) { return line.rows; });
  const double ns = Straight(rows, lines_[i].rows, lines_[i].At(context), lines_[i + 1].rows,
                             lines_[i + 1].At(context));
  // A line between points that are close rises beyond any number far from them.
  if (!(ns < static_cast<double>(kMaxStepNs))) return kMaxStepNs;
  return static_cast<uint64_t>(std::llround(std::max(ns, shortest_ns_)));
}

}  // namespace reprise::engine
