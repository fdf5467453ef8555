// SPDX-License-Identifier: Apache-2.0
// `reprise advise`: from how large the steps of a server were, the buckets that cost least; and
// whether they do, measured.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graphs/bucket_table.h"
#include "grpcpp/client_context.h"
#include "models/weights/file_input.h"
#include "reprise/v1/step_service.grpc.pb.h"
#include "runtime/status_macros.h"
#include "tools/address.h"
#include "tools/admin_server.h"
#include "tools/advise/advice.h"
#include "tools/advise/advice_report.h"
#include "tools/advise/batch_trace.h"
#include "tools/advise/bucket_cost.h"
#include "tools/advise/step_sample.h"
#include "tools/advise/verify.h"
#include "tools/atomic_file.h"
#include "tools/cli.h"
#include "tools/config_file.h"
#include "tools/connection_flags.h"
#include "tools/console.h"
#include "tools/engine_flags.h"
#include "tools/profile/profile_file.h"
#include "tools/record.h"
#include "tools/serve_config.h"
#include "tools/signals.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr char kAdviseExamples[] =
    "Examples:\n"
    "  reprise advise recordings/*.record\n"
    "  reprise advise recordings/*.record --profile profile.json --kind decode --json advice.json\n"
    "  reprise advise recordings/*.record --memory 64MiB --graph-bytes 4MiB\n"
    "  reprise advise steps.csv --max-graphs 6 --mixed-buckets 64,256,1024\n"
    "  reprise advise recordings/*.record --verify --model examples/byte-llama\n"
    "  reprise advise recordings/*.record --serve-config serve.toml\n"
    "  reprise advise recordings/*.record --address 127.0.0.1:50061 --apply\n"
    "\n"
    "docs/advise.md says what the figures are; docs/advise.schema.json describes the JSON.";

constexpr size_t kMaxConfigBytes = size_t{1} << 20;

// Captures may take that long on a busy device.
constexpr std::chrono::minutes kApplyTime(5);

struct AdviseFlags {
  std::vector<std::string> files;
  std::string profile_file, json_file, config_file;
  size_t max_graphs = 0;
  std::optional<uint64_t> memory, graph_bytes;
  AdviseKind kind = AdviseKind::kBoth;
  bool apply = false;
  ConnectionOptions connection;
  bool verify = false;
  uint32_t steps = 200, rounds = 3;
  EngineFlags engine;
  bool max_rows_given = false;
};

absl::StatusOr<AdviseKind> ParseKind(std::string_view text) {
  if (text == "both") return AdviseKind::kBoth;
  if (text == "decode") return AdviseKind::kDecode;
  if (text == "mixed") return AdviseKind::kMixed;
  return absl::InvalidArgumentError(
      absl::StrCat("kind: got \"", std::string(text), "\", allowed: both, decode, mixed"));
}

std::vector<int64_t> Sorted(std::vector<int64_t> buckets) {
  std::sort(buckets.begin(), buckets.end());
  buckets.erase(std::unique(buckets.begin(), buckets.end()), buckets.end());
  return buckets;
}

// The running server of --address, and the buckets that it has.
struct LiveServer {
  AdminServer server;
  ServedGraphs graphs;
  uint64_t version = 0;  // of its buckets
};

absl::StatusOr<std::optional<LiveServer>> ConnectTo(const AdviseFlags& flags) {
  if (flags.connection.address.empty()) return std::nullopt;
  REPRISE_ASSIGN_OR_RETURN(AdminServer server, ConnectToAdminister(flags.connection));
  grpc::ClientContext context;
  server.Prepare(&context);
  v1::DescribeResponse described;
  REPRISE_RETURN_IF_ERROR(
      FromGrpc(server.stub->Describe(&context, v1::DescribeRequest(), &described), "Describe"));
  return LiveServer{.server = std::move(server),
                    .graphs = GraphsOf(described.buckets()),
                    .version = described.buckets_version()};
}

// Has the server capture the advised buckets, and use them from then on.
absl::StatusOr<nlohmann::json> Apply(const std::string& address, const BucketSet& set,
                                     const LiveServer& live, Console* console) {
  if (set.decode == live.graphs.decode && set.mixed == live.graphs.mixed) {
    console->Print(absl::StrCat("applied: ", address, " has these buckets already\n"));
    return nlohmann::json{{"address", address},
                          {"version", live.version},
                          {"capture_ns", 0},
                          {"graphs", set.num_graphs()}};
  }
  v1::SetBucketsRequest request;
  request.mutable_decode()->Assign(set.decode.begin(), set.decode.end());
  request.mutable_mixed()->Assign(set.mixed.begin(), set.mixed.end());
  grpc::ClientContext context;
  live.server.Prepare(&context, kApplyTime);
  v1::SetBucketsResponse response;
  REPRISE_RETURN_IF_ERROR(
      FromGrpc(live.server.stub->SetBuckets(&context, request, &response), "SetBuckets"));
  console->Print(absl::StrCat("applied: ", address, " has ", response.buckets_size(),
                              " other graphs, captured in ",
                              FormatDuration(static_cast<double>(response.capture_ns())),
                              ", version ", response.version(), " of its buckets\n"));
  return nlohmann::json{{"address", address},
                        {"version", response.version()},
                        {"capture_ns", response.capture_ns()},
                        {"graphs", response.buckets_size()}};
}

// What there is: as the command line says, else the running server, the recorded server, the
// profiled one.
absl::StatusOr<AdviceOptions> OptionsOf(const AdviseFlags& flags, const BatchTrace& trace,
                                        const BucketCost& cost,
                                        const std::optional<LiveServer>& live) {
  const engine::DecodeEngineOptions& engine = flags.engine.engine;
  if (!live && (engine.decode_buckets.empty() || engine.mixed_buckets.empty()))
    REPRISE_RETURN_IF_ERROR(trace.differing_graphs);
  const ServedGraphs served = live ? live->graphs : trace.graphs.value_or(cost.graphs());
  AdviceOptions options{
      .current = {.decode =
                      Sorted(engine.decode_buckets.empty() ? served.decode : engine.decode_buckets),
                  .mixed =
                      Sorted(engine.mixed_buckets.empty() ? served.mixed : engine.mixed_buckets)},
      .decode_bytes = served.decode_bytes,
      .mixed_bytes = served.mixed_bytes,
      .max_graphs = flags.max_graphs,
      .max_bytes = flags.memory,
      .kind = flags.kind};
  if (options.current.decode.empty())
    options.current.decode = graphs::BucketTable::PowersOfTwoUpTo(engine.max_rows);
  if (flags.graph_bytes)
    options.decode_bytes = options.mixed_bytes = static_cast<double>(*flags.graph_bytes);
  if (flags.memory && options.decode_bytes <= 0 && options.mixed_bytes <= 0) {
    return UsageError(
        "--memory: what a graph takes is not known: got no recording or profile of a GPU, allowed: "
        "--graph-bytes SIZE beside it");
  }
  return options;
}

absl::StatusOr<Verification> Verify(const AdviseFlags& flags, const BatchTrace& trace,
                                    const Advice& advice, Console* console) {
  REPRISE_ASSIGN_OR_RETURN(const std::vector<SampledStep> steps,
                           SampleStepsFor(flags.engine, trace.steps, flags.steps));
  Verification verification;
  for (const SampledStep& step : steps) verification.steps += step.count;
  Interrupt interrupt;
  interrupt.Arm();
  const auto run = [&](const BucketSet& set) {
    return RunSampledSteps(steps, set, flags.rounds, flags.engine, console,
                           [&interrupt] { return interrupt.status(); });
  };
  const BucketSet &current = advice.current().set, &advised = advice.advised().set;
  const BucketSet& powers_of_two = advice.powers_of_two().set;
  REPRISE_ASSIGN_OR_RETURN(verification.current, run(current));
  if (powers_of_two != current && powers_of_two != advised) {
    REPRISE_ASSIGN_OR_RETURN(verification.powers_of_two, run(powers_of_two));
  }
  REPRISE_ASSIGN_OR_RETURN(verification.advised, run(advised));
  return verification;
}

struct NewConfig {
  std::string text;
  ServeConfig config;
};

// The configuration file with the advised buckets, or with others, to find out whether a server
// would start with it. Errors: CheckServeConfig's.
absl::StatusOr<NewConfig> ConfigWith(const BucketSet& set, const std::string& path) {
  std::string text;
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    REPRISE_ASSIGN_OR_RETURN(text, models::ReadFile(path, kMaxConfigBytes));
  }
  // What the file says beside its buckets, which change.
  REPRISE_ASSIGN_OR_RETURN(
      const std::string others,
      WithSettings(path, text, {{"decode-buckets", "1"}, {"mixed-buckets", "1"}}));
  REPRISE_ASSIGN_OR_RETURN(const ServeConfig before, CheckServeConfig(path, others));
  std::vector<std::pair<std::string, std::string>> settings;
  if (!set.decode.empty()) settings.emplace_back("decode-buckets", absl::StrJoin(set.decode, ","));
  if (!set.mixed.empty()) settings.emplace_back("mixed-buckets", absl::StrJoin(set.mixed, ","));
  // A file that leaves the rows to serve's default, or to the command line, gets those of its
  // largest bucket where the default is less.
  if (!before.has_max_rows && !set.decode.empty() && set.decode.back() > before.max_rows)
    settings.emplace_back("max-rows", absl::StrCat(set.decode.back()));
  REPRISE_ASSIGN_OR_RETURN(text, WithSettings(path, text, settings));
  REPRISE_ASSIGN_OR_RETURN(const ServeConfig config, CheckServeConfig(path, text));
  return NewConfig{.text = std::move(text), .config = config};
}

// Before anything is computed: with buckets that any settings allow. Where --max-rows does not say
// how many rows the server has, the file does.
absl::Status PrepareConfig(AdviseFlags* flags) {
  const std::string& path = flags->config_file;
  if (path.empty()) return absl::OkStatus();
  if (path == kStdoutFile) return UsageError("--serve-config: got \"-\", allowed: a file");
  REPRISE_ASSIGN_OR_RETURN(const NewConfig config, ConfigWith({.decode = {1}, .mixed = {1}}, path));
  if (!flags->max_rows_given) flags->engine.engine.max_rows = config.config.max_rows;
  return CheckWritable(path, config.text.size());
}

absl::Status WriteConfig(const BucketSet& set, const std::string& path, Console* console) {
  if (path.empty()) return absl::OkStatus();
  REPRISE_ASSIGN_OR_RETURN(const NewConfig config, ConfigWith(set, path));
  REPRISE_RETURN_IF_ERROR(WriteAtomically(path, config.text));
  console->Note(absl::StrCat("reprise advise: ", path,
                             " has the advised buckets; a server that "
                             "is started with it captures them"));
  return absl::OkStatus();
}

absl::Status Run(AdviseFlags flags, const Invocation& invocation) {
  Console* console = invocation.console;
  if (flags.verify) REPRISE_RETURN_IF_ERROR(CheckSource(flags.engine.source));
  REPRISE_RETURN_IF_ERROR(PrepareRecord(flags.json_file, console));
  REPRISE_RETURN_IF_ERROR(PrepareConfig(&flags));
  REPRISE_ASSIGN_OR_RETURN(const BatchTrace trace, ReadBatchTrace(flags.files));
  TellSkipped(trace, "reprise advise", console);
  REPRISE_ASSIGN_OR_RETURN(const std::optional<LiveServer> live, ConnectTo(flags));
  BucketCost cost;
  if (!flags.profile_file.empty()) {
    REPRISE_ASSIGN_OR_RETURN(const nlohmann::json profile, ReadProfile(flags.profile_file));
    REPRISE_ASSIGN_OR_RETURN(cost, BucketCost::OfProfile(flags.profile_file, profile));
  }
  REPRISE_ASSIGN_OR_RETURN(const AdviceOptions options, OptionsOf(flags, trace, cost, live));
  // The largest bucket of either kind is in every set: where these do not fit, none does.
  if (!flags.config_file.empty())
    REPRISE_RETURN_IF_ERROR(ConfigWith(options.current, flags.config_file).status());
  REPRISE_ASSIGN_OR_RETURN(const Advice advice, Advise(trace, cost, options));
  if (trace.num_eager > 0) {
    console->Note(absl::StrCat("reprise advise: ", FormatCount(trace.num_eager),
                               " steps replayed no graph (eager) and are left out"));
  }
  console->Print(AdviceText(advice, cost, console->width()));
  std::optional<Verification> verification;
  if (flags.verify) {
    REPRISE_ASSIGN_OR_RETURN(verification, Verify(flags, trace, advice, console));
    console->Print(VerificationText(*verification, console->width()));
    for (const std::string& warning : VerificationWarnings(*verification))
      console->Note(absl::StrCat("reprise advise: warning: ", warning));
  }
  nlohmann::json applied = nullptr;
  if (flags.apply) {
    REPRISE_ASSIGN_OR_RETURN(applied,
                             Apply(flags.connection.address, advice.advised().set, *live, console));
  }
  REPRISE_RETURN_IF_ERROR(WriteConfig(advice.advised().set, flags.config_file, console));
  nlohmann::json json = RecordOf("advise", invocation);
  json.update(AdviceToJson(flags.files, advice, cost, options, verification));
  json["trace"]["skipped"] = nlohmann::json::array();
  for (const SkippedRecording& skipped : trace.skipped)
    json["trace"]["skipped"].push_back(skipped.file);
  json["applied"] = std::move(applied);
  return WriteRecord(flags.json_file, json, console);
}

void AddAdviceOptions(CLI::App* app, AdviseFlags* flags) {
  app->add_option("FILE", flags->files,
                  "Recordings of `reprise serve --record`, or CSV or lines of JSON with rows, "
                  "tokens, context, steps")
      ->type_name("FILE")
      ->required();
  app->add_option("--profile", flags->profile_file,
                  "What steps cost: a file of `reprise profile --json` (default: count padding)")
      ->type_name("FILE");
  AddOption(
      app, "--max-graphs", &flags->max_graphs,
      [](std::string_view text) { return ParseUnsigned(text, 1, 256); }, "N",
      "as many as there are", "Graphs of both kinds together");
  AddOption(app, "--memory", &flags->memory, ParseBytes, "SIZE", "",
            "The most that all graphs may take of the device, by what the recorded or profiled "
            "ones take");
  AddOption(app, "--graph-bytes", &flags->graph_bytes, ParseBytes, "SIZE", "",
            "What one graph takes, where no file tells");
  AddOption(app, "--kind", &flags->kind, ParseKind, "both|decode|mixed", "both",
            "Which buckets to choose; the others stay as they are");
  AddFileOption(app, "--serve-config", &flags->config_file,
                "Set the advised buckets in this configuration file of `reprise serve --config`; "
                "what else it says stays, and where there is none it is made");
  app->add_option("--json", flags->json_file, "Write all figures to this file too; -: to stdout")
      ->type_name("FILE");
  NameOptionGroup(app, "Advice");
  AddOption(app, "--address", &flags->connection.address, ParseAddress, "ADDRESS", "",
            "A running server, HOST:PORT or unix:PATH: its buckets are those that others are "
            "compared with");
  app->add_flag("--apply", flags->apply,
                "Have that server capture the advised buckets while it serves, and use them from "
                "then on");
  AddProofOptions(app, &flags->connection);
  NameOptionGroup(app, "Server");
  app->add_flag("--verify", flags->verify,
                "Measure steps of the trace's sizes with the current buckets, powers of two, and "
                "the advised ones; needs --model or --preset");
  AddOption(
      app, "--steps", &flags->steps,
      [](std::string_view text) { return ParseUnsigned(text, 1, 1u << 20); }, "N", "200",
      "Steps that stand for the trace");
  AddOption(
      app, "--rounds", &flags->rounds,
      [](std::string_view text) { return ParseUnsigned(text, 1, 1000); }, "N", "3",
      "How often they run");
  NameOptionGroup(app, "Verification");
}

}  // namespace

Command AddAdviseCommand(CLI::App* root) {
  auto flags = std::make_shared<AdviseFlags>();
  CLI::App* app = root->add_subcommand(
      "advise", "Choose decode and mixed buckets by how large a server's steps were");
  app->footer(kAdviseExamples);
  AddAdviceOptions(app, flags.get());
  AddEngineOptions(app, &flags->engine);
  return {app, [flags, app](const Invocation& invocation) -> absl::Status {
            for (const char* option :
                 {"--apply", "--tls-ca", "--tls-certificate", "--tls-key", "--token-file"}) {
              if (app->count(option) == 0 || app->count("--address") > 0) continue;
              return UsageError(absl::StrCat(option, ": got no --address, allowed: beside it"));
            }
            for (const char* option : {"--steps", "--rounds"}) {
              if (app->count(option) == 0 || flags->verify) continue;
              return UsageError(absl::StrCat(option, ": got no --verify, allowed: beside it"));
            }
            flags->max_rows_given = app->count("--max-rows") > 0;
            return Run(*flags, invocation);
          }};
}

}  // namespace reprise::tools
