// SPDX-License-Identifier: Apache-2.0
// What reports of profiles and benchmarks have in common: how times, rates and telemetry are
// written in tables and in JSON, and when rounds differ too much to be trusted.
#ifndef REPRISE_TOOLS_PROFILE_REPORT_PARTS_H_
#define REPRISE_TOOLS_PROFILE_REPORT_PARTS_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tools/samples.h"
#include "tools/units.h"

namespace reprise::tools {

// What a table says where there is nothing to say.
inline constexpr char kNoFigure[] = "-";

std::string Us(double ns);                                       // "12.34"
std::string GigabytesPerSecond(double bytes_per_second);         // "4700.1"
std::string MeanText(const Samples& samples, const char* unit);  // "1980 MHz"; kNoFigure when empty

// 0 of nothing.
inline double Share(double part, double whole) { return whole > 0 ? part / whole : 0.0; }

// Unset of nothing: a rate that was not measured.
inline std::optional<double> ShareIfAny(double part, double whole) {
  return whole > 0 ? std::optional(part / whole) : std::nullopt;
}

nlohmann::json MeanJson(const Samples& samples);  // null when empty
nlohmann::json TextOrNull(const std::string& text);
nlohmann::json NumberOrNull(const std::optional<double>& value);
// {"count", "mean", "p10", "p50", "p90"} in microseconds; null when empty.
nlohmann::json UsToJson(const Samples& ns);

// (largest - smallest) / median of the medians of rounds; unset with fewer than two.
std::optional<double> SpreadOf(const Samples& rounds);

// Collects whose rounds differ by more than kTrustedSpread.
class UnsteadyRounds {
 public:
  void Add(const std::string& name, const std::optional<double>& spread);
  // Why figures of `cell` are not to be trusted; "" where they are.
  std::string Warning(const std::string& cell) const;

 private:
  std::string names_;
};

// Where clocks and power come from, or traces of kernels, or why there are none.
struct TelemetrySource {
  std::string name;      // "" for none
  std::string why_none;  // "" where there is one
};
template <typename Telling>
TelemetrySource SourceOf(const absl::StatusOr<std::unique_ptr<Telling>>& telling) {
  if (telling.ok()) return {.name = (*telling)->source(), .why_none = ""};
  return {.name = "", .why_none = std::string(telling.status().message())};
}
std::string TelemetryText(const TelemetrySource& source);
nlohmann::json TelemetryToJson(const TelemetrySource& source);  // {"source", "why_none"}

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_PROFILE_REPORT_PARTS_H_
