// SPDX-License-Identifier: Apache-2.0
#include "engine/simulation/prompt_cost.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "engine/simulation/step_cost.h"

namespace reprise::engine {
namespace {

// Medians of rounds that lie further apart bring a warning (docs/profile.md): differences below
// that may be noise, which attending over a long context would multiply.
constexpr double kLeastDifference = 0.05;

absl::Status CheckPromptPoint(const PromptCostPoint& point) {
  // Numbers that are none fail as well.
  if (point.tokens >= 1 && point.tokens <= kMaxCostRows && point.attended > 0 &&
      point.attended <= kMaxCostContext && point.device_ns > 0 &&
      point.device_ns <= static_cast<double>(kMaxStepNs))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "point: got ", point.tokens, " tokens of prompts that attend over ", point.attended, ", ",
      point.device_ns, " ns; allowed: all of them above 0, up to ", kMaxCostRows, " tokens, over ",
      kMaxCostContext, ", ", kMaxStepNs, " ns"));
}

}  // namespace

absl::StatusOr<PromptCost> PromptCost::Create(std::vector<PromptCostPoint> points) {
  std::sort(points.begin(), points.end(), [](const PromptCostPoint& a, const PromptCostPoint& b) {
    return std::tuple(a.tokens, a.attended) < std::tuple(b.tokens, b.attended);
  });
  PromptCost cost;
  for (const PromptCostPoint& point : points) {
    if (const absl::Status checked = CheckPromptPoint(point); !checked.ok()) return checked;
    if (cost.lines_.empty() || cost.lines_.back().tokens != point.tokens)
      cost.lines_.push_back({.tokens = static_cast<double>(point.tokens)});
    std::vector<PromptCostPoint>& line = cost.lines_.back().points;
    if (!line.empty() && line.back().attended == point.attended) {
      return absl::InvalidArgumentError(absl::StrCat("points: got two of ", point.tokens,
                                                     " tokens of prompts that attend over ",
                                                     point.attended, " in the mean, allowed: one"));
    }
    line.push_back(point);
  }
  cost.SetNsPerPair();
  return cost;
}

// From the two points of one number of tokens that are furthest apart.
void PromptCost::SetNsPerPair() {
  double most_pairs = 0;
  for (const Line& line : lines_) {
    const PromptCostPoint& least = line.points.front();
    const PromptCostPoint& most = line.points.back();
    const double pairs = line.tokens * (most.attended - least.attended);
    if (pairs <= most_pairs) continue;
    most_pairs = pairs;
    const double ns = most.device_ns - least.device_ns;
    ns_per_pair_ = ns < kLeastDifference * least.device_ns ? 0 : ns / pairs;
  }
}

// Straight between points, and by what a pair takes beyond them.
double PromptCost::At(const Line& line, double attended) const {
  const PromptCostPoint& least = line.points.front();
  const PromptCostPoint& most = line.points.back();
  const double ns_of_each = ns_per_pair_ * line.tokens;
  if (attended < least.attended) return least.device_ns - (least.attended - attended) * ns_of_each;
  if (attended > most.attended) return most.device_ns + (attended - most.attended) * ns_of_each;
  const auto above = std::lower_bound(
      line.points.begin(), line.points.end(), attended,
      [](const PromptCostPoint& point, double value) { return point.attended < value; });
  if (above->attended == attended) return above->device_ns;
  const auto below = std::prev(above);
  return std::lerp(below->device_ns, above->device_ns,
                   (attended - below->attended) / (above->attended - below->attended));
}

double PromptCost::Beyond(double tokens, double attended) const {
  const Line& last = lines_.back();
  const double last_ns = At(last, attended);
  if (lines_.size() == 1) return last_ns * tokens / last.tokens;
  const Line& before = lines_[lines_.size() - 2];
  const double share = (tokens - before.tokens) / (last.tokens - before.tokens);
  return std::max(last_ns, std::lerp(At(before, attended), last_ns, share));
}

double PromptCost::TimeNs(double tokens, double attended, double least_ns) const {
  const auto above =
      std::lower_bound(lines_.begin(), lines_.end(), tokens,
                       [](const Line& line, double value) { return line.tokens < value; });
  if (above == lines_.end()) return std::max(Beyond(tokens, attended), least_ns);
  double ns = At(*above, attended);
  if (above->tokens != tokens) {
    const bool is_first = above == lines_.begin();
    const double below_tokens = is_first ? 1 : std::prev(above)->tokens;
    const double below_ns =
        is_first ? least_ns + ns_per_pair_ * attended : At(*std::prev(above), attended);
    ns = std::lerp(below_ns, ns, (tokens - below_tokens) / (above->tokens - below_tokens));
  }
  return std::max(ns, least_ns);
}

}  // namespace reprise::engine
