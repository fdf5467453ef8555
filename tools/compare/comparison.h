// SPDX-License-Identifier: Apache-2.0
// Comparison: what differs between two measured runs, point by point and kernel by kernel, with
// verdicts that know the noise. Knows no command line and prints nothing; docs/profile.md says how
// a verdict comes about.
#ifndef REPRISE_TOOLS_COMPARE_COMPARISON_H_
#define REPRISE_TOOLS_COMPARE_COMPARISON_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/compare/difference.h"
#include "tools/compare/measured_run.h"

namespace reprise::tools {

enum class Verdict : uint8_t {
  kFaster,
  kSlower,
  kNoDifference,  // shown: the interval of the difference holds 0
  kCannotTell,    // too few samples for an interval
};
// "faster", "slower", "no difference shown", "cannot tell".
std::string_view NameOf(Verdict verdict);

struct CompareOptions {
  double threshold = 0.02;   // a slower series beyond this share is a regression
  double confidence = 0.95;  // of intervals
};

struct ComparedSeries {
  std::string name;
  bool guards = false;
  Difference us;
  Verdict verdict = Verdict::kCannotTell;
  // Of a, where a is not 0.
  double Share() const { return us.a > 0 ? us.change() / us.a : 0.0; }
};

struct ComparedKernel {
  std::string name;
  std::string kernel_a, kernel_b;  // "" where only the other has it
  uint32_t calls_a = 0, calls_b = 0;
  double net_a_us = 0, net_b_us = 0;
  Difference us;  // of stamped times
  Verdict verdict = Verdict::kCannotTell;
  bool InBoth() const { return calls_a != 0 && calls_b != 0; }
  // Slower or faster by a thousandth of the step at least, another kernel, called another number of
  // times, or in one of them alone.
  bool Changed() const;
};

struct ComparedPoint {
  std::string name;
  std::vector<ComparedSeries> series;
  // Those of b in its order, then those that a alone has; empty where the files keep no samples.
  std::vector<ComparedKernel> kernels;
};

struct Comparison {
  std::vector<ComparedPoint> points;
  // Why the two may not be comparable, or not to be trusted: one sentence each.
  std::vector<std::string> warnings;
  // Series that are slower by more than the threshold: "32@512: replay is slower by 4.1 %".
  std::vector<std::string> regressions;
};

// Errors: InvalidArgument where the files are of different commands or have no point in common.
absl::StatusOr<Comparison> CompareRuns(const MeasuredRun& a, const MeasuredRun& b,
                                       const CompareOptions& options);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_COMPARE_COMPARISON_H_
