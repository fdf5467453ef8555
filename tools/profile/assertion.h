// SPDX-License-Identifier: Apache-2.0
// Assertion: a bound that a profile's figure must keep, such as "p99(32@512)<5ms" or "gap<10us".
// docs/profile.md has the grammar. A wrong one is refused before anything is measured: its form by
// ParseAssertion, its point by CheckPoint, its kernel, once the graphs are captured, by
// CheckKernel.
#ifndef REPRISE_TOOLS_PROFILE_ASSERTION_H_
#define REPRISE_TOOLS_PROFILE_ASSERTION_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tools/profile/profiler.h"
#include "tools/profile/report.h"
#include "tools/profile/step_points.h"

namespace reprise::tools {

struct Assertion {
  std::string text;                // as it was typed
  std::string statistic;           // "p99"; "" for the one that tables show
  std::string subject;             // "replay", "gap", "publish"
  std::optional<StepPoint> point;  // unset: every point that was measured
  bool or_equal = false;
  double bound_ns = 0;
};

// Errors: InvalidArgument with what, got, allowed.
absl::StatusOr<Assertion> ParseAssertion(std::string_view text);

// Whether its point is among those that are measured. Errors: InvalidArgument lists these.
absl::Status CheckPoint(const Assertion& assertion, std::span<const StepPoint> points);
// Whether its subject is a figure of every profile of an engine in this process, or of a server's
// (`is_server`), or one of `kernels`, named as in tables. Errors: InvalidArgument lists what there
// is.
absl::Status CheckKernel(const Assertion& assertion, const std::vector<std::string>& kernels,
                         bool is_server = false);
// Whether any is of traced kernels (profiler.h), without which it would hold of nothing.
bool NeedsTraces(std::span<const Assertion> assertions);
// Whether its subject can be a figure of a profile of a server, which traces no kernels. Errors:
// likewise.
absl::Status CheckServerSubject(const Assertion& assertion);
// Whether it is of stamped steps, a kernel or what a stamp costs, without which it would hold of
// nothing.
bool NeedsStamps(const Assertion& assertion);

// What became of an assertion at one point, or of the whole run.
struct AssertedValue {
  std::string text;   // the assertion's
  std::string point;  // "32@512", "" for the run
  double value_ns = 0;
  double bound_ns = 0;
  bool holds = false;
};

// At every point that it is about and that has its kernel. Assertions were checked.
std::vector<AssertedValue> Evaluate(std::span<const Assertion> assertions,
                                    const std::vector<PointProfile>& points,
                                    const ProfileContext& context);

// A table of all; "" for none.
std::string AssertionsText(const std::vector<AssertedValue>& values, size_t width);
// "p99(32@512)<5ms does not hold: 6.10 ms at 32@512".
std::string BrokenText(const AssertedValue& value);
nlohmann::json AssertionsToJson(const std::vector<AssertedValue>& values);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_PROFILE_ASSERTION_H_
