// SPDX-License-Identifier: Apache-2.0
// What tuning linear layers says: the notes in a table's file, and a short text for people.
// docs/tune_linear.md says what each number is.
#ifndef REPRISE_TOOLS_TUNE_LINEAR_TUNE_REPORT_H_
#define REPRISE_TOOLS_TUNE_LINEAR_TUNE_REPORT_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"
#include "runtime/device.h"
#include "tools/bench/linear_shapes.h"
#include "tools/tune/linear_tuner.h"

namespace reprise::tools {

// The notes: {"made_by": `record` (RecordOf), "device": `device` (DeviceToJson), "settings":
// `settings`, "measured"}.
nlohmann::json LinearTuneNotes(const TunedLinear& tuned, const std::vector<LinearShape>& shapes,
                               const nlohmann::json& record, const nlohmann::json& device,
                               const nlohmann::json& settings);

// A line for each shape and number of rows that was measured, below it what the table has; where
// nothing could be chosen from, that and why. width: columns to fit into.
std::string LinearTuneText(const TunedLinear& tuned, const std::vector<LinearShape>& shapes,
                           std::string_view device, size_t width);

// Why times are not to be trusted: replays of one kernel that differ by more than kTrustedSpread.
// "" for those that are.
std::string LinearTuneWarning(const TunedLinear& tuned);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_TUNE_LINEAR_TUNE_REPORT_H_
