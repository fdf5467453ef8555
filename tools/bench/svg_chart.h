// SPDX-License-Identifier: Apache-2.0
// Charts as SVG text: panels below each other over the same categories, a line with points for
// every series. Numbers in, text out; knows nothing of what they mean.
#ifndef REPRISE_TOOLS_BENCH_SVG_CHART_H_
#define REPRISE_TOOLS_BENCH_SVG_CHART_H_

#include <string>
#include <string_view>
#include <vector>

namespace reprise::tools {

struct ChartSeries {
  std::string name = {};
  std::vector<double> values = {};  // one per category; what is not finite is left out
  bool dashed = false;              // a grey dashed line: what the others are set beside
};

struct ChartPanel {
  std::string axis = {};                 // what the vertical axis shows, with its unit
  bool log = false;                      // a logarithmic axis, of positive values; else from 0 on
  std::vector<ChartSeries> series = {};  // of one name and order in all panels: one legend
};

struct Chart {
  std::string title = {};
  std::string subtitle = {};
  std::vector<std::string> categories = {};  // below the last panel
  std::vector<ChartPanel> panels = {};
};

// A document of its own with a light background, complete without any other file. Text is escaped;
// what XML cannot hold is left out.
std::string ToSvg(const Chart& chart);

// "a < b" as "a &lt; b".
std::string EscapeXml(std::string_view text);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_BENCH_SVG_CHART_H_
