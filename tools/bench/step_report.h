// SPDX-License-Identifier: Apache-2.0
// What a benchmark of whole decode steps says: as a table for people, as JSON for programs, as a
// chart. The JSON is described by docs/bench_step.schema.json, every number by docs/bench_step.md.
#ifndef REPRISE_TOOLS_BENCH_STEP_REPORT_H_
#define REPRISE_TOOLS_BENCH_STEP_REPORT_H_

#include <string>
#include <vector>

#include "engine/decode_engine.h"
#include "nlohmann/json.hpp"
#include "tools/bench/step_bench.h"
#include "tools/bench/svg_chart.h"
#include "tools/profile/bandwidth.h"
#include "tools/profile/report_parts.h"
#include "tools/text_width.h"

namespace reprise::tools {

// What holds for all cells.
struct StepContext {
  const engine::EngineInfo& info;
  StepBenchOptions options;
  TelemetrySource telemetry;
  double sustain_seconds = 0;  // 0: no steps back to back
  Bandwidth bandwidth;         // of all rounds
  size_t width = kNoWidth;     // columns that tables should fit into

  double FloorOf(const models::StepBytes& bytes) const;
  // The floor as a share of the time that a step takes.
  double Share(const models::StepBytes& bytes, double ns) const;
};

// "model", "device", ...; ends in a blank line.
std::string StepHeader(const StepContext& context);
// The measured bandwidth; a line for every cell; below it, where anything was measured back to
// back, the table of that.
std::string StepText(const std::vector<StepCell>& cells, const StepContext& context);
// Why figures of a cell are not to be trusted; "" for one whose are.
std::string StepWarning(const StepCell& cell);

// Everything but what RecordOf and EngineToJson say.
nlohmann::json StepToJson(const std::vector<StepCell>& cells, const StepContext& context);
// Milliseconds of a step and share of the floor over the cells.
Chart StepChart(const std::vector<StepCell>& cells, const StepContext& context);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_BENCH_STEP_REPORT_H_
