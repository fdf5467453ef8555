// SPDX-License-Identifier: Apache-2.0
// What a benchmark of linear layers says: as a table for people, as JSON for programs, as a chart.
// The JSON is described by docs/bench_linear.schema.json, every number by docs/bench_linear.md.
#ifndef REPRISE_TOOLS_BENCH_LINEAR_REPORT_H_
#define REPRISE_TOOLS_BENCH_LINEAR_REPORT_H_

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "runtime/device.h"
#include "tools/bench/linear_bench.h"
#include "tools/bench/svg_chart.h"
#include "tools/profile/bandwidth.h"
#include "tools/text_width.h"

namespace reprise::tools {

// What holds for all cells.
struct LinearContext {
  const LinearBench& bench;
  std::string model;  // whose shapes, "" for none's
  runtime::DeviceProperties device;
  Bandwidth bandwidth;      // of all rounds
  size_t width = kNoWidth;  // columns that tables should fit into

  // Bytes per second of weights that take so long, and these as a share of the read bandwidth.
  static double Rate(uint64_t bytes, double ns);
  double Share(uint64_t bytes, double ns) const;
};

// "qkv with 8 rows".
std::string LinearCellName(const LinearCell& cell, const LinearBench& bench);

// "linear", "device", ...; ends in a blank line.
std::string LinearHeader(const LinearContext& context);
// The measured bandwidth; a line for every candidate of every cell; below it, of a model's shapes,
// the sums over a step beside the whole step measured as one chain.
std::string LinearText(const std::vector<LinearCell>& cells, const LinearContext& context);
// Why figures of a cell are not to be trusted; "" for one whose are.
std::string LinearWarning(const LinearCell& cell, const LinearContext& context);

// Everything but what RecordOf says of the run.
nlohmann::json LinearToJson(const std::vector<LinearCell>& cells, const LinearContext& context);
// Microseconds per call and share of the read bandwidth over the rows.
Chart LinearChart(const std::vector<LinearCell>& cells, const LinearContext& context);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_BENCH_LINEAR_REPORT_H_
