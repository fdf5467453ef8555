// SPDX-License-Identifier: Apache-2.0
// `reprise profile`: what a step of a model costs on a device, and where its time goes. Measures
// real steps of the embedded engine, or of a server (live_profile.h): every number of rows
// at every context, and single points, which may have prompts, of the command line or of
// recordings.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "runtime/device_telemetry.h"
#include "runtime/status_macros.h"
#include "tools/address.h"
#include "tools/advise/batch_trace.h"
#include "tools/advise/step_sample.h"
#include "tools/bench/bench_flags.h"
#include "tools/cli.h"
#include "tools/connection_flags.h"
#include "tools/console.h"
#include "tools/device_flags.h"
#include "tools/engine_flags.h"
#include "tools/live_profile.h"
#include "tools/profile/assertion.h"
#include "tools/profile/bandwidth.h"
#include "tools/profile/export_flags.h"
#include "tools/profile/kernel_tracer.h"
#include "tools/profile/products.h"
#include "tools/profile/profiler.h"
#include "tools/profile/report.h"
#include "tools/profile/report_parts.h"
#include "tools/profile/step_points.h"
#include "tools/profile_run.h"
#include "tools/signals.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr char kProfileExamples[] =
    "Examples:\n"
    "  reprise profile --model examples/byte-llama --rows 1,8 --contexts 128,1k\n"
    "  reprise profile --preset llama-3.1-8b --device cuda --rows 1,2,8,64 --contexts 128,1k,8k "
    "--json profile.json --html profile.html\n"
    "  reprise profile --model examples/byte-llama --points 8@512,8@512+1x64,1x64\n"
    "  reprise profile --address unix:/tmp/reprise.sock --rows 1,8 --contexts 128\n"
    "  reprise profile --model examples/byte-llama --rows 8 --contexts 128 --assert "
    "'p99(8@128)<1s' --assert 'gap<1ms'\n"
    "\n"
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 done and an assertion does not hold. "
    "docs/profile.md says what each number is and what can be asserted; docs/profile.schema.json "
    "describes the JSON.";

absl::StatusOr<std::vector<StepPoint>> ParsePoints(std::string_view text) {
  std::vector<StepPoint> points;
  for (const absl::string_view part :
       absl::StrSplit(absl::string_view(text.data(), text.size()), ',')) {
    REPRISE_ASSIGN_OR_RETURN(points.emplace_back(), ParseStepPoint({part.data(), part.size()}));
  }
  return points;
}

absl::StatusOr<std::vector<uint32_t>> ParseCounts(std::string_view text) {
  REPRISE_ASSIGN_OR_RETURN(const auto values, ParseCountList(text, 1, 1u << 30));
  return std::vector<uint32_t>(values.begin(), values.end());
}

// Steps that stand for those of the recordings, among the points; buckets are the recorded server's
// unless they are given.
absl::Status AddRecorded(ProfileFlags* flags, Console* console) {
  if (flags->recorded_files.empty()) return absl::OkStatus();
  REPRISE_ASSIGN_OR_RETURN(const BatchTrace trace, ReadBatchTrace(flags->recorded_files));
  TellSkipped(trace, "reprise profile", console);
  engine::DecodeEngineOptions& engine = flags->engine.engine;
  if (trace.graphs && engine.decode_buckets.empty()) engine.decode_buckets = trace.graphs->decode;
  if (trace.graphs && engine.mixed_buckets.empty()) engine.mixed_buckets = trace.graphs->mixed;
  for (const int64_t rows : engine.decode_buckets)
    engine.max_rows = std::max(engine.max_rows, static_cast<uint32_t>(rows));
  REPRISE_ASSIGN_OR_RETURN(std::vector<SampledStep> steps,
                           SampleStepsFor(flags->engine, trace.steps, flags->recorded_points));
  SetRecorded(std::move(steps), flags);
  return absl::OkStatus();
}

// Kernels are known once the graphs are captured; nothing has been measured then.
absl::Status CheckKernels(const ProfileFlags& flags, Profiler* profiler) {
  return CheckKernelsOf(flags, /*is_server=*/false,
                        [profiler](const StepPoint& point) { return profiler->KernelsOf(point); });
}

nlohmann::json FactsOf(const LoadedEngine& loaded, const ProfileContext& context) {
  return {{"engine", EngineToJson(loaded)},
          {"server", nullptr},
          {"telemetry", TelemetryToJson(context.telemetry)},
          {"tracing", TelemetryToJson(context.tracing)},
          {"bandwidth", BandwidthToJson(context.bandwidth)},
          {"products", ProductsToJson(context.products)},
          {"stamp_cost_us", context.stamp_cost_ns.ToJson(1e-3)}};
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
  console->Progress("measuring products", /*now=*/true);
  REPRISE_ASSIGN_OR_RETURN(
      context->products,
      MeasureProducts(*loaded.device, loaded.engine->info().dtype, kBandwidthPasses));
  console->Progress("measuring what a stamp costs", /*now=*/true);
  REPRISE_ASSIGN_OR_RETURN(context->stamp_cost_ns, MeasureStampCost(*loaded.device));
  return absl::OkStatus();
}

// The tracer that --cupti asks for. Errors: those of KernelTracer::Open; Unavailable where it is
// off.
absl::StatusOr<std::unique_ptr<KernelTracer>> OpenTracer(const ProfileFlags& flags,
                                                         const runtime::DeviceProperties& device) {
  if (flags.cupti == kNoCupti) return absl::UnavailableError("--cupti off");
  if (flags.cupti == kAnyCupti) return KernelTracer::Open(device);
  return KernelTracer::Open(device, {flags.cupti});
}

absl::Status MeasureAll(const ProfileFlags& flags, const LoadedEngine& loaded,
                        const Invocation& invocation, Interrupt* interrupt) {
  const engine::EngineInfo& info = loaded.engine->info();
  Console* console = invocation.console;
  auto telemetry = runtime::DeviceTelemetry::Open(info.device);
  ProfileContext context{.device = DeviceText(info.device),
                         .model = info.model.name,
                         .spec = info.model,
                         .telemetry = SourceOf(telemetry),
                         .dtype = info.dtype,
                         .kv_dtype = info.kv_dtype,
                         .scale_inputs = info.model.weight_quantization
                                             ? info.model.weight_quantization->scale_inputs()
                                             : kernels::kScaleInputs,
                         .width = console->width(),
                         .bandwidth = {},
                         .stamp_cost_ns = {}};
  context.padding = flags.profile.padding;
  const auto tracer = OpenTracer(flags, info.device);
  if (flags.must_trace() && !tracer.ok()) {
    return absl::Status(
        tracer.status().code(),
        absl::StrCat("no kernels can be traced: ", std::string(tracer.status().message())));
  }
  context.tracing = SourceOf(tracer);
  Profiler profiler(loaded.engine.get(), telemetry.ok() ? telemetry->get() : nullptr);
  REPRISE_RETURN_IF_ERROR(profiler.Prepare(flags.profile));
  REPRISE_RETURN_IF_ERROR(CheckKernels(flags, &profiler));
  REPRISE_RETURN_IF_ERROR(MeasureDevice(flags, loaded, console, &context));
  ProfileRun run{
      .flags = flags,
      .context = context,
      .invocation = invocation,
      .facts = FactsOf(loaded, context),
      .measure = [&](uint32_t round, const MeasuredSteps& measured, PointProfile* point) {
        return profiler.Measure(flags.profile, round, measured, point);
      }};
  if (tracer.ok()) {
    run.trace = [&](const MeasuredSteps& measured, PointProfile* point) {
      return profiler.Trace(flags.profile, tracer->get(), measured, point);
    };
  }
  return RunProfile(run, interrupt);
}

absl::Status Run(ProfileFlags flags, const Invocation& invocation) {
  REPRISE_RETURN_IF_ERROR(CheckSource(flags.engine.source));
  if (flags.engine.diagnostics.poison) {
    return UsageError(
        "--poison: a profile needs contexts of numbers, and this mode fills them with NaN; "
        "allowed: no --poison");
  }
  if (flags.profile.padding && flags.engine.engine.decode == engine::DecodePolicy::kStepKernel) {
    return UsageError(
        "--padding: got it with --decode step-kernel, whose kernels are of the buckets alone; "
        "allowed: --decode chain");
  }
  REPRISE_RETURN_IF_ERROR(AddRecorded(&flags, invocation.console));
  REPRISE_RETURN_IF_ERROR(PrepareProfile(invocation, &flags));
  REPRISE_RETURN_IF_ERROR(FitPool(PointsOf(flags.profile), &flags.engine));
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
         "A bound, such as 'p99(32@512)<5ms' or 'gap<10us': exit code 3 where it does not hold; "
         "may be given several times")
      ->type_name("BOUND")
      ->allow_extra_args(false);
}

void AddPointOptions(CLI::App* app, ProfileFlags* flags) {
  AddOption(app, "--rows", &flags->profile.rows, ParseCounts, "N,N,...", "1,8,64",
            "Rows of a decode step");
  AddOption(app, "--contexts", &flags->profile.contexts, ParseCounts, "N,N,...", "128,1k",
            "Tokens in every row's KV, such as 128,1k,8k");
  AddOption(app, "--points", &flags->profile.points, ParsePoints, "POINT,...", "",
            "Steps of single sizes: 8@512 (8 rows at 512 tokens), 8@64..512 (at 64 to 512), "
            "8@512+1x256 (and "
            "a prompt of 256), 1x256 (that alone). Without --rows and --contexts: these alone");
  app->add_option("--recorded", flags->recorded_files,
                  "Steps of the sizes that these recordings of `reprise serve --record` have, or "
                  "files of numbers (`reprise help advise`), as points too")
      ->type_name("FILE")
      ->delimiter(',');
  AddOption(
      app, "--recorded-points", &flags->recorded_points,
      [](std::string_view text) { return ParseUnsigned(text, 1, 1000); }, "N", "8",
      "How many of them at most");
  AddOption(
      app, "--iterations", &flags->profile.iterations,
      [](std::string_view text) { return ParseUnsigned(text, 1, 1u << 20); }, "N", "100",
      "Measured steps of every point, plain and stamped each");
  AddOption(
      app, "--rounds", &flags->profile.rounds,
      [](std::string_view text) { return ParseUnsigned(text, 1, 1000); }, "N", "5",
      "Parts that they come in, each over all points: a warning says where these differ");
  AddOption(
      app, "--warmup", &flags->profile.warmup,
      [](std::string_view text) { return ParseUnsigned(text, 0, 1u << 20); }, "N", "16",
      "Steps before them, in every round");
  app->add_flag("--padding", flags->profile.padding,
                "Measure what padding costs too: points whose graph has room for more also through "
                "a graph of exactly their size");
  app->add_option(
         "--cupti", flags->cupti,
         "Trace kernels of some steps by CUPTI, behind all others: auto where it is found, "
         "off, or the file of its library, without which the command fails then")
      ->type_name("auto|off|FILE")
      ->default_str(kAnyCupti);
  AddBandwidthOption(app, &flags->bandwidth_bytes);
  app->get_option("--bandwidth-bytes")
      ->description(
          "Memory that the bandwidth is measured over (default: 4GiB, host 512MiB; of a server "
          "1GiB, host 64MiB)");
  AddAssertOption(app, flags);
  app->add_option("--json", flags->json_file,
                  "Write all figures to this file too; -: to stdout, and text to stderr")
      ->type_name("FILE");
  AddExportOptions(app, &flags->exports);
  NameOptionGroup(app, "Measuring");
}

void AddServerOptions(CLI::App* app, ProfileFlags* flags) {
  AddOption(
      app, "--address", &flags->connection.address, ParseAddress, "ADDRESS", "",
      "Measure a running server, HOST:PORT or unix:PATH, through a session of its own, instead "
      "of an engine in this process: the client's times too, and kernels for administrators");
  AddOption(app, "--wait", &flags->wait, ParseDuration, "TIME", "5s",
            "Wait this long for the server to become ready");
  AddProofOptions(app, &flags->connection);
}

// Names of options, by whom they are of.
struct OptionNames {
  std::vector<std::string> of_engine, of_server;
};

std::vector<std::string> NamesBehind(const CLI::App& app, size_t first) {
  const auto options = app.get_options();
  std::vector<std::string> names;
  for (size_t i = first; i < options.size(); ++i) names.push_back(options[i]->get_name());
  return names;
}

// Options of the one kind of run beside those of the other.
absl::Status CheckKind(const CLI::App& app, const OptionNames& names) {
  const bool is_server = app.count("--address") > 0;
  for (const std::string& name : is_server ? names.of_engine : names.of_server) {
    if (name == "--address" || app.count(name) == 0) continue;
    return UsageError(is_server ? absl::StrCat(name,
                                               ": got it beside --address, allowed: without; a "
                                               "server has its own")
                                : absl::StrCat(name, ": got no --address, allowed: beside it"));
  }
  return absl::OkStatus();
}

}  // namespace

Command AddProfileCommand(CLI::App* root) {
  auto flags = std::make_shared<ProfileFlags>();
  auto names = std::make_shared<OptionNames>();
  CLI::App* app = root->add_subcommand(
      "profile", "Measure steps of given sizes, kernel by kernel, here or of a server");
  app->footer(kProfileExamples);
  AddPointOptions(app, flags.get());
  size_t first = app->get_options().size();
  AddServerOptions(app, flags.get());
  names->of_server = NamesBehind(*app, first);
  NameOptionGroup(app, "Server");
  first = app->get_options().size();
  AddEngineOptions(app, &flags->engine);
  names->of_engine = NamesBehind(*app, first);
  names->of_engine.emplace_back("--cupti");
  return {app, [flags, names, app](const Invocation& invocation) -> absl::Status {
            REPRISE_RETURN_IF_ERROR(CheckKind(*app, *names));
            if (app->count("--recorded-points") > 0 && app->count("--recorded") == 0)
              return UsageError("--recorded-points: got no --recorded, allowed: beside it");
            const size_t points = app->count("--points") + app->count("--recorded");
            if (points > 0 && app->count("--rows") + app->count("--contexts") == 0) {
              flags->profile.rows.clear();
              flags->profile.contexts.clear();
            }
            return app->count("--address") > 0 ? ProfileServer(*flags, invocation)
                                               : Run(*flags, invocation);
          }};
}

}  // namespace reprise::tools
