// SPDX-License-Identifier: Apache-2.0
#include "tools/compare/comparison.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/profile/profiler.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

// Clocks and bandwidths further apart than this, as a share, earn a warning.
constexpr double kSameSpeed = 0.05;
// A kernel whose time changed by less than this share of the step has not changed: with rounds
// enough, an interval leaves out 0 for differences that mean nothing.
constexpr double kLeastOfStep = 0.001;

Verdict VerdictOf(const Difference& difference) {
  if (!difference.interval) return Verdict::kCannotTell;
  if (difference.interval->low > 0) return Verdict::kSlower;
  if (difference.interval->high < 0) return Verdict::kFaster;
  return Verdict::kNoDifference;
}

template <typename Named>
const Named* FindNamed(const std::vector<Named>& list, const std::string& name) {
  for (const Named& item : list) {
    if (item.name == name) return &item;
  }
  return nullptr;
}

bool DifferBy(double a, double b, double share) {
  return a > 0 && b > 0 && std::abs(b - a) > share * a;
}

// Kernels with the same op and shape: the same kernel of the catalogue first, else the next one
// that is not taken.
class KernelPairs {
 public:
  KernelPairs(const std::vector<MeasuredKernel>& a, const std::vector<MeasuredKernel>& b) {
    std::vector<bool> taken(a.size(), false);
    pairs_.resize(b.size(), nullptr);
    for (const bool same_kernel : {true, false}) {
      for (size_t j = 0; j < b.size(); ++j) {
        for (size_t i = 0; pairs_[j] == nullptr && i < a.size(); ++i) {
          if (taken[i] || a[i].name != b[j].name) continue;
          if (same_kernel && a[i].kernel != b[j].kernel) continue;
          taken[i] = true;
          pairs_[j] = &a[i];
        }
      }
    }
    for (size_t i = 0; i < a.size(); ++i) {
      if (!taken[i]) alone_.push_back(&a[i]);
    }
  }
  // nullptr: a has none.
  const MeasuredKernel* OfB(size_t index) const { return pairs_[index]; }
  const std::vector<const MeasuredKernel*>& alone() const { return alone_; }

 private:
  std::vector<const MeasuredKernel*> pairs_, alone_;
};

// What is the same whichever kernel is compared.
struct KernelRule {
  double confidence = 0;
  double least_us = 0;  // of a change
};

ComparedKernel CompareKernel(const MeasuredKernel* a, const MeasuredKernel* b,
                             const KernelRule& rule) {
  ComparedKernel compared{.name = (b != nullptr ? b : a)->name,
                          .kernel_a = a != nullptr ? a->kernel : "",
                          .kernel_b = b != nullptr ? b->kernel : "",
                          .calls_a = a != nullptr ? a->calls : 0,
                          .calls_b = b != nullptr ? b->calls : 0,
                          .net_a_us = a != nullptr ? a->net_us : 0,
                          .net_b_us = b != nullptr ? b->net_us : 0,
                          .us = {}};
  const RoundSamples none;
  compared.us = Compare(a != nullptr ? a->stamped_us : none, b != nullptr ? b->stamped_us : none,
                        Statistic::kMidmean, rule.confidence);
  compared.verdict = VerdictOf(compared.us);
  if (compared.us.interval && std::abs(compared.us.change()) < rule.least_us)
    compared.verdict = Verdict::kNoDifference;
  return compared;
}

std::vector<ComparedKernel> CompareKernels(const MeasuredPoint& a, const MeasuredPoint& b,
                                           double confidence, double step_us) {
  const KernelPairs pairs(a.kernels, b.kernels);
  // Of many kernels one is beyond its interval by chance, so intervals are wider the more there
  // are. Source: Bonferroni's inequality.
  const auto count = static_cast<double>(b.kernels.size());
  const KernelRule rule{.confidence = 1 - (1 - confidence) / std::max(1.0, count),
                        .least_us = kLeastOfStep * step_us};
  std::vector<ComparedKernel> kernels;
  for (size_t i = 0; i < b.kernels.size(); ++i)
    kernels.push_back(CompareKernel(pairs.OfB(i), &b.kernels[i], rule));
  for (const MeasuredKernel* alone : pairs.alone())
    kernels.push_back(CompareKernel(alone, nullptr, rule));
  return kernels;
}

ComparedPoint ComparePoint(const MeasuredPoint& a, const MeasuredPoint& b, bool has_samples,
                           const CompareOptions& options) {
  ComparedPoint point{.name = b.name, .series = {}, .kernels = {}};
  for (const MeasuredSeries& of_b : b.series) {
    const MeasuredSeries* of_a = FindNamed(a.series, of_b.name);
    if (of_a == nullptr) continue;
    ComparedSeries& series = point.series.emplace_back();
    series.name = of_b.name;
    series.guards = of_b.guards;
    series.us = Compare(of_a->us, of_b.us, Statistic::kMedian, options.confidence);
    series.verdict = VerdictOf(series.us);
  }
  // A profile of a server may have none to compare with.
  if (has_samples && !a.kernels.empty() && !b.kernels.empty())
    point.kernels = CompareKernels(a, b, options.confidence, point.series.front().us.a);
  return point;
}

// The run again as a file that keeps no samples would tell it.
MeasuredRun MediansOnly(const MeasuredRun& run) {
  MeasuredRun medians = run;
  medians.has_samples = false;
  for (MeasuredPoint& point : medians.points) {
    std::erase_if(point.series, [](const MeasuredSeries& s) { return s.name != "replay"; });
    for (MeasuredSeries& series : point.series) {
      for (std::vector<double>& round : series.us) round = {ValueOf(round, Statistic::kMedian)};
    }
  }
  return medians;
}

class Warnings {
 public:
  Warnings(const MeasuredRun& a, const MeasuredRun& b) : a_(a), b_(b) {}

  std::vector<std::string> Collect() {
    for (const MeasuredRun* run : {&a_, &b_}) Ended(*run);
    Facts();
    if (a_.read_bytes_per_s && b_.read_bytes_per_s &&
        DifferBy(*a_.read_bytes_per_s, *b_.read_bytes_per_s, kSameSpeed)) {
      Add("the read bandwidth that the runs measured differs: ",
          FormatBandwidth(*a_.read_bytes_per_s), " and ", FormatBandwidth(*b_.read_bytes_per_s));
    }
    Clocks();
    for (const MeasuredRun* run : {&a_, &b_}) Noise(*run);
    Points();
    return std::move(list_);
  }

 private:
  template <typename... Parts>
  void Add(const Parts&... parts) {
    list_.push_back(absl::StrCat(parts...));
  }

  void Ended(const MeasuredRun& run) {
    if (!run.error.empty()) Add(run.file, " is of a run that ended early: ", run.error);
  }

  void Facts() {
    for (const MeasuredFact& of_a : a_.facts) {
      const MeasuredFact* of_b = FindNamed(b_.facts, of_a.name);
      if (of_b != nullptr && of_b->value != of_a.value)
        Add(of_a.name, " differs: ", of_a.value, " and ", of_b->value);
    }
  }

  void Clocks() {
    for (const MeasuredPoint& of_b : b_.points) {
      const MeasuredPoint* of_a = FindNamed(a_.points, of_b.name);
      if (of_a == nullptr || !of_a->sm_clock_mhz || !of_b.sm_clock_mhz) continue;
      if (!DifferBy(*of_a->sm_clock_mhz, *of_b.sm_clock_mhz, kSameSpeed)) continue;
      Add("the SM clock differs: ", std::llround(*of_a->sm_clock_mhz), " and ",
          std::llround(*of_b.sm_clock_mhz), " MHz at ", of_b.name);
      return;
    }
  }

  // Rounds of one run that lie further apart than what they would show.
  void Noise(const MeasuredRun& run) {
    double worst = 0;
    std::string where;
    size_t fewest = SIZE_MAX;
    for (const MeasuredPoint& point : run.points) {
      for (const MeasuredSeries& series : point.series) {
        fewest = std::min(fewest, series.us.size());
        if (!series.guards) continue;
        Samples medians;
        for (const std::vector<double>& round : series.us)
          medians.Add(ValueOf(round, Statistic::kMedian));
        const double spread =
            medians.count() < 2 ? 0.0 : (medians.Max() - medians.Min()) / medians.Percentile(50);
        if (spread <= worst) continue;
        worst = spread;
        where = absl::StrCat(point.name, ", ", series.name);
      }
    }
    if (worst > kTrustedSpread) {
      Add("rounds of ", run.file, " lie up to ", FormatPercent(worst), " apart (", where,
          "): something else used the device, or its clocks changed");
    }
    if (fewest == 1) {
      Add(run.file, " has one round: what changes from round to round is not in the intervals");
    }
  }

  void Points() {
    for (const auto& [run, other] : {std::pair(&a_, &b_), std::pair(&b_, &a_)}) {
      std::vector<std::string> names;
      for (const MeasuredPoint& point : run->points) {
        if (FindNamed(other->points, point.name) == nullptr) names.push_back(point.name);
      }
      if (!names.empty()) Add("in ", run->file, " alone: ", absl::StrJoin(names, ", "));
    }
  }

  const MeasuredRun& a_;
  const MeasuredRun& b_;
  std::vector<std::string> list_;
};

void AddRegressions(const ComparedPoint& point, double threshold, std::vector<std::string>* list) {
  for (const ComparedSeries& series : point.series) {
    if (!series.guards || series.verdict != Verdict::kSlower || series.Share() <= threshold)
      continue;
    list->push_back(absl::StrCat(point.name, ": ", series.name, " is slower by ",
                                 FormatPercent(series.Share())));
  }
}

}  // namespace

std::string_view NameOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kFaster:
      return "faster";
    case Verdict::kSlower:
      return "slower";
    case Verdict::kNoDifference:
      return "no difference shown";
    case Verdict::kCannotTell:
      return "cannot tell";
  }
  return "";
}

bool ComparedKernel::Changed() const {
  return verdict == Verdict::kSlower || verdict == Verdict::kFaster || calls_a != calls_b ||
         kernel_a != kernel_b;
}

absl::StatusOr<Comparison> CompareRuns(const MeasuredRun& a, const MeasuredRun& b,
                                       const CompareOptions& options) {
  if (a.schema != b.schema) {
    return absl::InvalidArgumentError(absl::StrCat("got ", a.schema, " (", a.file, ") and ",
                                                   b.schema, " (", b.file,
                                                   "), allowed: two files of one command"));
  }
  if (a.has_samples != b.has_samples) {
    return CompareRuns(a.has_samples ? MediansOnly(a) : a, b.has_samples ? MediansOnly(b) : b,
                       options);
  }
  Comparison comparison;
  for (const MeasuredPoint& of_b : b.points) {
    const MeasuredPoint* of_a = FindNamed(a.points, of_b.name);
    if (of_a == nullptr) continue;
    comparison.points.push_back(ComparePoint(*of_a, of_b, a.has_samples, options));
    AddRegressions(comparison.points.back(), options.threshold, &comparison.regressions);
  }
  if (comparison.points.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("no point is both in ", a.file, " (",
                                                   a.points.front().name, ", ...) and in ", b.file,
                                                   " (", b.points.front().name, ", ...)"));
  }
  comparison.warnings = Warnings(a, b).Collect();
  if (!a.has_samples) {
    comparison.warnings.insert(
        comparison.warnings.begin(),
        a.schema == "reprise.profile/1"
            ? "a file keeps no samples: medians of rounds are compared, and no kernels"
            : "the files keep no samples: medians of rounds are compared");
  }
  return comparison;
}

}  // namespace reprise::tools
