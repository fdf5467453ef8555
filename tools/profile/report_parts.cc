// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/report_parts.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/profile/profiler.h"
#include "tools/units.h"

namespace reprise::tools {

std::string Us(double ns) { return absl::StrFormat("%.2f", ns * kNsToUs); }

std::string GigabytesPerSecond(double bytes_per_second) {
  return absl::StrFormat("%.1f", bytes_per_second / 1e9);
}

std::string MeanText(const Samples& samples, const char* unit) {
  return samples.empty() ? kNoFigure : absl::StrFormat("%.0f %s", samples.Mean(), unit);
}

nlohmann::json MeanJson(const Samples& samples) {
  return samples.empty() ? nlohmann::json(nullptr) : nlohmann::json(samples.Mean());
}

nlohmann::json TextOrNull(const std::string& text) {
  return text.empty() ? nlohmann::json(nullptr) : nlohmann::json(text);
}

nlohmann::json NumberOrNull(const std::optional<double>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

nlohmann::json UsToJson(const Samples& ns) {
  if (ns.empty()) return nullptr;
  return {{"count", ns.count()},
          {"mean", ns.Mean() * kNsToUs},
          {"p10", ns.Percentile(10) * kNsToUs},
          {"p50", ns.Percentile(50) * kNsToUs},
          {"p90", ns.Percentile(90) * kNsToUs}};
}

std::optional<double> SpreadOf(const Samples& rounds) {
  if (rounds.count() < 2) return std::nullopt;
  return (rounds.Max() - rounds.Min()) / rounds.Percentile(50);
}

void UnsteadyRounds::Add(const std::string& name, const std::optional<double>& spread) {
  if (!spread || *spread <= kTrustedSpread) return;
  absl::StrAppend(&names_, names_.empty() ? "" : ", ", name, " by ", FormatPercent(*spread));
}

std::string UnsteadyRounds::Warning(const std::string& cell) const {
  if (names_.empty()) return "";
  return absl::StrCat(cell, ": medians of rounds differ, ", names_, " (more than ",
                      FormatPercent(kTrustedSpread),
                      "): something else uses the device, or its clocks change");
}

std::string TelemetryText(const TelemetrySource& source) {
  return source.name.empty() ? absl::StrCat("not available: ", source.why_none)
                             : absl::StrCat("from ", source.name);
}

nlohmann::json TelemetryToJson(const TelemetrySource& source) {
  return {{"source", TextOrNull(source.name)}, {"why_none", TextOrNull(source.why_none)}};
}

}  // namespace reprise::tools
