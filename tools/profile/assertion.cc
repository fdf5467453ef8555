// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/assertion.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/status_macros.h"
#include "tools/table.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

struct StatisticDef {
  std::string_view name;
  double percent;  // 0: the mean
};
constexpr std::array<StatisticDef, 6> kStatistics = {
    {{"p50", 50}, {"p90", 90}, {"p99", 99}, {"p99.9", 99.9}, {"max", 100}, {"mean", 0}}};

constexpr std::string_view kGap = "gap";
constexpr std::string_view kIdle = "idle";  // between kernels, as traced
constexpr std::array<std::string_view, 6> kSubjects = {"replay",  "device", "launch",
                                                       "outside", kGap,     kIdle};
constexpr std::array<std::string_view, 7> kServerSubjects = {
    "replay", "device", "launch", "outside", "wall", "overhead", kGap};

constexpr char kForm[] =
    "FIGURE<DURATION or FIGURE<=DURATION, such as \"p99(32@512)<5ms\", \"gap<10us\", "
    "\"mean(publish,8@1k)<=2us\" or \"launch<20us\"";

absl::Status Refuse(const std::string& what, std::string_view got, const std::string& allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": got \"", std::string(got), "\", allowed: ", allowed));
}

std::string Trimmed(std::string_view text) {
  return std::string(absl::StripAsciiWhitespace(absl::string_view(text.data(), text.size())));
}

const StatisticDef* FindStatistic(std::string_view name) {
  for (const StatisticDef& statistic : kStatistics) {
    if (statistic.name == name) return &statistic;
  }
  return nullptr;
}

std::string StatisticNames() {
  std::vector<std::string> names;
  for (const StatisticDef& statistic : kStatistics) names.emplace_back(statistic.name);
  return absl::StrJoin(names, ", ");
}

// One argument in brackets: a point or a subject, each at most once.
absl::Status ParseArgument(const std::string& argument, std::string_view text,
                           Assertion* assertion) {
  if (argument.find('@') != argument.npos ||
      (!argument.empty() && absl::ascii_isdigit(static_cast<unsigned char>(argument.front())))) {
    if (assertion->point) return Refuse("assertion", text, "one point");
    REPRISE_ASSIGN_OR_RETURN(assertion->point, ParseStepPoint(argument));
    return absl::OkStatus();
  }
  if (argument.empty() || !assertion->subject.empty()) return Refuse("assertion", text, kForm);
  assertion->subject = argument;
  return absl::OkStatus();
}

// "p99(publish,32@512)", "publish(32@512)", "gap".
absl::Status ParseFigure(std::string_view figure, std::string_view text, Assertion* assertion) {
  const size_t open = figure.find('(');
  const std::string head = Trimmed(figure.substr(0, open));
  const bool is_statistic = FindStatistic(head) != nullptr;
  (is_statistic ? assertion->statistic : assertion->subject) = head;
  if (head.empty()) return Refuse("assertion", text, kForm);
  if (open != figure.npos) {
    if (!figure.ends_with(')')) return Refuse("assertion", text, kForm);
    std::string_view rest = figure.substr(open + 1, figure.size() - open - 2);
    for (bool more = true; more;) {
      const size_t comma = rest.find(',');
      REPRISE_RETURN_IF_ERROR(ParseArgument(Trimmed(rest.substr(0, comma)), text, assertion));
      more = comma != rest.npos;
      if (more) rest.remove_prefix(comma + 1);
    }
  }
  if (assertion->subject.empty()) assertion->subject = "replay";
  if (assertion->subject == kGap && assertion->point)
    return Refuse("assertion", text, "gap without a point: it is of the whole run");
  return absl::OkStatus();
}

double StatisticOf(const Samples& samples, std::string_view name) {
  const double percent = FindStatistic(name)->percent;
  return percent == 0 ? samples.Mean() : samples.Percentile(percent);
}

// The samples of a subject at a point; empty where it has no such kernel.
Samples SamplesOf(std::string_view subject, const PointProfile& point, double stamp_ns) {
  if (subject == "replay") return point.plain.replay_ns;
  if (subject == "device") return point.plain.device_ns;
  if (subject == "launch") return point.plain.launch_ns;
  if (subject == "wall") return point.wall_ns;
  if (subject == "overhead") return point.overhead_ns;
  if (subject == kIdle) return point.trace.gap_ns();
  Samples samples;
  if (subject == "outside") {
    const auto device = point.plain.device_ns.values();
    const auto replay = point.plain.replay_ns.values();
    for (size_t i = 0; i < replay.size(); ++i) samples.Add(std::max(0.0, replay[i] - device[i]));
    return samples;
  }
  for (const OpTime& op : point.kernels.ops()) {
    if (NameOf(op.launch) != subject) continue;
    for (const double stamped : op.stamped_ns.values())
      samples.Add(std::max(0.0, stamped - op.count * stamp_ns));
    return samples;
  }
  return samples;
}

bool IsOneOf(std::string_view subject, std::span<const std::string_view> subjects) {
  return std::find(subjects.begin(), subjects.end(), subject) != subjects.end();
}

bool IsKernel(std::string_view subject) {
  return !IsOneOf(subject, kSubjects) && !IsOneOf(subject, kServerSubjects);
}

AssertedValue ValueOf(const Assertion& assertion, const Samples& samples, std::string point) {
  // What the tables show: a kernel's mean, and the median of all else.
  const char* shown = IsKernel(assertion.subject) ? "mean" : "p50";
  AssertedValue value{
      .text = assertion.text,
      .point = std::move(point),
      .value_ns = StatisticOf(samples, assertion.statistic.empty() ? shown : assertion.statistic),
      .bound_ns = assertion.bound_ns};
  value.holds =
      assertion.or_equal ? value.value_ns <= value.bound_ns : value.value_ns < value.bound_ns;
  return value;
}

}  // namespace

absl::StatusOr<Assertion> ParseAssertion(std::string_view text) {
  const size_t less = text.find('<');
  if (less == text.npos) return Refuse("assertion", text, kForm);
  Assertion assertion;
  assertion.text = Trimmed(text);
  std::string_view bound = text.substr(less + 1);
  assertion.or_equal = bound.starts_with('=');
  if (assertion.or_equal) bound.remove_prefix(1);
  const auto duration = ParseDuration(Trimmed(bound));
  if (!duration.ok()) {
    return Refuse("assertion", text,
                  absl::StrCat("a number and a unit behind \"<\", such as 5ms or 10us (ns, us, "
                               "ms, s)"));
  }
  assertion.bound_ns = static_cast<double>(duration->count());
  REPRISE_RETURN_IF_ERROR(ParseFigure(Trimmed(text.substr(0, less)), text, &assertion));
  return assertion;
}

absl::Status CheckPoint(const Assertion& assertion, std::span<const StepPoint> points) {
  if (!assertion.point || std::find(points.begin(), points.end(), *assertion.point) != points.end())
    return absl::OkStatus();
  std::vector<std::string> names;
  for (const StepPoint& point : points) names.push_back(NameOf(point));
  return Refuse(absl::StrCat("--assert ", assertion.text, ": point"), NameOf(*assertion.point),
                absl::StrCat(absl::StrJoin(names, ", "), ", which are measured"));
}

absl::Status CheckKernel(const Assertion& assertion, const std::vector<std::string>& kernels,
                         bool is_server) {
  const std::span<const std::string_view> known =
      is_server ? std::span<const std::string_view>(kServerSubjects) : kSubjects;
  if (IsOneOf(assertion.subject, known) ||
      std::find(kernels.begin(), kernels.end(), assertion.subject) != kernels.end())
    return absl::OkStatus();
  const std::vector<std::string> subjects(known.begin(), known.end());
  return Refuse(
      absl::StrCat("--assert ", assertion.text, ": figure"), assertion.subject,
      absl::StrCat(absl::StrJoin(subjects, ", "), "; a kernel: ", absl::StrJoin(kernels, ", "),
                   "; each in ", StatisticNames(), "(...)"));
}

bool NeedsTraces(std::span<const Assertion> assertions) {
  return std::any_of(assertions.begin(), assertions.end(),
                     [](const Assertion& assertion) { return assertion.subject == kIdle; });
}

absl::Status CheckServerSubject(const Assertion& assertion) {
  if (assertion.subject != kIdle) return absl::OkStatus();
  const std::vector<std::string> subjects(kServerSubjects.begin(), kServerSubjects.end());
  return Refuse(absl::StrCat("--assert ", assertion.text, ": figure"), assertion.subject,
                absl::StrCat(absl::StrJoin(subjects, ", "), ", a kernel: a server traces none"));
}

bool NeedsStamps(const Assertion& assertion) {
  return assertion.subject == kGap || IsKernel(assertion.subject);
}

std::vector<AssertedValue> Evaluate(std::span<const Assertion> assertions,
                                    const std::vector<PointProfile>& points,
                                    const ProfileContext& context) {
  std::vector<AssertedValue> values;
  for (const Assertion& assertion : assertions) {
    if (assertion.subject == kGap) {
      values.push_back(ValueOf(assertion, context.stamp_cost_ns, ""));
      continue;
    }
    for (const PointProfile& point : points) {
      const StepPoint at = point.point();
      if (assertion.point && *assertion.point != at) continue;
      const Samples samples = SamplesOf(assertion.subject, point, context.StampCostNs());
      if (!samples.empty()) values.push_back(ValueOf(assertion, samples, NameOf(at)));
    }
  }
  return values;
}

std::string AssertionsText(const std::vector<AssertedValue>& values, size_t width) {
  if (values.empty()) return "";
  Table table({"assertion", "point", "value", ""});
  table.AlignLeft();
  table.SetKeys(2);
  for (const AssertedValue& value : values) {
    table.AddRow({value.text, value.point.empty() ? "all" : value.point,
                  FormatDuration(value.value_ns), value.holds ? "holds" : "does not hold"});
  }
  return absl::StrCat("\n", table.ToString(width));
}

std::string BrokenText(const AssertedValue& value) {
  return absl::StrCat(value.text, " does not hold: ", FormatDuration(value.value_ns),
                      value.point.empty() ? "" : " at ", value.point);
}

nlohmann::json AssertionsToJson(const std::vector<AssertedValue>& values) {
  nlohmann::json list = nlohmann::json::array();
  for (const AssertedValue& value : values) {
    list.push_back(
        {{"assertion", value.text},
         {"point", value.point.empty() ? nlohmann::json(nullptr) : nlohmann::json(value.point)},
         {"value_us", value.value_ns * 1e-3},
         {"bound_us", value.bound_ns * 1e-3},
         {"holds", value.holds}});
  }
  return list;
}

}  // namespace reprise::tools
