// SPDX-License-Identifier: Apache-2.0
// TopFigures: what `reprise top` shows: rates and quantiles between two looks at a server's
// metrics. No I/O. docs/metrics.md says what the metrics are.
#ifndef REPRISE_TOOLS_TOP_TOP_FIGURES_H_
#define REPRISE_TOOLS_TOP_TOP_FIGURES_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "tools/top/metrics_text.h"

namespace reprise::tools {

// Seconds; NaN where nothing was counted.
struct TimeQuantiles {
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
};

// Of one graph, between the two looks.
struct GraphFigures {
  std::string name;
  double steps_per_second = 0;
  double rows_per_step = 0;
  double padding = 0;  // share of query tokens
  TimeQuantiles device;
  TimeQuantiles wall;  // of requests whose first step it was
};

struct TopFigures {
  bool loaded = false;
  bool serving = false;
  bool restarted = false;  // between the looks: figures are those since then
  double seconds = 0;      // that the figures are of
  double uptime_seconds = 0;
  std::string version;
  std::string device;

  double steps_per_second = 0;
  double sampled_tokens_per_second = 0;
  double prompt_tokens_per_second = 0;
  double device_busy = 0;            // share of the time
  TimeQuantiles queue;               // of all requests
  std::vector<GraphFigures> graphs;  // that ran

  // Now.
  double pool_blocks = 0, pool_free_blocks = 0;
  double rows = 0, max_rows = 0;
  double sessions = 0, detached_sessions = 0, max_sessions = 0;
  double requests_waiting = 0, requests_in_flight = 0, sessions_waiting = 0;
  double oldest_wait_seconds = 0, served_spread_seconds = 0;
  double message_bytes = 0, max_message_bytes = 0;
  double connections = 0;

  // Counted between the looks, and since the server started.
  struct Count {
    double now = 0;
    double total = 0;
  };
  std::vector<std::pair<std::string, Count>> refused;  // by code, those that there have been
  Count lost, sessions_refused, connections_refused, connections_cut, log_dropped;
  double device_faults = 0;
};

// Errors: FailedPrecondition where `now` is not of a server of Reprise.
absl::Status CheckMetrics(const MetricsText& now, const std::string& address);
// What happened between two looks. Where the server was restarted in between, or `before` is empty,
// since it started.
TopFigures FiguresOf(const MetricsText& before, const MetricsText& now);

// For a terminal or a pipe: tables of at most `width` columns.
std::string TopText(const TopFigures& figures, const std::string& address, size_t width);
nlohmann::json TopJson(const TopFigures& figures);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_TOP_TOP_FIGURES_H_
