// SPDX-License-Identifier: Apache-2.0
#include "tools/compare/compare_report.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/profile/report_parts.h"
#include "tools/table.h"
#include "tools/text_width.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr double kUsToNs = 1e3;

std::string Time(double us) { return FormatDuration(us * kUsToNs); }
std::string SignedTime(double us) { return absl::StrCat(us < 0 ? "-" : "+", Time(std::abs(us))); }
std::string SignedPercent(double share) { return absl::StrFormat("%+.1f %%", share * 100); }

// "+1.2 % to +3.4 %": of a.
std::string ShareInterval(const Difference& us) {
  if (!us.interval || us.a <= 0) return kNoFigure;
  return absl::StrCat(SignedPercent(us.interval->low / us.a), " to ",
                      SignedPercent(us.interval->high / us.a));
}

std::string TimeInterval(const Difference& us) {
  if (!us.interval) return kNoFigure;
  return absl::StrCat(SignedTime(us.interval->low), " to ", SignedTime(us.interval->high));
}

std::string FilesText(const MeasuredRun& a, const MeasuredRun& b, size_t width) {
  Table table({"", "file", "device", "date", "commit"});
  table.AlignLeft();
  for (const auto& [name, run] : {std::pair("a", &a), std::pair("b", &b)}) {
    table.AddRow({name, run->file, run->device, run->date.empty() ? kNoFigure : run->date,
                  run->commit.empty() ? kNoFigure : run->commit});
  }
  return table.ToString(width);
}

std::string IntervalTitle(double confidence) {
  return absl::StrCat("with ", absl::StrFormat("%g", confidence * 100), " %");
}

std::string PointsTable(const Comparison& comparison, const CompareOptions& options, size_t width) {
  Table table({"point", "of", "a", "b", "change", IntervalTitle(options.confidence), "verdict"});
  table.SetKeys(2);
  for (const ComparedPoint& point : comparison.points) {
    for (const ComparedSeries& series : point.series) {
      table.AddRow({point.name, series.name, Time(series.us.a), Time(series.us.b),
                    SignedPercent(series.Share()), ShareInterval(series.us),
                    std::string(NameOf(series.verdict))});
    }
  }
  return table.ToString(width);
}

// What of a kernel changed beside its time.
std::string KernelVerdict(const ComparedKernel& kernel) {
  if (!kernel.InBoth()) return kernel.calls_a != 0 ? "in a alone" : "in b alone";
  std::string verdict(NameOf(kernel.verdict));
  if (kernel.kernel_a != kernel.kernel_b)
    absl::StrAppend(&verdict, ", ", kernel.kernel_a, " in a, ", kernel.kernel_b, " in b");
  return verdict;
}

std::string CallsText(const ComparedKernel& kernel) {
  if (kernel.calls_a == kernel.calls_b || !kernel.InBoth())
    return absl::StrCat(std::max(kernel.calls_a, kernel.calls_b));
  return absl::StrCat(kernel.calls_a, " -> ", kernel.calls_b);
}

std::string KernelsTable(const Comparison& comparison, size_t width) {
  Table table({"point", "kernel", "calls", "net a", "net b", "change", "within", "verdict"});
  table.SetKeys(2);
  size_t num_kernels = 0;
  for (const ComparedPoint& point : comparison.points) {
    num_kernels += point.kernels.size();
    for (const ComparedKernel& kernel : point.kernels) {
      if (!kernel.Changed()) continue;
      table.AddRow({point.name, kernel.name, CallsText(kernel), Time(kernel.net_a_us),
                    Time(kernel.net_b_us),
                    kernel.InBoth() ? SignedTime(kernel.us.change()) : kNoFigure,
                    TimeInterval(kernel.us), KernelVerdict(kernel)});
    }
  }
  if (num_kernels == 0) return "";
  if (table.empty()) return "\nkernels: no difference shown\n";
  return absl::StrCat("\n", table.ToString(width));
}

size_t CountOf(const Comparison& comparison, Verdict verdict) {
  size_t count = 0;
  for (const ComparedPoint& point : comparison.points) {
    for (const ComparedSeries& series : point.series)
      count += series.guards && series.verdict == verdict ? 1 : 0;
  }
  return count;
}

std::string SumText(const Comparison& comparison, const CompareOptions& options, size_t width) {
  return Paragraph(
      absl::StrCat(
          CountOf(comparison, Verdict::kSlower), " slower, ", CountOf(comparison, Verdict::kFaster),
          " faster, ", CountOf(comparison, Verdict::kNoDifference), " without a difference shown, ",
          CountOf(comparison, Verdict::kCannotTell), " cannot be told; ",
          comparison.regressions.size(), " slower by more than ", FormatPercent(options.threshold)),
      width);
}

nlohmann::json DifferenceToJson(const Difference& us) {
  nlohmann::json interval = nullptr;
  if (us.interval) interval = {us.interval->low, us.interval->high};
  return {{"a_us", us.a},
          {"b_us", us.b},
          {"change_us", us.change()},
          {"interval_us", std::move(interval)}};
}

nlohmann::json KernelToJson(const ComparedKernel& kernel) {
  nlohmann::json json = {{"name", kernel.name},
                         {"kernel_a", TextOrNull(kernel.kernel_a)},
                         {"kernel_b", TextOrNull(kernel.kernel_b)},
                         {"calls_a", kernel.calls_a},
                         {"calls_b", kernel.calls_b},
                         {"net_a_us", kernel.net_a_us},
                         {"net_b_us", kernel.net_b_us},
                         {"changed", kernel.Changed()},
                         {"verdict", std::string(NameOf(kernel.verdict))}};
  json["stamped"] = kernel.InBoth() ? DifferenceToJson(kernel.us) : nlohmann::json(nullptr);
  return json;
}

nlohmann::json PointToJson(const ComparedPoint& point) {
  nlohmann::json series = nlohmann::json::array(), kernels = nlohmann::json::array();
  for (const ComparedSeries& of : point.series) {
    nlohmann::json& json = series.emplace_back(DifferenceToJson(of.us));
    json["name"] = of.name;
    json["share"] = of.Share();
    json["guards"] = of.guards;
    json["verdict"] = std::string(NameOf(of.verdict));
  }
  for (const ComparedKernel& kernel : point.kernels) kernels.push_back(KernelToJson(kernel));
  return {{"name", point.name}, {"series", std::move(series)}, {"kernels", std::move(kernels)}};
}

nlohmann::json RunToJson(const MeasuredRun& run) {
  nlohmann::json facts = nlohmann::json::object();
  for (const MeasuredFact& fact : run.facts) facts[fact.name] = fact.value;
  return {{"file", run.file},
          {"schema", run.schema},
          {"device", TextOrNull(run.device)},
          {"date", TextOrNull(run.date)},
          {"commit", TextOrNull(run.commit)},
          {"has_samples", run.has_samples},
          {"facts", std::move(facts)}};
}

}  // namespace

std::string ComparisonText(const MeasuredRun& a, const MeasuredRun& b, const Comparison& comparison,
                           const CompareOptions& options, size_t width) {
  return absl::StrCat(FilesText(a, b, width), "\n", PointsTable(comparison, options, width),
                      KernelsTable(comparison, width), "\n", SumText(comparison, options, width));
}

nlohmann::json ComparisonToJson(const MeasuredRun& a, const MeasuredRun& b,
                                const Comparison& comparison, const CompareOptions& options) {
  nlohmann::json points = nlohmann::json::array();
  for (const ComparedPoint& point : comparison.points) points.push_back(PointToJson(point));
  return {{"schema", "reprise.compare/1"},
          {"a", RunToJson(a)},
          {"b", RunToJson(b)},
          {"settings",
           {{"threshold", options.threshold},
            {"confidence", options.confidence},
            {"resamples", kResamples}}},
          {"warnings", comparison.warnings},
          {"regressions", comparison.regressions},
          {"points", std::move(points)}};
}

}  // namespace reprise::tools
