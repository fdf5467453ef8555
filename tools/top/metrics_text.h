// SPDX-License-Identifier: Apache-2.0
// MetricsText: metrics as a scraper reads them: Prometheus's text format to numbers. Text in, no
// I/O. A value.
#ifndef REPRISE_TOOLS_TOP_METRICS_TEXT_H_
#define REPRISE_TOOLS_TOP_METRICS_TEXT_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace reprise::tools {

using MetricLabels = std::map<std::string, std::string>;

// The edges of a histogram's buckets and how much is in each (not cumulative). The last edge is
// infinite.
struct MetricHistogram {
  std::vector<double> edges;
  std::vector<double> counts;

  double count() const;
  // The value below which the share q of what was counted lies, taking each bucket as filled
  // evenly: NaN where nothing was counted; the last finite edge where it lies beyond.
  double Quantile(double q) const;
};

class MetricsText {
 public:
  // Errors: InvalidArgument names the line.
  static absl::StatusOr<MetricsText> Parse(std::string_view text);

  bool Has(const std::string& name) const { return samples_.contains(name); }
  // Of the sample with these labels; 0 where there is none.
  double Value(const std::string& name, const MetricLabels& labels = {}) const;
  // Of all samples of that name.
  double Sum(const std::string& name) const;
  // What the label says in the samples of that name, in their order, each once.
  std::vector<std::string> LabelsOf(const std::string& name, const std::string& label) const;
  // Of `name`_bucket with these labels and any edge; edges ascend.
  MetricHistogram Histogram(const std::string& name, const MetricLabels& labels) const;

 private:
  struct Sample {
    MetricLabels labels;
    double value = 0;
  };
  absl::Status ParseSample(std::string_view line);

  std::map<std::string, std::vector<Sample>> samples_;  // by name, in the text's order
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_TOP_METRICS_TEXT_H_
