// SPDX-License-Identifier: Apache-2.0
#include "tools/samples.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace reprise::tools {

void Samples::AddAll(const Samples& other) {
  values_.insert(values_.end(), other.values_.begin(), other.values_.end());
}

double Samples::Sum() const { return std::accumulate(values_.begin(), values_.end(), 0.0); }

double Samples::Mean() const {
  return values_.empty() ? 0.0 : Sum() / static_cast<double>(values_.size());
}

double Samples::Percentile(double percent) const {
  if (values_.empty()) return 0.0;
  std::vector<double> sorted = values_;
  const auto count = static_cast<double>(sorted.size());
  const auto rank = static_cast<size_t>(std::max(1.0, std::ceil(percent / 100.0 * count)));
  const auto nth = sorted.begin() + static_cast<ptrdiff_t>(std::min(rank, sorted.size()) - 1);
  std::nth_element(sorted.begin(), nth, sorted.end());
  return *nth;
}

nlohmann::json Samples::ToJson(double scale) const {
  if (empty()) {
    return {{"count", 0}, {"mean", nullptr}, {"p50", nullptr}, {"p90", nullptr}, {"p99", nullptr}};
  }
  return {{"count", count()},
          {"mean", Mean() * scale},
          {"p50", Percentile(50) * scale},
          {"p90", Percentile(90) * scale},
          {"p99", Percentile(99) * scale}};
}

nlohmann::json Samples::ValuesToJson(double scale) const {
  nlohmann::json list = nlohmann::json::array();
  for (const double value : values_) list.push_back(value * scale);
  return list;
}

}  // namespace reprise::tools
