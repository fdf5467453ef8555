// SPDX-License-Identifier: Apache-2.0
// What a comparison says: as tables for people and as JSON for programs. The JSON is described by
// docs/compare.schema.json.
#ifndef REPRISE_TOOLS_COMPARE_COMPARE_REPORT_H_
#define REPRISE_TOOLS_COMPARE_COMPARE_REPORT_H_

#include <cstddef>
#include <string>

#include "nlohmann/json.hpp"
#include "tools/compare/comparison.h"
#include "tools/compare/measured_run.h"

namespace reprise::tools {

// Both files, all points, the kernels that changed, and what it comes to. `width`: columns that
// tables should fit into.
std::string ComparisonText(const MeasuredRun& a, const MeasuredRun& b, const Comparison& comparison,
                           const CompareOptions& options, size_t width);

// All but what RecordOf says.
nlohmann::json ComparisonToJson(const MeasuredRun& a, const MeasuredRun& b,
                                const Comparison& comparison, const CompareOptions& options);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_COMPARE_COMPARE_REPORT_H_
