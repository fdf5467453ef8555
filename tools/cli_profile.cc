// SPDX-License-Identifier: Apache-2.0
// `reprise profile`: what a decode step of a model costs on a device, and where its time goes.
// Measures real steps of the embedded engine, for every number of rows at every context.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "tools/bench/bench_flags.h"
#include "tools/cli.h"
#include "tools/console.h"
#include "tools/device_flags.h"
#include "tools/engine_flags.h"
#include "tools/profile/assertion.h"
#include "tools/profile/bandwidth.h"
#include "tools/profile/decode_points.h"
#include "tools/profile/export_flags.h"
#include "tools/profile/profiler.h"
#include "tools/profile/report.h"
#include "tools/profile/report_parts.h"
#include "tools/profile/telemetry.h"
#include "tools/record.h"
#include "tools/signals.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr char kExamples[] =
    "Examples:\n"
    "  reprise profile --model examples/byte-llama --rows 1,8 --contexts 128,1k\n"
    "  reprise profile --preset llama-3.1-8b --device cuda --rows 1,2,8,64 --contexts 128,1k,8k "
    "--json profile.json --html profile.html\n"
    "  reprise profile --model examples/byte-llama --rows 8 --contexts 128 --assert "
    "'p99(8@128)<1s' --assert 'gap<1ms'\n"
    "\n"
    "Exit codes: 0 done, 1 failed or an assertion does not hold, 2 wrong usage. docs/profile.md "
    "says what each number is and what can be asserted; docs/profile.schema.json describes the "
    "JSON.";

struct ProfileFlags {
  EngineFlags engine;
  ProfileOptions profile;
  uint64_t bandwidth_bytes = 0;  // 0: by device
  std::vector<Assertion> assertions;
  std::string json_file;
  ExportFlags exports;
};

absl::StatusOr<std::vector<uint32_t>> ParseCounts(std::string_view text) {
  REPRISE_ASSIGN_OR_RETURN(const auto values, ParseCountList(text, 1, 1u << 30));
  return std::vector<uint32_t>(values.begin(), values.end());
}

// Kernels are known once the graphs are captured; nothing has been measured then.
absl::Status CheckKernels(const ProfileFlags& flags, Profiler* profiler) {
  for (const Assertion& assertion : flags.assertions) {
    std::vector<std::string> kernels;
    for (const uint32_t rows : flags.profile.rows) {
      if (assertion.point && assertion.point->rows != rows) continue;
      REPRISE_ASSIGN_OR_RETURN(const auto launches, profiler->KernelsOf(rows));
      for (const graphs::ProfiledLaunch& launch : launches) {
        if (std::count(kernels.begin(), kernels.end(), NameOf(launch)) == 0)
          kernels.push_back(NameOf(launch));
      }
    }
    const absl::Status known = CheckKernel(assertion, kernels);
    if (!known.ok()) return UsageError(std::string(known.message()));
  }
  return absl::OkStatus();
}

// Says which assertions do not hold, a line for each. Errors: FailedPrecondition when any does not.
absl::Status ReportAssertions(const std::vector<AssertedValue>& values, Console* console) {
  console->Print(AssertionsText(values, console->width()));
  size_t broken = 0;
  for (const AssertedValue& value : values) {
    if (value.holds) continue;
    ++broken;
    console->Note(absl::StrCat("reprise profile: ", BrokenText(value)));
  }
  if (broken == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(broken, " of ", values.size(), " assertions do not hold"));
}

nlohmann::json ProfileToJson(const ProfileFlags& flags, const LoadedEngine& loaded,
                             const ProfileContext& context, const std::vector<PointProfile>& points,
                             const Invocation& invocation) {
  nlohmann::json list = nlohmann::json::array();
  for (const PointProfile& point : points) list.push_back(PointToJson(point, context));
  nlohmann::json json = RecordOf("profile", invocation);
  json["schema"] = "reprise.profile/1";
  json["error"] = nullptr;
  json["engine"] = EngineToJson(*loaded.engine);
  json["settings"] = {{"rows", flags.profile.rows},
                      {"contexts", flags.profile.contexts},
                      {"iterations", flags.profile.iterations},
                      {"rounds", flags.profile.rounds},
                      {"warmup", flags.profile.warmup},
                      {"window_steps", kWindowSteps}};
  json["telemetry"] = {{"source", TextOrNull(context.telemetry)},
                       {"why_none", TextOrNull(context.telemetry_why)}};
  json["bandwidth"] = BandwidthToJson(context.bandwidth);
  json["stamp_cost_us"] = context.stamp_cost_ns.ToJson(1e-3);
  json["points"] = std::move(list);
  return json;
}

std::vector<PointProfile> ProfilesOf(const ProfileOptions& options) {
  std::vector<PointProfile> profiles;
  for (const DecodePoint& point : PointsOf(options)) {
    PointProfile& profile = profiles.emplace_back();
    profile.rows = point.rows;
    profile.context = point.context;
  }
  return profiles;
}

// Every point in every round. What ends it early leaves the rounds that are complete.
absl::Status MeasureRounds(const ProfileOptions& options, const Interrupt& interrupt,
                           Profiler* profiler, Console* console,
                           std::vector<PointProfile>* points) {
  const uint64_t total = uint64_t{2} * options.iterations * points->size();
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
      REPRISE_RETURN_IF_ERROR(profiler->Measure(options, round, measured, &point));
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    console->Note(absl::StrCat("measured: round ", round + 1, " of ", options.rounds, " in ",
                               FormatDuration(took.count())));
  }
  return absl::OkStatus();
}

// What is measured once, before any point.
absl::Status MeasureDevice(const ProfileFlags& flags, const LoadedEngine& loaded, Console* console,
                           ProfileContext* context) {
  const uint64_t bytes = flags.bandwidth_bytes != 0
                             ? flags.bandwidth_bytes
                             : DefaultBandwidthBytes(loaded.engine->info().device);
  console->Progress(absl::StrCat("measuring bandwidth over ", FormatBytes(bytes)), /*now=*/true);
  REPRISE_ASSIGN_OR_RETURN(context->bandwidth,
                           MeasureBandwidth(*loaded.device, bytes, kBandwidthPasses));
  console->Progress("measuring what a stamp costs", /*now=*/true);
  REPRISE_ASSIGN_OR_RETURN(context->stamp_cost_ns, MeasureStampCost(*loaded.device));
  return absl::OkStatus();
}

void PrintPoints(const std::vector<PointProfile>& points, const ProfileContext& context,
                 Console* console) {
  for (const PointProfile& point : points) console->Print(PointText(point, context));
  console->Print(PointsText(points, context));
  for (const PointProfile& point : points) {
    const std::string warning = SpreadWarning(point);
    if (!warning.empty()) console->Note(absl::StrCat("reprise profile: warning: ", warning));
  }
}

absl::Status MeasureAll(const ProfileFlags& flags, const LoadedEngine& loaded,
                        const Invocation& invocation, Interrupt* interrupt) {
  const engine::EngineInfo& info = loaded.engine->info();
  Console* console = invocation.console;
  auto telemetry = Telemetry::Open(info.device);
  ProfileContext context{
      .device = DeviceText(info.device),
      .model = info.model.name,
      .telemetry = telemetry.ok() ? (*telemetry)->source() : "",
      .telemetry_why = telemetry.ok() ? "" : std::string(telemetry.status().message()),
      .num_layers = info.model.num_layers,
      .weight_bytes = static_cast<double>(runtime::SizeOf(info.dtype)),
      .width = console->width(),
      .bandwidth = {},
      .stamp_cost_ns = {}};
  Profiler profiler(loaded.engine.get(), telemetry.ok() ? telemetry->get() : nullptr);
  REPRISE_RETURN_IF_ERROR(profiler.Prepare(flags.profile));
  REPRISE_RETURN_IF_ERROR(CheckKernels(flags, &profiler));
  REPRISE_RETURN_IF_ERROR(MeasureDevice(flags, loaded, console, &context));
  console->Print(ProfileHeader(context));
  interrupt->Arm();
  std::vector<PointProfile> points = ProfilesOf(flags.profile);
  const absl::Status status = MeasureRounds(flags.profile, *interrupt, &profiler, console, &points);
  console->ClearProgress();
  std::erase_if(points, [](const PointProfile& p) { return p.round_replay_ns.empty(); });
  if (points.empty()) return status;
  PrintPoints(points, context, console);
  nlohmann::json json = ProfileToJson(flags, loaded, context, points, invocation);
  if (!status.ok()) json["error"] = std::string(status.message());
  // Of a run that ended early nothing is asserted: it has failed already.
  const std::vector<AssertedValue> asserted =
      status.ok() ? Evaluate(flags.assertions, points, context) : std::vector<AssertedValue>();
  json["assertions"] = AssertionsToJson(asserted);
  absl::Status written = WriteRecord(flags.json_file, json, console);
  written.Update(WriteExports(flags.exports, json, console));
  if (!status.ok()) return status;
  REPRISE_RETURN_IF_ERROR(written);
  return ReportAssertions(asserted, console);
}

absl::Status Run(ProfileFlags flags, const Invocation& invocation) {
  REPRISE_RETURN_IF_ERROR(CheckSource(flags.engine.source));
  if (flags.engine.diagnostics.poison) {
    return UsageError(
        "--poison: a profile needs contexts of numbers, and this mode fills them with NaN; "
        "allowed: no --poison");
  }
  for (const Assertion& assertion : flags.assertions) {
    const absl::Status measured = CheckPoint(assertion, PointsOf(flags.profile));
    if (!measured.ok()) return UsageError(std::string(measured.message()));
  }
  REPRISE_RETURN_IF_ERROR(PrepareRecord(flags.json_file, invocation.console));
  REPRISE_RETURN_IF_ERROR(PrepareExports(flags.exports, flags.json_file, invocation.console));
  REPRISE_RETURN_IF_ERROR(FitPool(PointsOf(flags.profile), &flags.engine));
  flags.profile.rounds = std::min(flags.profile.rounds, flags.profile.iterations);
  flags.engine.diagnostics.random_kv_cache = true;
  Interrupt interrupt;
  REPRISE_ASSIGN_OR_RETURN(const LoadedEngine loaded, LoadEngine(flags.engine, invocation.console));
  return MeasureAll(flags, loaded, invocation, &interrupt);
}

void AddAssertOption(CLI::App* app, ProfileFlags* flags) {
  app->add_option_function<std::vector<std::string>>(
         "--assert",
         [flags](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) {
             absl::StatusOr<Assertion> assertion = ParseAssertion(text);
             if (!assertion.ok()) throw OptionError("--assert", assertion.status());
             flags->assertions.push_back(*std::move(assertion));
           }
         },
         "A bound, such as 'p99(32@512)<5ms' or 'gap<10us': exit code 1 where it does not hold; "
         "may be given several times")
      ->type_name("BOUND")
      ->allow_extra_args(false);
}

void AddPointOptions(CLI::App* app, ProfileFlags* flags) {
  AddOption(app, "--rows", &flags->profile.rows, ParseCounts, "N,N,...", "1,8,64",
            "Rows of a decode step");
  AddOption(app, "--contexts", &flags->profile.contexts, ParseCounts, "N,N,...", "128,1k",
            "Tokens in every row's KV, such as 128,1k,8k");
  AddOption(
      app, "--iterations", &flags->profile.iterations,
      [](std::string_view text) { return ParseUnsigned(text, 1, 1u << 20); }, "N", "100",
      "Measured steps of every point, plain and stamped each");
  AddOption(
      app, "--rounds", &flags->profile.rounds,
      [](std::string_view text) { return ParseUnsigned(text, 1, 1000); }, "N", "3",
      "Parts that they come in, each over all points: a warning says where these differ");
  AddOption(
      app, "--warmup", &flags->profile.warmup,
      [](std::string_view text) { return ParseUnsigned(text, 0, 1u << 20); }, "N", "16",
      "Steps before them, in every round");
  AddBandwidthOption(app, &flags->bandwidth_bytes);
  AddAssertOption(app, flags);
  app->add_option("--json", flags->json_file,
                  "Write all figures to this file too; -: to stdout, and text to stderr")
      ->type_name("FILE");
  AddExportOptions(app, &flags->exports);
  NameOptionGroup(app, "Measuring");
}

}  // namespace

Command AddProfileCommand(CLI::App* root) {
  auto flags = std::make_shared<ProfileFlags>();
  CLI::App* app = root->add_subcommand(
      "profile", "Measure decode steps of given sizes, kernel by kernel, without a server");
  app->footer(kExamples);
  AddPointOptions(app, flags.get());
  AddEngineOptions(app, &flags->engine);
  return {app, [flags](const Invocation& invocation) { return Run(*flags, invocation); }};
}

}  // namespace reprise::tools
