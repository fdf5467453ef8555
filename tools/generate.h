// SPDX-License-Identifier: Apache-2.0
// What `run` and `sched` do alike, each over a channel of its own: generate, show it, and say what
// was measured, also of a run that was broken off.
#ifndef REPRISE_TOOLS_GENERATE_H_
#define REPRISE_TOOLS_GENERATE_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "tools/console.h"
#include "tools/generate_flags.h"
#include "tools/sched/batcher.h"
#include "tools/sched/channel.h"
#include "tools/sched/driver.h"
#include "tools/sched/stats.h"
#include "tools/signals.h"

namespace reprise::tools {

struct Generation {
  WorkloadOptions workload;
  bool shows_text = false;
  std::string json_file;             // "" for none
  std::string json_lines_file = {};  // likewise, of a line for each request
  std::string svg_file = {};         // likewise, of a chart of the run
  std::string title = {};            // of the chart
  ServerInfo server;
  BatcherOptions batcher = {};
  StatsOptions stats;
  DriverOptions driver = {};
  StepChannel* channel = nullptr;
  BlockSource* source = nullptr;
  // Ends the session in good order; not called after an error, which ends it anyway.
  std::function<absl::Status()> close = [] { return absl::OkStatus(); };
  nlohmann::json record = {};  // of the run and what served it
};

// Runs the workload. Figures and JSON come out of whatever was generated, also after an error or a
// signal; in JSON, "error" says why it ended, null where it ended by itself. Errors: of the
// workload, the driver, the channel, requests that failed, and what `interrupt` says.
absl::Status Generate(Generation generation, Interrupt* interrupt, Console* console);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_GENERATE_H_
