// SPDX-License-Identifier: Apache-2.0
// RunChart: a run over its time, as a chart: tokens per second, requests under way and waiting, and
// how long requests waited for their first token, by priority.
#ifndef REPRISE_TOOLS_SCHED_RUN_CHART_H_
#define REPRISE_TOOLS_SCHED_RUN_CHART_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench/svg_chart.h"
#include "tools/sched/request.h"

namespace reprise::tools {

// wall_ns: how long the run took; requests that had not arrived by then are left out. title: names
// what served it.
Chart RunChart(const std::vector<Request>& requests, uint64_t wall_ns, const std::string& title);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_SCHED_RUN_CHART_H_
