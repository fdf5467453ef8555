// SPDX-License-Identifier: Apache-2.0
// The stages of a step kernel as text and JSON. docs/profile.md shows them, docs/graph.schema.json
// describes the JSON.
#ifndef REPRISE_TOOLS_GRAPH_STAGE_DUMP_H_
#define REPRISE_TOOLS_GRAPH_STAGE_DUMP_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "kernels/step_kernel/stage_list.h"
#include "nlohmann/json.hpp"

namespace reprise::tools {

// Of each stage the layer that it is of, from 0 on: what repeats in the order of stages. Unset of
// those ahead of the first layer, and behind the last.
std::vector<std::optional<size_t>> LayersOf(const std::vector<kernels::ListedStage>& stages);

// How many there are, and a line for each; ends in a newline.
std::string StagesText(const std::vector<kernels::ListedStage>& stages, size_t width);
// null where there is none.
nlohmann::json StagesToJson(const std::vector<kernels::ListedStage>& stages);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_GRAPH_STAGE_DUMP_H_
