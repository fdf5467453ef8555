// SPDX-License-Identifier: Apache-2.0
// What tuning says: the notes in a tree's file, and a short text for people.
// docs/tune_attention.md says what each number is.
#ifndef REPRISE_TOOLS_TUNE_TUNE_REPORT_H_
#define REPRISE_TOOLS_TUNE_TUNE_REPORT_H_

#include <cstddef>
#include <string>

#include "nlohmann/json.hpp"
#include "tools/tune/tuner.h"

namespace reprise::tools {

// The notes: {"made_by": `record` (RecordOf), "settings": `settings`, "swept", "leaves", "regret",
// "of_built_in", "of_batch_invariant", "invariance", "invariance_left_out"}.
nlohmann::json TuneNotes(const TunedTree& tuned, const nlohmann::json& record,
                         const nlohmann::json& settings);

// The leaves, when each is taken, and their regret; the cost of invariance in the standard cells
// that were measured; below it lines over all held-out batches, and how many were left out. width:
// columns to fit into.
std::string TuneText(const TunedTree& tuned, size_t width);

// Why the tree is not to be trusted: replays that differ by more than kTrustedSpread, or held-out
// batches on which it is no faster than the built-in tree. "" for one that is.
std::string TuneWarning(const TunedTree& tuned);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_TUNE_TUNE_REPORT_H_
