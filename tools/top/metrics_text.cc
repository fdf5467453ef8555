// SPDX-License-Identifier: Apache-2.0
#include "tools/top/metrics_text.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

constexpr char kEdge[] = "le";

bool IsNameChar(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == ':';
}

absl::Status Malformed(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("got no ", what));
}

// Takes characters off the front of a line.
class LineReader {
 public:
  explicit LineReader(std::string_view line) : rest_(line) {}

  bool Take(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::string TakeName() {
    const auto end = std::find_if_not(rest_.begin(), rest_.end(), IsNameChar);
    std::string name(rest_.begin(), end);
    rest_.remove_prefix(name.size());
    return name;
  }
  // Behind the quote that opens it, up to and with the one that closes it.
  absl::StatusOr<std::string> TakeQuoted() {
    std::string text;
    while (!rest_.empty()) {
      const char c = rest_.front();
      rest_.remove_prefix(1);
      if (c == '"') return text;
      if (c != '\\') {
        text += c;
        continue;
      }
      if (rest_.empty()) break;
      text += rest_.front() == 'n' ? '\n' : rest_.front();
      rest_.remove_prefix(1);
    }
    return Malformed("end of a label's value");
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

absl::StatusOr<MetricLabels> TakeLabels(LineReader* line) {
  MetricLabels labels;
  if (!line->Take('{')) return labels;
  while (!line->Take('}')) {
    const std::string name = line->TakeName();
    if (name.empty() || !line->Take('=') || !line->Take('"')) return Malformed("label");
    REPRISE_ASSIGN_OR_RETURN(labels[name], line->TakeQuoted());
    line->Take(',');
  }
  return labels;
}

}  // namespace

double MetricHistogram::count() const { return std::accumulate(counts.begin(), counts.end(), 0.0); }

double MetricHistogram::Quantile(double q) const {
  const double total = count();
  if (total <= 0) return std::numeric_limits<double>::quiet_NaN();
  double below = 0, edge = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (below + counts[i] >= q * total && counts[i] > 0) {
      if (std::isinf(edges[i])) return edge;
      return edge + (edges[i] - edge) * std::clamp((q * total - below) / counts[i], 0.0, 1.0);
    }
    below += counts[i];
    edge = edges[i];
  }
  return edge;
}

absl::StatusOr<MetricsText> MetricsText::Parse(std::string_view text) {
  MetricsText metrics;
  size_t number = 0;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const absl::Status parsed = metrics.ParseSample({line.data(), line.size()});
    if (!parsed.ok())
      return absl::InvalidArgumentError(
          absl::StrCat("metrics: line ", number, ": ", parsed.message()));
  }
  return metrics;
}

absl::Status MetricsText::ParseSample(std::string_view text) {
  LineReader line(text);
  const std::string name = line.TakeName();
  if (name.empty()) return Malformed("name");
  REPRISE_ASSIGN_OR_RETURN(MetricLabels labels, TakeLabels(&line));
  // A time may stand behind the value.
  const std::vector<std::string> words =
      absl::StrSplit(std::string(line.rest()), ' ', absl::SkipEmpty());
  double value = 0;
  if (words.empty() || !absl::SimpleAtod(words[0], &value)) return Malformed("value");
  samples_[name].push_back({.labels = std::move(labels), .value = value});
  return absl::OkStatus();
}

double MetricsText::Value(const std::string& name, const MetricLabels& labels) const {
  const auto found = samples_.find(name);
  if (found == samples_.end()) return 0;
  for (const Sample& sample : found->second) {
    if (sample.labels == labels) return sample.value;
  }
  return 0;
}

double MetricsText::Sum(const std::string& name) const {
  const auto found = samples_.find(name);
  if (found == samples_.end()) return 0;
  return std::accumulate(found->second.begin(), found->second.end(), 0.0,
                         [](double sum, const Sample& sample) { return sum + sample.value; });
}

std::vector<std::string> MetricsText::LabelsOf(const std::string& name,
                                               const std::string& label) const {
  std::vector<std::string> values;
  const auto found = samples_.find(name);
  if (found == samples_.end()) return values;
  for (const Sample& sample : found->second) {
    const auto value = sample.labels.find(label);
    if (value == sample.labels.end()) continue;
    if (std::find(values.begin(), values.end(), value->second) == values.end())
      values.push_back(value->second);
  }
  return values;
}

MetricHistogram MetricsText::Histogram(const std::string& name, const MetricLabels& labels) const {
  std::map<double, double> cumulative;
  const auto found = samples_.find(name + "_bucket");
  if (found != samples_.end()) {
    for (const Sample& sample : found->second) {
      MetricLabels others = sample.labels;
      const auto edge = others.extract(kEdge);
      double value = 0;
      if (others == labels && !edge.empty() && absl::SimpleAtod(edge.mapped(), &value))
        cumulative[value] = sample.value;
    }
  }
  MetricHistogram histogram;
  double below = 0;
  for (const auto& [edge, count] : cumulative) {
    histogram.edges.push_back(edge);
    histogram.counts.push_back(count - below);
    below = count;
  }
  return histogram;
}

}  // namespace reprise::tools
