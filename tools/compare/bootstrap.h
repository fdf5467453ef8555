// SPDX-License-Identifier: Apache-2.0
// How sure a difference between two measurements is. Samples come in rounds, which are minutes
// apart where steps are microseconds apart: what changes from round to round (clocks, neighbours)
// is seen only by drawing rounds too. Pure arithmetic; the same samples give the same interval.
#ifndef REPRISE_TOOLS_COMPARE_BOOTSTRAP_H_
#define REPRISE_TOOLS_COMPARE_BOOTSTRAP_H_

#include <cstdint>
#include <optional>
#include <vector>

namespace reprise::tools {

// Samples of one quantity, by round.
using RoundSamples = std::vector<std::vector<double>>;

enum class Statistic : uint8_t {
  kMedian,   // of a step's times: what a step takes
  kMidmean,  // the mean of the middle half: for clocks that advance in large ticks
};

// Over the samples of all rounds together; 0 where there are none.
double ValueOf(const RoundSamples& samples, Statistic statistic);

struct Interval {
  double low = 0;
  double high = 0;
};

struct Difference {
  double a = 0;
  double b = 0;
  // Of b - a, unset where there are too few samples to draw from: in one round at least
  // kFewestSteps, else at least two rounds.
  std::optional<Interval> interval;
  double change() const { return b - a; }
};

inline constexpr size_t kFewestSteps = 5;
inline constexpr int kResamples = 2000;

// The difference of the statistics, and a bootstrap percentile interval of it that holds the true
// one with probability `confidence`, in (0, 1): for each side rounds are drawn with replacement,
// and from each of them as many samples as it has; 2,000 times. Source: Davison & Hinkley 1997,
// chapter 3.8 (hierarchical data).
Difference Compare(const RoundSamples& a, const RoundSamples& b, Statistic statistic,
                   double confidence);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_COMPARE_BOOTSTRAP_H_
