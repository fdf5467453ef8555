// SPDX-License-Identifier: Apache-2.0
#include "tools/profile_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "tools/profile/report_parts.h"
#include "tools/record.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

// Of the steps that stand for the recordings.
double ShareOf(const SampledStep& step, const ProfileFlags& flags) {
  uint32_t all = 0;
  for (const SampledStep& other : flags.recorded) all += other.count;
  return static_cast<double>(step.count) / all;
}

std::string RecordedText(const ProfileFlags& flags) {
  std::string text;
  for (const SampledStep& step : flags.recorded) {
    absl::StrAppend(&text, text.empty() ? "recorded steps: " : ", ", NameOf(step.point), " ",
                    FormatPercent(ShareOf(step, flags)));
  }
  return text.empty() ? "" : absl::StrCat(text, "\n\n");
}

// Says which assertions do not hold, a line for each. Errors: BeyondBoundError when any does not.
absl::Status ReportAssertions(const std::vector<AssertedValue>& values, Console* console) {
  console->Print(AssertionsText(values, console->width()));
  size_t broken = 0;
  for (const AssertedValue& value : values) {
    if (value.holds) continue;
    ++broken;
    console->Note(absl::StrCat("reprise profile: ", BrokenText(value)));
  }
  if (broken == 0) return absl::OkStatus();
  return BeyondBoundError(absl::StrCat(broken, " of ", values.size(), " assertions do not hold"));
}

nlohmann::json SettingsToJson(const ProfileFlags& flags) {
  nlohmann::json points = nlohmann::json::array(), recorded = nlohmann::json::array();
  for (const SampledStep& step : flags.recorded)
    recorded.push_back({{"name", NameOf(step.point)}, {"share", ShareOf(step, flags)}});
  for (const StepPoint& point : flags.profile.points) points.push_back(NameOf(point));
  return {{"rows", flags.profile.rows},
          {"contexts", flags.profile.contexts},
          {"points", std::move(points)},
          {"recorded", std::move(recorded)},
          {"iterations", flags.profile.iterations},
          {"rounds", flags.profile.rounds},
          {"warmup", flags.profile.warmup},
          {"window_steps", kWindowSteps},
          {"padding", flags.profile.padding}};
}

nlohmann::json ProfileToJson(const ProfileRun& run, const std::vector<PointProfile>& points) {
  nlohmann::json list = nlohmann::json::array();
  for (const PointProfile& point : points) list.push_back(PointToJson(point, run.context));
  nlohmann::json json = RecordOf("profile", run.invocation);
  json["schema"] = "reprise.profile/1";
  json["error"] = nullptr;
  json["settings"] = SettingsToJson(run.flags);
  json["points"] = std::move(list);
  json.update(run.facts);
  return json;
}

std::vector<PointProfile> ProfilesOf(const ProfileOptions& options) {
  std::vector<PointProfile> profiles;
  for (const StepPoint& point : PointsOf(options)) {
    PointProfile& profile = profiles.emplace_back();
    profile.rows = point.rows;
    profile.context = point.context;
    profile.prompts = point.prompts;
    profile.shortest = point.shortest;
  }
  return profiles;
}

// Every point in every round. What ends it early leaves the rounds that are complete.
absl::Status MeasureRounds(const ProfileRun& run, const Interrupt& interrupt,
                           std::vector<PointProfile>* points) {
  const ProfileOptions& options = run.flags.profile;
  Console* console = run.invocation.console;
  const uint64_t total = uint64_t{run.kinds} * options.iterations * points->size();
  uint64_t done = 0;
  for (uint32_t round = 0; round < options.rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (PointProfile& point : *points) {
      const auto measured = [&](uint32_t steps) {
        done += steps;
        console->Progress(absl::StrCat(
            "profile ",
            ProgressBar(static_cast<double>(done), static_cast<double>(total), 20, *console), " ",
            FormatCount(done), " / ", FormatCount(total), " steps, round ", round + 1, " of ",
            options.rounds, ", ", PointName(point)));
        return interrupt.status();
      };
      REPRISE_RETURN_IF_ERROR(run.measure(round, measured, &point));
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    console->Note(absl::StrCat("measured: round ", round + 1, " of ", options.rounds, " in ",
                               FormatDuration(took.count())));
  }
  return absl::OkStatus();
}

// Every point once more, its kernels traced.
absl::Status TracePoints(const ProfileRun& run, const Interrupt& interrupt,
                         std::vector<PointProfile>* points) {
  Console* console = run.invocation.console;
  const auto start = std::chrono::steady_clock::now();
  for (PointProfile& point : *points) {
    const auto measured = [&](uint32_t) {
      console->Progress(absl::StrCat("tracing kernels of ", PointName(point)));
      return interrupt.status();
    };
    REPRISE_RETURN_IF_ERROR(run.trace(measured, &point));
  }
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
  console->Note(absl::StrCat("measured: kernels traced in ", FormatDuration(took.count())));
  return absl::OkStatus();
}

void PrintPoints(const std::vector<PointProfile>& points, const ProfileContext& context,
                 Console* console) {
  for (const PointProfile& point : points) console->Print(PointText(point, context));
  console->Print(PointsText(points, context));
  for (const PointProfile& point : points) {
    for (const std::string& warning : {SpreadWarning(point), SharedWarning(point)}) {
      if (!warning.empty()) console->Note(absl::StrCat("reprise profile: warning: ", warning));
    }
  }
}

}  // namespace

void SetRecorded(std::vector<SampledStep> steps, ProfileFlags* flags) {
  flags->recorded = std::move(steps);
  for (const SampledStep& step : flags->recorded) flags->profile.points.push_back(step.point);
}

absl::Status PrepareProfile(const Invocation& invocation, ProfileFlags* flags) {
  for (const Assertion& assertion : flags->assertions) {
    const absl::Status measured = CheckPoint(assertion, PointsOf(flags->profile));
    if (!measured.ok()) return UsageError(std::string(measured.message()));
  }
  flags->profile.rounds = std::min(flags->profile.rounds, flags->profile.iterations);
  REPRISE_RETURN_IF_ERROR(PrepareRecord(flags->json_file, invocation.console));
  return PrepareExports(flags->exports, invocation.console);
}

absl::Status CheckKernelsOf(const ProfileFlags& flags, bool is_server,
                            const LaunchesOfFn& launches_of) {
  for (const Assertion& assertion : flags.assertions) {
    std::vector<std::string> kernels;
    for (const StepPoint& point : PointsOf(flags.profile)) {
      if (assertion.point && *assertion.point != point) continue;
      REPRISE_ASSIGN_OR_RETURN(const auto launches, launches_of(point));
      for (const graphs::ProfiledLaunch& launch : launches) {
        if (std::count(kernels.begin(), kernels.end(), NameOf(launch)) == 0)
          kernels.push_back(NameOf(launch));
      }
    }
    const absl::Status known = CheckKernel(assertion, kernels, is_server);
    if (!known.ok()) return UsageError(std::string(known.message()));
  }
  return absl::OkStatus();
}

absl::Status RunProfile(const ProfileRun& run, Interrupt* interrupt) {
  Console* console = run.invocation.console;
  console->Print(absl::StrCat(ProfileHeader(run.context), RecordedText(run.flags)));
  interrupt->Arm();
  std::vector<PointProfile> points = ProfilesOf(run.flags.profile);
  absl::Status status = MeasureRounds(run, *interrupt, &points);
  absl::Status traced;
  if (status.ok() && run.trace) traced = TracePoints(run, *interrupt, &points);
  if (run.flags.must_trace() || !interrupt->status().ok()) status.Update(traced);
  console->ClearProgress();
  std::erase_if(points, [](const PointProfile& p) { return p.round_replay_ns.empty(); });
  if (points.empty()) return status;
  PrintPoints(points, run.context, console);
  nlohmann::json json = ProfileToJson(run, points);
  if (!status.ok()) json["error"] = std::string(status.message());
  if (!traced.ok()) {
    const std::string reason(traced.message());
    console->Note(absl::StrCat("reprise profile: warning: not all kernels are traced: ", reason));
    json["tracing"]["why_none"] = reason;
  }
  // Of a run that ended early nothing is asserted: it has failed already.
  const std::vector<AssertedValue> asserted =
      status.ok() ? Evaluate(run.flags.assertions, points, run.context)
                  : std::vector<AssertedValue>();
  json["assertions"] = AssertionsToJson(asserted);
  absl::Status written = WriteRecord(run.flags.json_file, json, console);
  written.Update(WriteExports(run.flags.exports, json, console));
  if (!status.ok()) return status;
  REPRISE_RETURN_IF_ERROR(written);
  return ReportAssertions(asserted, console);
}

}  // namespace reprise::tools
