// SPDX-License-Identifier: Apache-2.0
#include "tools/top/top_figures.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace reprise::tools {
namespace {

constexpr char kStartTime[] = "reprise_start_time_seconds";
constexpr char kUptime[] = "reprise_uptime_seconds";

// Two looks, and what counters gained between them.
class Looks {
 public:
  Looks(const MetricsText& before, const MetricsText& now) : before_(before), now_(now) {
    const double start = before.Value(kStartTime);
    restarted_ = before.Has(kStartTime) && start != now.Value(kStartTime);
    since_start_ = restarted_ || !before.Has(kStartTime);
    seconds_ = now.Value(kUptime) - (since_start_ ? 0 : before.Value(kUptime));
  }

  bool restarted() const { return restarted_; }
  double seconds() const { return seconds_; }
  const MetricsText& now() const { return now_; }

  double Gain(const std::string& name, const MetricLabels& labels = {}) const {
    const double past = since_start_ ? 0 : before_.Value(name, labels);
    return std::max(0.0, now_.Value(name, labels) - past);
  }
  double SumGain(const std::string& name) const {
    return std::max(0.0, now_.Sum(name) - (since_start_ ? 0 : before_.Sum(name)));
  }
  double Rate(double gain) const { return seconds_ > 0 ? gain / seconds_ : 0; }
  TopFigures::Count CountOf(const std::string& name) const {
    return {.now = SumGain(name), .total = now_.Sum(name)};
  }

  // What a histogram gained.
  MetricHistogram Gained(const std::string& name, const MetricLabels& labels) const {
    MetricHistogram gained = now_.Histogram(name, labels);
    if (since_start_) return gained;
    const MetricHistogram past = before_.Histogram(name, labels);
    if (past.edges != gained.edges) return gained;
    for (size_t i = 0; i < gained.counts.size(); ++i)
      gained.counts[i] = std::max(0.0, gained.counts[i] - past.counts[i]);
    return gained;
  }

 private:
  const MetricsText& before_;
  const MetricsText& now_;
  bool restarted_ = false;
  bool since_start_ = false;
  double seconds_ = 0;
};

TimeQuantiles QuantilesOf(const MetricHistogram& times) {
  return {.p50 = times.Quantile(0.5), .p90 = times.Quantile(0.9), .p99 = times.Quantile(0.99)};
}

GraphFigures FiguresOfGraph(const Looks& looks, const std::string& graph) {
  const MetricLabels labels = {{"graph", graph}};
  const double steps = looks.Gain("reprise_steps_total", labels);
  const double tokens = looks.Gain("reprise_step_tokens_total", labels);
  const double padding = looks.Gain("reprise_step_padding_tokens_total", labels);
  return {.name = graph,
          .steps_per_second = looks.Rate(steps),
          .rows_per_step = steps > 0 ? looks.Gain("reprise_step_rows_total", labels) / steps : 0,
          .padding = tokens + padding > 0 ? padding / (tokens + padding) : 0,
          .device = QuantilesOf(looks.Gained("reprise_step_device_seconds", labels)),
          .wall = QuantilesOf(looks.Gained("reprise_request_wall_seconds", labels))};
}

void AddSteps(const Looks& looks, TopFigures* figures) {
  figures->steps_per_second = looks.Rate(looks.SumGain("reprise_steps_total"));
  figures->sampled_tokens_per_second = looks.Rate(looks.Gain("reprise_sampled_tokens_total"));
  figures->prompt_tokens_per_second = looks.Rate(looks.Gain("reprise_prompt_tokens_total"));
  figures->device_busy = looks.Rate(looks.SumGain("reprise_step_device_seconds_sum"));
  MetricHistogram queue;
  for (const std::string& graph : looks.now().LabelsOf("reprise_steps_total", "graph")) {
    const MetricHistogram waited =
        looks.Gained("reprise_request_queue_seconds", {{"graph", graph}});
    queue.edges = waited.edges;
    queue.counts.resize(waited.counts.size());
    for (size_t i = 0; i < waited.counts.size(); ++i) queue.counts[i] += waited.counts[i];
    if (looks.Gain("reprise_steps_total", {{"graph", graph}}) > 0)
      figures->graphs.push_back(FiguresOfGraph(looks, graph));
  }
  figures->queue = QuantilesOf(queue);
}

void AddNow(const MetricsText& now, TopFigures* figures) {
  figures->pool_blocks = now.Value("reprise_pool_blocks");
  figures->pool_free_blocks = now.Value("reprise_pool_free_blocks");
  figures->rows = now.Value("reprise_resident_rows");
  figures->max_rows = now.Value("reprise_resident_rows_limit");
  figures->sessions = now.Value("reprise_sessions_open");
  figures->detached_sessions = now.Value("reprise_sessions_detached");
  figures->max_sessions = now.Value("reprise_sessions_limit");
  figures->requests_waiting = now.Value("reprise_requests_waiting");
  figures->requests_in_flight = now.Value("reprise_requests_in_flight");
  figures->sessions_waiting = now.Value("reprise_sessions_waiting");
  figures->oldest_wait_seconds = now.Value("reprise_oldest_wait_seconds");
  figures->served_spread_seconds = now.Value("reprise_served_spread_seconds");
  figures->message_bytes = now.Value("reprise_waiting_message_bytes");
  figures->max_message_bytes = now.Value("reprise_waiting_message_limit_bytes");
  figures->connections = now.Value("reprise_connections_open");
  figures->device_faults = now.Value("reprise_device_faults_total");
}

void AddRefusals(const Looks& looks, TopFigures* figures) {
  constexpr char kRefused[] = "reprise_requests_refused_total";
  for (const std::string& code : looks.now().LabelsOf(kRefused, "code")) {
    const MetricLabels labels = {{"code", code}};
    const double total = looks.now().Value(kRefused, labels);
    if (total > 0)
      figures->refused.push_back({code, {.now = looks.Gain(kRefused, labels), .total = total}});
  }
  figures->lost = looks.CountOf("reprise_requests_lost_total");
  figures->sessions_refused = looks.CountOf("reprise_sessions_refused_total");
  figures->connections_refused = looks.CountOf("reprise_connections_refused_total");
  figures->connections_cut = looks.CountOf("reprise_connections_cut_total");
  figures->log_dropped = looks.CountOf("reprise_access_log_dropped_total");
}

std::string FirstLabel(const MetricsText& now, const std::string& name, const std::string& label) {
  const std::vector<std::string> values = now.LabelsOf(name, label);
  return values.empty() ? "" : values.front();
}

}  // namespace

absl::Status CheckMetrics(const MetricsText& now, const std::string& address) {
  if (now.Has("reprise_build_info") && now.Has(kStartTime)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(address,
                   " answers with metrics of another program; allowed: what `reprise "
                   "serve --metrics ADDRESS` serves"));
}

TopFigures FiguresOf(const MetricsText& before, const MetricsText& now) {
  const Looks looks(before, now);
  TopFigures figures;
  figures.loaded = now.Has("reprise_pool_blocks");
  figures.serving = now.Value("reprise_serving") == 1;
  figures.restarted = looks.restarted();
  figures.seconds = looks.seconds();
  figures.uptime_seconds = now.Value(kUptime);
  figures.version = FirstLabel(now, "reprise_build_info", "version");
  figures.device = FirstLabel(now, "reprise_device_info", "name");
  AddSteps(looks, &figures);
  AddNow(now, &figures);
  AddRefusals(looks, &figures);
  return figures;
}

}  // namespace reprise::tools
