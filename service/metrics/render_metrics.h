// SPDX-License-Identifier: Apache-2.0
// RenderMetrics: all metrics of a server as text. docs/metrics.md says what each of them is.
// Threads: any, any number at a time.
#ifndef REPRISE_SERVICE_METRICS_RENDER_METRICS_H_
#define REPRISE_SERVICE_METRICS_RENDER_METRICS_H_

#include <cstdint>
#include <string>

#include "service/record/record_counters.h"
#include "service/service_host.h"
#include "service/telemetry.h"
#include "service/transport/connection_counters.h"

namespace reprise::service {

struct MetricsSources {
  const Telemetry& telemetry;
  const ServiceHost* host = nullptr;  // nullptr while the model is loaded
  bool serving = false;
  const ConnectionCounters& connections;
  const RecordCounters* recordings = nullptr;  // nullptr: sessions are not recorded
  uint64_t start_time_ns = 0;                  // of the server, since 1970
  uint64_t uptime_ns = 0;
  std::string version;
  std::string commit;
};

// Takes the engine's lock and the pipeline's, each for as long as it takes to read a few numbers
// (of the pipeline, for each session that waits).
std::string RenderMetrics(const MetricsSources& sources);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_METRICS_RENDER_METRICS_H_
