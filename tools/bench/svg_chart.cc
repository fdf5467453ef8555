// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/svg_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/text_width.h"

namespace reprise::tools {
namespace {

// Pixels.
constexpr double kLeft = 80, kRight = 30, kTop = 96, kPanelHeight = 260, kPanelGap = 44;
constexpr double kLeastWidth = 640, kCategoryWidth = 44, kLegendWidth = 170, kLegendLine = 22;
// Of a category's label: its slope, and what one character of it takes.
constexpr double kSlope = 55, kCharacter = 6.8;
constexpr double kPointRadius = 3.5;

constexpr char kInk[] = "#222222";
constexpr char kPaper[] = "#ffffff";
constexpr char kGrid[] = "#dddddd";
constexpr char kFloorColor[] = "#666666";
// Told apart by people who see colours differently. Source: Okabe and Ito 2008.
constexpr std::array<const char*, 7> kColors = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                "#e69f00", "#56b4e9", "#000000"};

std::string Number(double value) { return absl::StrFormat("%.1f", value); }

// A label of an axis: no more digits than it needs.
std::string Label(double value) { return absl::StrFormat("%.6g", value); }

// Points are hollow from the second time on that a colour is used.
struct SeriesStyle {
  const char* color;
  bool hollow = false;
};
SeriesStyle StyleOf(const std::vector<ChartSeries>& series, size_t index) {
  if (series[index].dashed) return {kFloorColor};
  size_t color = 0;
  for (size_t i = 0; i < index; ++i) color += series[i].dashed ? 0 : 1;
  return {kColors[color % kColors.size()], color >= kColors.size()};
}

struct TextStyle {
  int size = 13;
  const char* anchor = "start";
  bool bold = false;
  double rotate = 0;  // degrees, about the text's place
};

// Elements of a document, one after the other.
class Canvas {
 public:
  void Line(double x1, double y1, double x2, double y2, const char* color, double width) {
    absl::StrAppend(&out_, "<line x1=\"", Number(x1), "\" y1=\"", Number(y1), "\" x2=\"",
                    Number(x2), "\" y2=\"", Number(y2), "\" stroke=\"", color, "\" stroke-width=\"",
                    Number(width), "\"/>\n");
  }
  void Path(const std::string& points, const char* color, bool dashed) {
    absl::StrAppend(&out_, "<polyline points=\"", points, "\" fill=\"none\" stroke=\"", color,
                    "\" stroke-width=\"2\"", dashed ? " stroke-dasharray=\"7 4\"" : "", "/>\n");
  }
  void Point(double x, double y, const SeriesStyle& style, const std::string& tip) {
    absl::StrAppend(&out_, "<circle cx=\"", Number(x), "\" cy=\"", Number(y), "\" r=\"",
                    Number(kPointRadius), "\" fill=\"", style.hollow ? kPaper : style.color,
                    "\" stroke=\"", style.color, "\"><title>", EscapeXml(tip),
                    "</title></circle>\n");
  }
  void Text(double x, double y, const std::string& text, const TextStyle& style) {
    absl::StrAppend(&out_, "<text x=\"", Number(x), "\" y=\"", Number(y), "\" font-size=\"",
                    style.size, "\" text-anchor=\"", style.anchor, "\" fill=\"", kInk, "\"",
                    style.bold ? " font-weight=\"bold\"" : "");
    if (style.rotate != 0) {
      absl::StrAppend(&out_, " transform=\"rotate(", Number(style.rotate), " ", Number(x), " ",
                      Number(y), ")\"");
    }
    absl::StrAppend(&out_, ">", EscapeXml(text), "</text>\n");
  }
  const std::string& text() const { return out_; }

 private:
  std::string out_;
};

// Where a value lies between the ends of an axis, from 0 to 1, and where its marks are.
struct Axis {
  bool log = false;
  double low = 0, high = 1;
  std::vector<double> marks = {};

  double Place(double value) const {
    return log ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
  }
};

Axis LogAxis(double least, double most) {
  Axis axis{.log = true};
  axis.low = axis.high = 0;
  for (double decade = std::pow(10, std::floor(std::log10(least))); axis.high == 0; decade *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) {
      const double mark = step * decade;
      if (mark <= least * (1 + 1e-9)) {
        axis.marks = {mark};
        axis.low = mark;
        continue;
      }
      axis.marks.push_back(mark);
      if (mark < most) continue;
      axis.high = mark;
      break;
    }
  }
  return axis;
}

Axis LinearAxis(double most) {
  const double decade = std::pow(10, std::floor(std::log10(most)));
  const double share = most / decade;
  const double step = decade * (share <= 2 ? 0.25 : share <= 5 ? 0.5 : 1.0);
  Axis axis{.high = std::ceil(most / step - 1e-9) * step};
  for (int i = 0; i * step <= axis.high * (1 + 1e-9); ++i) axis.marks.push_back(i * step);
  return axis;
}

Axis AxisOf(const ChartPanel& panel) {
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (const ChartSeries& series : panel.series) {
    for (const double value : series.values) {
      if (!std::isfinite(value) || value <= 0) continue;
      least = std::min(least, value);
      most = std::max(most, value);
    }
  }
  if (most == 0) return {.marks = {0, 1}};
  return panel.log ? LogAxis(least, most) : LinearAxis(most);
}

class Drawing {
 public:
  explicit Drawing(const Chart& chart) : chart_(chart) {
    const auto n = static_cast<double>(chart.categories.size());
    double label = 0;
    for (const std::string& category : chart.categories)
      label = std::max(label, static_cast<double>(DisplayWidth(category)) * kCharacter);
    const double slope = kSlope * std::acos(-1.0) / 180;
    // A label ends below its category.
    left_ = std::max(kLeft, label * std::cos(slope) - kCategoryWidth / 2);
    bottom_ = 40 + label * std::sin(slope);
    width_ = std::max(kLeastWidth, left_ + kRight + std::max(kLegendWidth, kCategoryWidth * n));
    const size_t series = chart.panels.empty() ? 0 : chart.panels[0].series.size();
    legend_columns_ = static_cast<size_t>((width_ - left_ - kRight) / kLegendWidth);
    const size_t lines = (series + legend_columns_ - 1) / legend_columns_;
    top_ = kTop + kLegendLine * (static_cast<double>(std::max<size_t>(lines, 1)) - 1);
    height_ = top_ + PanelsHeight() + bottom_;
  }

  std::string Draw() {
    canvas_.Text(left_, 30, chart_.title, {.size = 18, .bold = true});
    canvas_.Text(left_, 50, chart_.subtitle, {});
    if (!chart_.panels.empty()) Legend(chart_.panels[0].series);
    for (size_t i = 0; i < chart_.panels.size(); ++i)
      Panel(chart_.panels[i], top_ + static_cast<double>(i) * (kPanelHeight + kPanelGap));
    Categories();
    return absl::StrCat(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" "
        "width=\"",
        Number(width_), "\" height=\"", Number(height_), "\" viewBox=\"0 0 ", Number(width_), " ",
        Number(height_),
        "\" font-family=\"sans-serif\">\n<rect width=\"100%\" height=\"100%\" "
        "fill=\"",
        kPaper, "\"/>\n", canvas_.text(), "</svg>\n");
  }

 private:
  double PanelsHeight() const {
    const auto n = static_cast<double>(chart_.panels.size());
    return n * kPanelHeight + std::max(0.0, n - 1) * kPanelGap;
  }
  double X(size_t category) const {
    const auto n = static_cast<double>(chart_.categories.size());
    return left_ + (width_ - left_ - kRight) * (static_cast<double>(category) + 0.5) / n;
  }

  void Legend(const std::vector<ChartSeries>& series) {
    for (size_t i = 0; i < series.size(); ++i) {
      const SeriesStyle style = StyleOf(series, i);
      const double x = left_ + kLegendWidth * static_cast<double>(i % legend_columns_);
      const size_t line = i / legend_columns_;
      const double y = 72 + kLegendLine * static_cast<double>(line);
      canvas_.Path(absl::StrCat(Number(x), ",", Number(y), " ", Number(x + 30), ",", Number(y)),
                   style.color, series[i].dashed);
      canvas_.Point(x + 15, y, style, series[i].name);
      canvas_.Text(x + 38, y + 5, series[i].name, {});
    }
  }

  void Panel(const ChartPanel& panel, double top) {
    const Axis axis = AxisOf(panel);
    const auto y = [&](double value) { return top + kPanelHeight * (1 - axis.Place(value)); };
    for (const double mark : axis.marks) {
      canvas_.Line(left_, y(mark), width_ - kRight, y(mark), kGrid, 1);
      canvas_.Text(left_ - 8, y(mark) + 4, Label(mark), {.anchor = "end"});
    }
    canvas_.Line(left_, top, left_, top + kPanelHeight, kInk, 1);
    canvas_.Text(left_ - 56, top + kPanelHeight / 2, panel.axis,
                 {.anchor = "middle", .rotate = -90});
    for (size_t i = 0; i < panel.series.size(); ++i) {
      const ChartSeries& series = panel.series[i];
      const SeriesStyle style = StyleOf(panel.series, i);
      std::string points;
      for (size_t c = 0; c < series.values.size() && c < chart_.categories.size(); ++c) {
        const double value = series.values[c];
        if (!std::isfinite(value) || value < 0 || (panel.log && value == 0)) continue;
        absl::StrAppend(&points, points.empty() ? "" : " ", Number(X(c)), ",", Number(y(value)));
        canvas_.Point(X(c), y(value), style,
                      absl::StrCat(series.name, ", ", chart_.categories[c], ": ", Label(value)));
      }
      canvas_.Path(points, style.color, series.dashed);
    }
  }

  void Categories() {
    const double top = height_ - bottom_;
    canvas_.Line(left_, top, width_ - kRight, top, kInk, 1);
    for (size_t c = 0; c < chart_.categories.size(); ++c) {
      canvas_.Line(X(c), top, X(c), top + 5, kInk, 1);
      canvas_.Text(X(c) + 4, top + 18, chart_.categories[c],
                   {.size = 12, .anchor = "end", .rotate = -kSlope});
    }
  }

  const Chart& chart_;
  double left_ = 0, top_ = 0, bottom_ = 0, width_ = 0, height_ = 0;
  size_t legend_columns_ = 1;
  Canvas canvas_;
};

}  // namespace

std::string EscapeXml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t') out += c;
    }
  }
  return out;
}

std::string ToSvg(const Chart& chart) { return Drawing(chart).Draw(); }

}  // namespace reprise::tools
