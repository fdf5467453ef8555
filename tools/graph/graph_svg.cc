// SPDX-License-Identifier: Apache-2.0
#include "tools/graph/graph_svg.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/bench/svg_chart.h"
#include "tools/text_width.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

using graphs::GraphNode;

// Pixels.
constexpr size_t kMargin = 24, kHeading = 64, kGap = 22, kPadding = 10;
constexpr size_t kLine = 17, kCharacter = 8, kSmallCharacter = 7;
constexpr size_t kLeastBox = 96;
constexpr size_t kSample = 30;  // of an edge, in the legend
// Boxes of a line where nothing repeats.
constexpr size_t kLineBoxes = 10;
// Colours of ops, told apart in light and dark; beyond them one for all others.
constexpr size_t kNumColors = 8;

constexpr char kStyle[] =
    "<style>\n"
    "svg { background: #ffffff; font-family: system-ui, \"Segoe UI\", Roboto, \"Liberation "
    "Sans\", Arial, sans-serif; }\n"
    ".name { font-size: 13px; font-weight: 600; fill: #16181d; }\n"
    ".more, .side { font-size: 12px; fill: #4a505a; }\n"
    ".title { font-size: 18px; font-weight: 600; fill: #16181d; }\n"
    ".edge { stroke: #7b828d; stroke-width: 1.5; fill: none; }\n"
    ".early { stroke-dasharray: 4 3; }\n"
    ".head { fill: #7b828d; }\n"
    ".box { stroke-width: 1.5; }\n"
    ".c0 { fill: #e3edfb; stroke: #2f6fd0; } .c1 { fill: #fdebdc; stroke: #d9730d; }\n"
    ".c2 { fill: #e0f2e8; stroke: #2c8a57; } .c3 { fill: #f4e4f7; stroke: #a23fb0; }\n"
    ".c4 { fill: #fbe4e2; stroke: #c0392f; } .c5 { fill: #dff2f4; stroke: #0f8b9d; }\n"
    ".c6 { fill: #f5eed7; stroke: #8a6d1b; } .c7 { fill: #ececee; stroke: #80868f; }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "svg { background: #14161a; }\n"
    ".name, .title { fill: #e8eaee; } .more, .side { fill: #b4bac4; }\n"
    ".edge { stroke: #8a919c; } .head { fill: #8a919c; }\n"
    ".c0 { fill: #1b2b45; stroke: #6ea4f5; } .c1 { fill: #40290f; stroke: #f0a04b; }\n"
    ".c2 { fill: #17352a; stroke: #63c28c; } .c3 { fill: #37203c; stroke: #cf86dc; }\n"
    ".c4 { fill: #40211e; stroke: #ef7d73; } .c5 { fill: #12343a; stroke: #54c3d3; }\n"
    ".c6 { fill: #362e13; stroke: #d0b35a; } .c7 { fill: #26292f; stroke: #8c939d; }\n"
    "}\n"
    "</style>\n";

std::string OpOf(const GraphNode& node) {
  return node.kind == GraphNode::Kind::kKernel ? node.op : std::string(NameOf(node.kind));
}

std::string GridText(const GraphNode& node) {
  return absl::StrCat("grid ", node.grid_x, "x", node.grid_y, ", block ", node.block);
}

// A colour for each op, in the order in which they come.
class Colors {
 public:
  explicit Colors(const std::vector<GraphNode>& nodes) {
    for (const GraphNode& node : nodes) of_op_.emplace(OpOf(node), of_op_.size());
  }
  std::string Of(const GraphNode& node) const {
    return absl::StrCat("c", std::min(of_op_.at(OpOf(node)), kNumColors - 1));
  }

 private:
  std::map<std::string, size_t> of_op_;
};

// A box: its first line stands out. early: the edge to it is dashed.
struct Box {
  std::vector<std::string> lines;
  std::string tip;
  std::string color;
  bool early = false;
};

std::string TipOf(const GraphNode& node, size_t index) {
  if (node.kind != GraphNode::Kind::kKernel) return absl::StrCat(index, ": ", OpOf(node));
  return absl::StrCat(index, ": ", node.kernel, ", ", GridText(node), ", shared ",
                      FormatBytes(node.shared_bytes), ", arguments ",
                      FormatBytes(node.argument_bytes), node.early ? ", begins early" : "");
}

Box SmallBox(const GraphNode& node, size_t index, const Colors& colors) {
  Box box{.lines = {OpOf(node)},
          .tip = TipOf(node, index),
          .color = colors.Of(node),
          .early = node.early};
  if (node.kind != GraphNode::Kind::kKernel) return box;
  if (!node.shape.empty()) box.lines.push_back(node.shape);
  box.lines.push_back(GridText(node));
  return box;
}

Box LargeBox(const GraphNode& node, size_t index, const Colors& colors) {
  Box box{
      .lines = {absl::StrCat(index, ": ", OpOf(node), node.shape.empty() ? "" : " ", node.shape)},
      .tip = TipOf(node, index),
      .color = colors.Of(node),
      .early = node.early};
  if (node.kind != GraphNode::Kind::kKernel) return box;
  box.lines.push_back(node.kernel);
  box.lines.push_back(absl::StrCat(GridText(node), ", shared ", FormatBytes(node.shared_bytes),
                                   ", arguments ", FormatBytes(node.argument_bytes)));
  return box;
}

size_t WidthOf(const Box& box) {
  size_t width = kLeastBox;
  for (size_t i = 0; i < box.lines.size(); ++i) {
    const size_t character = i == 0 ? kCharacter : kSmallCharacter;
    width = std::max(width, DisplayWidth(box.lines[i]) * character + 2 * kPadding);
  }
  return width;
}

const char* EdgeClass(const Box& to) { return to.early ? "edge early" : "edge"; }

constexpr std::string_view kEarly = "begins early: while the node ahead of it may still run";

// Boxes in lines, each with what stands before it.
struct Row {
  std::string side;
  std::vector<Box> boxes;
};

class Drawing {
 public:
  Drawing(std::string title, std::string subtitle, std::vector<Row> rows)
      : title_(std::move(title)), subtitle_(std::move(subtitle)), rows_(std::move(rows)) {
    size_t most_lines = 1, longest_side = 0;
    bool is_first = true;  // no edge leads there
    for (const Row& row : rows_) {
      longest_side = std::max(longest_side, row.side.size());
      num_columns_ = std::max(num_columns_, row.boxes.size());
      for (const Box& box : row.boxes) {
        box_width_ = std::max(box_width_, WidthOf(box));
        most_lines = std::max(most_lines, box.lines.size());
        has_early_ |= box.early && !is_first;
        is_first = false;
      }
    }
    left_ = kMargin + (longest_side == 0 ? 0 : longest_side * kSmallCharacter + kGap);
    box_height_ = most_lines * kLine + 2 * kPadding;
  }

  std::string ToSvg() {
    size_t text = std::max(title_.size() * 11, subtitle_.size() * kSmallCharacter);
    if (has_early_) text = std::max(text, kSample + 6 + kEarly.size() * kSmallCharacter);
    const size_t width = std::max(left_ + num_columns_ * (box_width_ + kGap), text) + kMargin;
    const size_t height = Heading() + kMargin + rows_.size() * (box_height_ + kGap);
    out_ = absl::StrCat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", width, " ",
                        height, "\" width=\"", width, "\" height=\"", height,
                        "\" role=\"img\">\n<title>", EscapeXml(title_), "</title>\n", kStyle);
    Text(kMargin, 34, "title", title_);
    Text(kMargin, 54, "more", subtitle_);
    if (has_early_) Legend();
    for (size_t row = 0; row < rows_.size(); ++row) DrawRow(row);
    return absl::StrCat(out_, "</svg>\n");
  }

 private:
  size_t X(size_t column) const { return left_ + column * (box_width_ + kGap); }
  size_t Y(size_t row) const { return Heading() + kMargin / 2 + row * (box_height_ + kGap); }
  size_t Heading() const { return kHeading + (has_early_ ? kLine : 0); }

  void Text(size_t x, size_t y, const char* style, const std::string& text) {
    absl::StrAppend(&out_, "<text x=\"", x, "\" y=\"", y, "\" class=\"", style, "\">",
                    EscapeXml(text), "</text>\n");
  }
  void Head(size_t x, size_t y, bool down) {
    absl::StrAppend(&out_, "<path class=\"head\" d=\"M", x, " ", y,
                    down ? " l-4 -8 h8 z" : " l-8 -4 v8 z", "\"/>\n");
  }

  // What a dashed edge means: a short one, and words.
  void Legend() {
    const size_t middle = kHeading + 3;
    absl::StrAppend(&out_, "<path class=\"edge early\" d=\"M", kMargin, " ", middle, " H",
                    kMargin + kSample - 4, "\"/>\n");
    Head(kMargin + kSample, middle, /*down=*/false);
    Text(kMargin + kSample + 6, middle + 4, "more", std::string(kEarly));
  }

  // To the next box of the row, or to the first of the next row.
  void Edge(size_t row, size_t column) {
    const size_t middle = Y(row) + box_height_ / 2, right = X(column) + box_width_;
    if (column + 1 < rows_[row].boxes.size()) {
      absl::StrAppend(&out_, "<path class=\"", EdgeClass(rows_[row].boxes[column + 1]), "\" d=\"M",
                      right, " ", middle, " H", X(column + 1) - 4, "\"/>\n");
      return Head(X(column + 1), middle, /*down=*/false);
    }
    if (row + 1 == rows_.size()) return;
    const size_t from = X(column) + box_width_ / 2, to = X(0) + box_width_ / 2;
    const size_t bottom = Y(row) + box_height_;
    absl::StrAppend(&out_, "<path class=\"", EdgeClass(rows_[row + 1].boxes[0]), "\" d=\"M", from,
                    " ", bottom, " V", bottom + kGap / 2, " H", to, " V", Y(row + 1) - 4, "\"/>\n");
    Head(to, Y(row + 1), /*down=*/true);
  }

  void DrawBox(size_t row, size_t column) {
    const Box& box = rows_[row].boxes[column];
    absl::StrAppend(&out_, "<g><title>", EscapeXml(box.tip), "</title><rect x=\"", X(column),
                    "\" y=\"", Y(row), "\" width=\"", box_width_, "\" height=\"", box_height_,
                    "\" rx=\"6\" class=\"box ", box.color, "\"/>\n");
    for (size_t i = 0; i < box.lines.size(); ++i)
      Text(X(column) + kPadding, Y(row) + kPadding + 13 + i * kLine, i == 0 ? "name" : "more",
           box.lines[i]);
    absl::StrAppend(&out_, "</g>\n");
  }

  void DrawRow(size_t row) {
    if (!rows_[row].side.empty())
      Text(kMargin, Y(row) + box_height_ / 2 + 4, "side", rows_[row].side);
    for (size_t column = 0; column < rows_[row].boxes.size(); ++column) {
      DrawBox(row, column);
      Edge(row, column);
    }
  }

  const std::string title_, subtitle_;
  const std::vector<Row> rows_;
  size_t num_columns_ = 1, box_width_ = kLeastBox, box_height_ = 0, left_ = 0;
  bool has_early_ = false;
  std::string out_;
};

// Nodes [begin, end) in lines of at most so many.
void AddRows(const GraphDump& dump, size_t begin, size_t end, size_t most, const std::string& side,
             const Colors& colors, std::vector<Row>* rows) {
  for (size_t i = begin; i < end; ++i) {
    if ((i - begin) % most == 0) rows->push_back({.side = i == begin ? side : "", .boxes = {}});
    rows->back().boxes.push_back(SmallBox(dump.nodes[i], i, colors));
  }
}

std::string SubtitleOf(const GraphDump& dump) {
  return absl::StrCat(dump.where, ", ", dump.nodes.size(), " nodes, ",
                      FormatBytes(dump.device_bytes), " of the driver's memory");
}

}  // namespace

std::optional<RepeatedPart> FindRepeatedPart(const std::vector<GraphNode>& nodes) {
  // Comparing numbers, for there may be thousands of nodes.
  std::map<std::tuple<GraphNode::Kind, std::string, std::string>, size_t> numbers;
  std::vector<size_t> work;
  for (const GraphNode& node : nodes)
    work.push_back(
        numbers.emplace(std::tuple(node.kind, node.op, node.shape), numbers.size()).first->second);
  std::optional<RepeatedPart> best;
  size_t most = 0;
  for (size_t length = 1; 2 * length <= work.size(); ++length) {
    // `same` nodes up to i are each as the one `length` before them.
    size_t same = 0;
    for (size_t i = length; i < work.size(); ++i) {
      same = work[i] == work[i - length] ? same + 1 : 0;
      const size_t repeats = same / length + 1;
      if (repeats < 2 || repeats * length <= most) continue;
      most = repeats * length;
      best = {.begin = i + 1 - same - length, .length = length, .repeats = repeats};
    }
  }
  return best;
}

std::string StepSvg(const GraphDump& dump) {
  const Colors colors(dump.nodes);
  const std::optional<RepeatedPart> part = FindRepeatedPart(dump.nodes);
  std::vector<Row> rows;
  if (part) {
    const size_t most = std::max(part->length, kLineBoxes);
    AddRows(dump, 0, part->begin, most, "before", colors, &rows);
    for (size_t i = 0; i < part->repeats; ++i) {
      const size_t begin = part->begin + i * part->length;
      AddRows(dump, begin, begin + part->length, most, absl::StrCat(i + 1, " of ", part->repeats),
              colors, &rows);
    }
    AddRows(dump, part->begin + part->repeats * part->length, dump.nodes.size(), most, "after",
            colors, &rows);
  } else {
    AddRows(dump, 0, dump.nodes.size(), kLineBoxes, "", colors, &rows);
  }
  return Drawing(absl::StrCat("A step of ", dump.graph), SubtitleOf(dump), std::move(rows)).ToSvg();
}

absl::StatusOr<std::string> LayerSvg(const GraphDump& dump) {
  const std::optional<RepeatedPart> part = FindRepeatedPart(dump.nodes);
  if (!part) {
    return absl::FailedPreconditionError(
        absl::StrCat("a layer of ", dump.graph, ": got ", dump.nodes.size(),
                     " nodes of which no part repeats, allowed: a graph with layers"));
  }
  const Colors colors(dump.nodes);
  std::vector<Row> rows;
  for (size_t i = part->begin; i < part->begin + part->length; ++i)
    rows.push_back({.side = "", .boxes = {LargeBox(dump.nodes[i], i, colors)}});
  return Drawing(absl::StrCat("What repeats in ", dump.graph),
                 absl::StrCat(SubtitleOf(dump), "; ", part->length, " nodes from node ",
                              part->begin, " on, ", part->repeats, " times"),
                 std::move(rows))
      .ToSvg();
}

}  // namespace reprise::tools
