// SPDX-License-Identifier: Apache-2.0
#include "tools/advise/bucket_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "models/config/json_input.h"
#include "runtime/status_macros.h"
#include "tools/profile/profile_file.h"

namespace reprise::tools {
namespace {

using nlohmann::json;

constexpr double kNsPerUs = 1e3;

constexpr int64_t kMostRows = 1 << 20;
constexpr int64_t kMostBytes = int64_t{1} << 60;

absl::StatusOr<ServedGraphs> GraphsOf(const json& engine, const std::string& path) {
  ServedGraphs graphs;
  const auto list = engine.find("graphs");
  if (list == engine.end() || !list->is_array()) return graphs;
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string at = absl::StrCat(path, "graphs[", i, "]");
    const json& graph = (*list)[i];
    if (!graph.is_object()) {
      return absl::InvalidArgumentError(
          absl::StrCat(at, ": got ", models::ShowJson(graph), ", allowed: an object"));
    }
    const models::JsonFields fields(graph, at + ".");
    REPRISE_ASSIGN_OR_RETURN(const std::string name, fields.StringOr("name", ""));
    REPRISE_ASSIGN_OR_RETURN(const int64_t capacity, fields.Integer("capacity", 1, kMostRows));
    REPRISE_ASSIGN_OR_RETURN(const int64_t bytes,
                             fields.IntegerOr("device_bytes", 0, 0, kMostBytes));
    graphs.Add(name.starts_with("decode/"), capacity, static_cast<double>(bytes));
  }
  return graphs;
}

struct MeasuredStep {
  int64_t rows = 0, padding = 0;
  double context = 0, mean_context = 0;
  double device_ns = 0;
  int64_t capacity() const { return rows + padding; }
};

absl::StatusOr<MeasuredStep> ReadStep(const json& point, const std::string& path) {
  const models::JsonFields fields(point, path);
  MeasuredStep step{.device_ns = point["plain"]["device_us"]["p50"].get<double>() * kNsPerUs};
  REPRISE_ASSIGN_OR_RETURN(step.rows, fields.Integer("rows", 1, kMostRows));
  REPRISE_ASSIGN_OR_RETURN(step.padding, fields.Integer("padding_rows", 0, kMostRows));
  REPRISE_ASSIGN_OR_RETURN(step.context, fields.Positive("context"));
  REPRISE_ASSIGN_OR_RETURN(step.mean_context, fields.PositiveOr("mean_context", step.context));
  return step;
}

// Of points with prompts: each bucket's times, those with the least padding alone.
struct MixedTimes {
  int64_t padding = 0;
  std::vector<double> ns;
};

absl::StatusOr<std::map<int64_t, MixedTimes>> ReadMixed(const json& points,
                                                        const std::string& path) {
  std::map<int64_t, MixedTimes> by_capacity;
  for (size_t i = 0; i < points.size(); ++i) {
    const auto prompts = points[i].find("prompts");
    if (prompts == points[i].end() || !prompts->is_array() || prompts->empty()) continue;
    const models::JsonFields fields(points[i], absl::StrCat(path, "points[", i, "]."));
    REPRISE_ASSIGN_OR_RETURN(int64_t capacity, fields.Integer("rows", 0, kMostRows));
    REPRISE_ASSIGN_OR_RETURN(const int64_t padding, fields.Integer("padding_tokens", 0, kMostRows));
    for (const json& tokens : *prompts) {
      if (!tokens.is_number_integer() || tokens < 1 || tokens > kMostRows)
        return fields.Refuse("prompts", "an array of whole numbers from 1 on");
      capacity += tokens.get<int64_t>();
    }
    capacity += padding;
    const auto [at, is_new] =
        by_capacity.emplace(capacity, MixedTimes{.padding = padding, .ns = {}});
    if (padding < at->second.padding) at->second = {.padding = padding, .ns = {}};
    if (padding == at->second.padding)
      at->second.ns.push_back(points[i]["plain"]["device_us"]["p50"].get<double>() * kNsPerUs);
  }
  return by_capacity;
}

// Those that the rule is of.
absl::StatusOr<std::vector<MeasuredStep>> ReadSteps(const json& points, const std::string& path) {
  std::vector<MeasuredStep> steps;
  for (size_t i = 0; i < points.size(); ++i) {
    if (!IsUniformDecode(points[i])) continue;
    REPRISE_ASSIGN_OR_RETURN(steps.emplace_back(),
                             ReadStep(points[i], absl::StrCat(path, "points[", i, "].")));
  }
  return steps;
}

}  // namespace

absl::StatusOr<BucketCost> BucketCost::OfProfile(const std::string& file, const json& profile) {
  BucketCost cost;
  cost.file_ = file;
  cost.device_ = profile["engine"]["device"]["name"].get<std::string>();
  REPRISE_ASSIGN_OR_RETURN(cost.graphs_, GraphsOf(profile["engine"], file + ": engine."));
  REPRISE_ASSIGN_OR_RETURN(const std::vector<MeasuredStep> steps,
                           ReadSteps(profile["points"], file + ": "));
  cost.shortest_context_ = std::numeric_limits<double>::infinity();
  // What was measured with padding is a point of its bucket, and says less of it than one without.
  std::map<int64_t, int64_t> least_padding;
  for (const MeasuredStep& step : steps) {
    const auto [at, is_new] = least_padding.emplace(step.capacity(), step.padding);
    if (!is_new) at->second = std::min(at->second, step.padding);
  }
  std::vector<engine::StepCostPoint> points;
  for (const MeasuredStep& step : steps) {
    cost.shortest_context_ = std::min(cost.shortest_context_, step.mean_context);
    cost.longest_context_ = std::max(cost.longest_context_, step.context);
    if (step.padding != least_padding[step.capacity()]) continue;
    points.push_back({.rows = static_cast<uint32_t>(step.capacity()),
                      .context = step.mean_context * static_cast<double>(step.rows) /
                                 static_cast<double>(step.capacity()),
                      .device_ns = step.device_ns});
  }
  for (const auto& [capacity, padding] : least_padding) cost.sizes_.push_back(capacity);
  REPRISE_ASSIGN_OR_RETURN(const auto mixed, ReadMixed(profile["points"], file + ": "));
  for (const auto& [capacity, times] : mixed) {
    cost.mixed_sizes_.push_back(capacity);
    cost.mixed_ns_.push_back(std::accumulate(times.ns.begin(), times.ns.end(), 0.0) /
                             static_cast<double>(times.ns.size()));
  }
  absl::StatusOr<engine::StepCost> time = engine::StepCost::Create(std::move(points));
  if (!time.ok())
    return absl::Status(time.status().code(), absl::StrCat(file, ": ", time.status().message()));
  cost.time_ = *std::move(time);
  return cost;
}

double BucketCost::Of(StepKind kind, const StepGroup& group, int64_t capacity) const {
  if (!time_) return static_cast<double>(capacity);
  const std::vector<int64_t>& measured = sizes(kind);
  if (capacity < measured.front() || capacity > measured.back())
    return std::numeric_limits<double>::infinity();
  if (HasTimesOf(kind)) {
    const auto above = std::lower_bound(measured.begin(), measured.end(), capacity);
    const auto i = static_cast<size_t>(above - measured.begin());
    if (*above == capacity) return mixed_ns_[i];
    const double share = static_cast<double>(capacity - measured[i - 1]) /
                         static_cast<double>(measured[i] - measured[i - 1]);
    return mixed_ns_[i - 1] + share * (mixed_ns_[i] - mixed_ns_[i - 1]);
  }
  return static_cast<double>(
      time_->TimeNs({.tokens = static_cast<uint64_t>(capacity),
                     .kv_tokens = static_cast<uint64_t>(std::llround(group.kv_tokens))}));
}

absl::Status BucketCost::CheckCovers(StepKind kind, std::span<const StepGroup> groups) const {
  if (!time_ || groups.empty()) return absl::OkStatus();
  const std::string what = kind == StepKind::kDecode ? "decode steps" : "mixed steps";
  const auto refuse = [&](const std::string& got, const std::string& allowed) {
    return absl::FailedPreconditionError(absl::StrCat(
        file_, ": it covers too little for the trace: ", what, ": got ", got,
        ", allowed: ", allowed,
        ", which it has measured; measure more, leave --profile out to count padding, or choose "
        "the other buckets alone (--kind)"));
  };
  const std::vector<int64_t>& measured = sizes(kind);
  if (groups.front().size < measured.front() || groups.back().size > measured.back()) {
    return refuse(absl::StrCat("sizes from ", groups.front().size, " to ", groups.back().size),
                  absl::StrCat(measured.front(), " to ", measured.back()));
  }
  if (HasTimesOf(kind)) return absl::OkStatus();
  for (const StepGroup& group : groups) {
    const double rows = std::max<double>(1, static_cast<double>(group.size));
    const double context = group.kv_tokens / rows;
    if (context <= longest_context_) continue;
    return refuse(absl::StrCat("a mean context of ", std::llround(context), " tokens at ",
                               group.size, " rows"),
                  absl::StrCat("up to ", longest_context_));
  }
  return absl::OkStatus();
}

}  // namespace reprise::tools
