// SPDX-License-Identifier: Apache-2.0
// What a benchmark of attention says: as a table for people, as JSON for programs, as a chart. The
// JSON is described by docs/bench_attention.schema.json, every number by docs/bench_attention.md.
#ifndef REPRISE_TOOLS_BENCH_BENCH_REPORT_H_
#define REPRISE_TOOLS_BENCH_BENCH_REPORT_H_

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "runtime/device.h"
#include "tools/bench/attention_bench.h"
#include "tools/bench/svg_chart.h"
#include "tools/profile/report_parts.h"
#include "tools/text_width.h"

namespace reprise::tools {

// What holds for all cells.
struct BenchContext {
  const AttentionBench& bench;
  runtime::DeviceProperties device;
  TelemetrySource telemetry;
  double sustain_seconds = 0;
  std::string tree_file;    // of the bench's tree, "" for the built-in one
  size_t width = kNoWidth;  // columns that tables should fit into
};

// A cell that was measured.
struct MeasuredCell {
  size_t index = 0;  // among the bench's cells
  CellTimes times;
};

// "32 heads of 128 on 8 KV heads, bf16, blocks of 16".
std::string ShapeText(const AttentionShape& shape);
nlohmann::json ShapeToJson(const AttentionShape& shape);

// "heads", "device", ...; ends in a blank line.
std::string BenchHeader(const BenchContext& context);
// A line for the floor and for each candidate of every cell; below it, where anything was measured
// back to back, the table of that; and where the tree comes from a file, the leaves that each cell
// came to.
std::string CellsText(const std::vector<MeasuredCell>& cells, const BenchContext& context);
// Why figures of a cell are not to be trusted: rounds of the floor or of a candidate that differ by
// more than kTrustedSpread. "" for one whose are.
std::string CellWarning(const MeasuredCell& cell, const BenchContext& context);

// Everything but what RecordOf says of the run.
nlohmann::json BenchToJson(const std::vector<MeasuredCell>& cells, const BenchContext& context);
// Microseconds per call and bytes per second over the cells.
Chart BenchChart(const std::vector<MeasuredCell>& cells, const BenchContext& context);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_BENCH_BENCH_REPORT_H_
