// SPDX-License-Identifier: Apache-2.0
#include "tools/graph/stage_dump.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graphs/graph_nodes.h"
#include "tools/graph/graph_svg.h"
#include "tools/table.h"
#include "tools/text_width.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

using kernels::ListedStage;
using kernels::StageKind;
using nlohmann::json;

std::string KindOf(const ListedStage& stage) { return std::string(kernels::NameOf(stage.kind)); }

// "4096x14336" of a linear layer, "" of others.
std::string ShapeOf(const ListedStage& stage) {
  return stage.kind == StageKind::kLinear ? absl::StrCat(stage.out_features, "x", stage.in_features)
                                          : "";
}

// When the next stage may begin: "256 tiles", "4 a row".
std::string DoneText(const ListedStage& stage) {
  return stage.per_row == 0 ? absl::StrCat(stage.fixed, stage.fixed == 1 ? " tile" : " tiles")
                            : absl::StrCat(stage.per_row, " a row");
}

// "12 to 19".
std::string TilesText(const ListedStage& stage) {
  if (stage.num_tiles == 0) return "-";
  return absl::StrCat(stage.first_tile, " to ", stage.first_tile + stage.num_tiles - 1);
}

std::string NumberText(const std::optional<size_t>& number) {
  return number ? absl::StrCat(*number) : "-";
}

// As JSON has it: null where it is unset.
json NumberToJson(const std::optional<size_t>& number) {
  return number ? json(*number) : json(nullptr);
}

}  // namespace

std::vector<std::optional<size_t>> LayersOf(const std::vector<ListedStage>& stages) {
  std::vector<graphs::GraphNode> nodes;
  for (const ListedStage& stage : stages) {
    graphs::GraphNode node;
    node.op = KindOf(stage);
    node.shape = ShapeOf(stage);
    nodes.push_back(std::move(node));
  }
  std::vector<std::optional<size_t>> layers(stages.size());
  const std::optional<RepeatedPart> part = FindRepeatedPart(nodes);
  if (!part) return layers;
  for (size_t i = 0; i < part->length * part->repeats; ++i)
    layers[part->begin + i] = i / part->length;
  return layers;
}

std::string StagesText(const std::vector<ListedStage>& stages, size_t width) {
  const std::vector<std::optional<size_t>> layers = LayersOf(stages);
  uint64_t tiles = 0;
  for (const ListedStage& stage : stages) tiles += stage.num_tiles;
  const bool has_table = std::any_of(stages.begin(), stages.end(),
                                     [](const ListedStage& stage) { return stage.from_table; });
  std::vector<std::string> heads = {"stage", "layer",   "kind",     "shape",
                                    "tiles", "done at", "waits for"};
  if (has_table) heads.emplace_back("chosen by");
  heads.emplace_back("in place of");
  Table table(heads);
  table.SetKeys(3);
  for (size_t i = 0; i < stages.size(); ++i) {
    const ListedStage& stage = stages[i];
    const std::string shape = ShapeOf(stage);
    std::vector<std::string> row = {absl::StrCat(i),
                                    NumberText(layers[i]),
                                    KindOf(stage),
                                    shape.empty() ? "-" : shape,
                                    TilesText(stage),
                                    DoneText(stage),
                                    NumberText(stage.waits_for)};
    if (has_table) row.emplace_back(stage.from_table ? "table" : "-");
    row.emplace_back(stage.op);
    table.AddRow(std::move(row));
  }
  return absl::StrCat(
      Paragraph(absl::StrCat("stages of the step kernel: ", stages.size(), ", with ",
                             FormatCount(tiles), " tiles of 16 outputs in all"),
                width),
      "\n", table.ToString(width));
}

json StagesToJson(const std::vector<ListedStage>& stages) {
  if (stages.empty()) return nullptr;
  const std::vector<std::optional<size_t>> layers = LayersOf(stages);
  json list = json::array();
  for (size_t i = 0; i < stages.size(); ++i) {
    const ListedStage& stage = stages[i];
    const bool linear = stage.kind == StageKind::kLinear;
    list.push_back({{"index", i},
                    {"layer", NumberToJson(layers[i])},
                    {"kind", KindOf(stage)},
                    {"op", std::string(stage.op)},
                    {"shape", linear ? json(ShapeOf(stage)) : json(nullptr)},
                    {"tiles", stage.num_tiles},
                    {"first_tile", linear ? json(stage.first_tile) : json(nullptr)},
                    {"done_fixed", stage.fixed},
                    {"done_per_row", stage.per_row},
                    {"row_count", stage.count},
                    {"waits_for", NumberToJson(stage.waits_for)},
                    {"from_table", stage.from_table}});
  }
  return list;
}

}  // namespace reprise::tools
