// SPDX-License-Identifier: Apache-2.0
#include "tools/compare/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>

namespace reprise::tools {
namespace {

// Sorts nothing that it need not; `values` lose their order.
double StatisticOf(std::vector<double>& values, Statistic statistic) {
  if (values.empty()) return 0;
  const auto at = [&](size_t index) { return values.begin() + static_cast<ptrdiff_t>(index); };
  if (statistic == Statistic::kMedian) {
    const auto middle = at((values.size() - 1) / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  }
  const size_t quarter = values.size() / 4;
  std::nth_element(values.begin(), at(quarter), values.end());
  std::nth_element(at(quarter), at(values.size() - 1 - quarter), values.end());
  double sum = 0;
  for (size_t i = quarter; i < values.size() - quarter; ++i) sum += values[i];
  return sum / static_cast<double>(values.size() - 2 * quarter);
}

// A whole number in [0, size). Not std::uniform_int_distribution, whose numbers differ from one
// standard library to another.
size_t Draw(std::mt19937_64& random, size_t size) {
  return static_cast<size_t>((random() >> 32) * size >> 32);
}

double Resampled(const RoundSamples& samples, Statistic statistic, std::mt19937_64& random,
                 std::vector<double>& scratch) {
  scratch.clear();
  for (size_t i = 0; i < samples.size(); ++i) {
    const std::vector<double>& round = samples[Draw(random, samples.size())];
    for (size_t j = 0; j < round.size(); ++j) scratch.push_back(round[Draw(random, round.size())]);
  }
  return StatisticOf(scratch, statistic);
}

bool CanResample(const RoundSamples& samples) {
  if (samples.size() >= 2) return true;
  return samples.size() == 1 && samples[0].size() >= kFewestSteps;
}

}  // namespace

double ValueOf(const RoundSamples& samples, Statistic statistic) {
  std::vector<double> all;
  for (const std::vector<double>& round : samples)
    all.insert(all.end(), round.begin(), round.end());
  return StatisticOf(all, statistic);
}

Difference Compare(const RoundSamples& a, const RoundSamples& b, Statistic statistic,
                   double confidence) {
  Difference difference{
      .a = ValueOf(a, statistic), .b = ValueOf(b, statistic), .interval = std::nullopt};
  if (!CanResample(a) || !CanResample(b)) return difference;
  std::mt19937_64 random(1);
  std::vector<double> scratch, changes(kResamples);
  for (double& change : changes) {
    const double of_a = Resampled(a, statistic, random, scratch);
    change = Resampled(b, statistic, random, scratch) - of_a;
  }
  std::sort(changes.begin(), changes.end());
  const double tail = (1 - confidence) / 2 * kResamples;
  const auto cut = std::min(static_cast<size_t>(tail), changes.size() / 2 - 1);
  difference.interval = {.low = changes[cut], .high = changes[changes.size() - 1 - cut]};
  return difference;
}

}  // namespace reprise::tools
