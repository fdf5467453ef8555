// SPDX-License-Identifier: Apache-2.0
// Samples: measured values and what tables say of them. Not thread-safe.
#ifndef REPRISE_TOOLS_SAMPLES_H_
#define REPRISE_TOOLS_SAMPLES_H_

#include <cstddef>
#include <span>
#include <vector>

#include "nlohmann/json.hpp"

namespace reprise::tools {

class Samples {
 public:
  void Add(double value) { values_.push_back(value); }
  void AddAll(const Samples& other);
  size_t count() const { return values_.size(); }
  bool empty() const { return values_.empty(); }
  double Sum() const;
  // 0 when empty.
  double Mean() const;
  double Min() const { return Percentile(1e-9); }
  double Max() const { return Percentile(100); }
  // Nearest-rank percentile, percent in (0, 100]: the smallest value that at least that share of
  // all values does not exceed. 0 when empty.
  double Percentile(double percent) const;
  // In the order in which they were added.
  std::span<const double> values() const { return values_; }

  // {"count", "mean", "p50", "p90", "p99"}, every value multiplied by `scale`; null when empty.
  nlohmann::json ToJson(double scale) const;
  // All values in the order in which they were added, each multiplied by `scale`.
  nlohmann::json ValuesToJson(double scale) const;

 private:
  std::vector<double> values_;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_SAMPLES_H_
