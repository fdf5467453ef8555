// SPDX-License-Identifier: Apache-2.0
// How sure a difference between two measurements is. Samples come in rounds, which are minutes
// apart where steps are microseconds apart: what changes from round to round (clocks, neighbours)
// is seen only between rounds, so it is rounds that count as observations. Pure arithmetic; the
// same samples give the same interval.
#ifndef REPRISE_TOOLS_COMPARE_DIFFERENCE_H_
#define REPRISE_TOOLS_COMPARE_DIFFERENCE_H_

#include <cstddef>
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

// Of one round's samples; 0 where there are none.
double ValueOf(std::vector<double> samples, Statistic statistic);

struct Interval {
  double low = 0;
  double high = 0;
};

struct Difference {
  // The mean of what rounds have; 0 where there are none.
  double a = 0;
  double b = 0;
  // Of b - a, unset where a side has too few samples: with one round at least kFewestSteps, else at
  // least two rounds.
  std::optional<Interval> interval;
  double change() const { return b - a; }
};

inline constexpr size_t kFewestSteps = 5;
inline constexpr int kResamples = 2000;

// The difference of the statistics, and Welch's t interval of it: that of a side's rounds, each of
// which has one value. It holds the true difference with probability `confidence`, in (0, 1), as
// far as rounds are independent and what they have is normal; with two rounds more often than that.
// Of a side with one round nothing is known but how its samples lie: the variance of its value is
// that of 2,000 bootstrap samples, and what other rounds would have is not in the interval.
// Sources: Welch 1947; Efron 1979.
Difference Compare(const RoundSamples& a, const RoundSamples& b, Statistic statistic,
                   double confidence);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_COMPARE_DIFFERENCE_H_
