// SPDX-License-Identifier: Apache-2.0
#include "tools/compare/difference.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "tools/compare/student_t.h"

namespace reprise::tools {
namespace {

// A whole number in [0, size). Not std::uniform_int_distribution, whose numbers differ from one
// standard library to another.
size_t Draw(std::mt19937_64& random, size_t size) {
  return static_cast<size_t>((random() >> 32) * size >> 32);
}

double MeanOf(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Of what two or more values were drawn from.
double VarianceOf(const std::vector<double>& values) {
  const double mean = MeanOf(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return sum / static_cast<double>(values.size() - 1);
}

std::vector<double> Resampled(const std::vector<double>& samples, Statistic statistic) {
  std::mt19937_64 random(1);
  std::vector<double> values(kResamples), drawn(samples.size());
  for (double& value : values) {
    for (double& sample : drawn) sample = samples[Draw(random, samples.size())];
    value = ValueOf(drawn, statistic);
  }
  return values;
}

// What one side has.
struct Estimate {
  double value = 0;
  double variance = 0;  // of value
  double degrees = 0;   // of freedom, of variance; 0: there are too few samples to know it
};

Estimate EstimateOf(const RoundSamples& samples, Statistic statistic) {
  if (samples.empty()) return {};
  std::vector<double> rounds;
  for (const std::vector<double>& round : samples) rounds.push_back(ValueOf(round, statistic));
  Estimate estimate{.value = MeanOf(rounds)};
  const std::vector<double>& first = samples[0];
  if (rounds.size() >= 2) {
    const auto count = static_cast<double>(rounds.size());
    estimate.variance = VarianceOf(rounds) / count;
    estimate.degrees = count - 1;
  } else if (first.size() >= kFewestSteps) {
    estimate.variance = VarianceOf(Resampled(first, statistic));
    estimate.degrees = static_cast<double>(first.size()) - 1;
  }
  return estimate;
}

double HalfWidth(const Estimate& a, const Estimate& b, double confidence) {
  const double variance = a.variance + b.variance;
  if (variance == 0) return 0;
  const double degrees =
      variance * variance /
      (a.variance * a.variance / a.degrees + b.variance * b.variance / b.degrees);
  return StudentQuantile(confidence, degrees) * std::sqrt(variance);
}

}  // namespace

double ValueOf(std::vector<double> samples, Statistic statistic) {
  if (samples.empty()) return 0;
  const auto at = [&](size_t index) { return samples.begin() + static_cast<ptrdiff_t>(index); };
  if (statistic == Statistic::kMedian) {
    const auto middle = at((samples.size() - 1) / 2);
    std::nth_element(samples.begin(), middle, samples.end());
    return *middle;
  }
  const size_t quarter = samples.size() / 4;
  std::nth_element(samples.begin(), at(quarter), samples.end());
  std::nth_element(at(quarter), at(samples.size() - 1 - quarter), samples.end());
  double sum = 0;
  for (size_t i = quarter; i < samples.size() - quarter; ++i) sum += samples[i];
  return sum / static_cast<double>(samples.size() - 2 * quarter);
}

Difference Compare(const RoundSamples& a, const RoundSamples& b, Statistic statistic,
                   double confidence) {
  const Estimate of_a = EstimateOf(a, statistic), of_b = EstimateOf(b, statistic);
  Difference difference{.a = of_a.value, .b = of_b.value, .interval = std::nullopt};
  if (of_a.degrees == 0 || of_b.degrees == 0) return difference;
  const double half = HalfWidth(of_a, of_b, confidence);
  difference.interval = {.low = difference.change() - half, .high = difference.change() + half};
  return difference;
}

}  // namespace reprise::tools
