// SPDX-License-Identifier: Apache-2.0
// `reprise serve`: loads a model, captures its graphs and serves the step service until a signal
// asks it to stop.
#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/resolved_options.h"
#include "kernels/step/step_limits.h"
#include "models/model_source.h"
#include "runtime/status_macros.h"
#include "service/exposure.h"
#include "service/kv/kv_exchange.h"
#include "service/kv/model_fingerprint.h"
#include "service/message_bounds.h"
#include "service/server.h"
#include "service/transport/listen_address.h"
#include "tools/address.h"
#include "tools/cli.h"
#include "tools/config_file.h"
#include "tools/connection_flags.h"
#include "tools/console.h"
#include "tools/engine_flags.h"
#include "tools/serve_config.h"
#include "tools/signals.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

constexpr char kServeExamples[] =
    "Examples:\n"
    "  reprise serve --model examples/byte-llama\n"
    "  reprise serve --model examples/byte-llama --listen unix:/tmp/reprise.sock "
    "--listen 127.0.0.1:50061\n"
    "  reprise serve --preset llama-3.1-8b --device cuda:0 --kv-cache 40GiB "
    "--decode-buckets 1,2,4,8,16,32,64\n"
    "  reprise serve --config serve.toml\n"
    "  reprise serve --model examples/byte-llama --print-config\n"
    "\n"
    "SIGTERM or SIGINT: takes no new work, finishes the steps it accepted, exits. A second one: "
    "exits at once. SIGHUP: reads the files of identities and TLS again where there are some, and "
    "is as SIGTERM where there are none.";

constexpr std::chrono::seconds kHealthInterval(1);

// Some tokens for a round trip, and other sessions wait a few steps longer at most.
constexpr uint32_t kDefaultStepsPerRequest = 8;
constexpr uint32_t kDefaultDraftTokens = 64;

constexpr uint64_t kMinDefaultMessage = uint64_t{4} << 20;
constexpr uint64_t kMaxMessage = uint64_t{1} << 30;

struct ServeFlags {
  EngineFlags engine;
  service::ServerOptions server;
  uint32_t max_message_bytes = 0;  // 0: what the model's largest step needs
  std::string kv_exchange;         // directory; "": none
  bool json_notes = false;
  std::string config_file;
  bool print_config = false;
};

// A step within all limits that the options come to, on whatever device.
absl::StatusOr<uint64_t> LargestStepBytes(const EngineFlags& flags) {
  REPRISE_ASSIGN_OR_RETURN(const models::ModelSpec model, models::ReadModelSpec(flags.source));
  uint64_t step_bytes = 0;
  for (const runtime::DeviceKind kind : {runtime::DeviceKind::kHost, runtime::DeviceKind::kCuda}) {
    runtime::DeviceProperties device;
    device.kind = kind;
    REPRISE_ASSIGN_OR_RETURN(const engine::ResolvedOptions resolved,
                             engine::ResolveOptions(flags.engine, model, device));
    step_bytes = std::max(step_bytes, service::MaxStepBytes(resolved.limits));
  }
  return step_bytes;
}

// A message limit that every step within the engine's limits fits, before there is an engine or a
// device; or the one that was asked for, and a word where steps do not fit it.
absl::StatusOr<uint32_t> MaxMessageBytes(const ServeFlags& flags, Console* console) {
  REPRISE_ASSIGN_OR_RETURN(const uint64_t step_bytes, LargestStepBytes(flags.engine));
  const uint64_t asked = flags.max_message_bytes;
  const uint64_t bytes =
      asked != 0 ? asked : std::clamp<uint64_t>(step_bytes, kMinDefaultMessage, kMaxMessage);
  if (bytes < step_bytes) {
    console->Note(absl::StrCat("reprise serve: messages of up to ", FormatBytes(bytes),
                               " are accepted, steps within all other limits take up to ",
                               FormatBytes(step_bytes), " (--max-message)"));
  }
  return static_cast<uint32_t>(bytes);
}

// What the main thread is told by the signal thread and the server's.
class ServeState {
 public:
  // `reloads`: SIGHUP is for reading files again.
  ServeState(bool json_notes, bool reloads) : json_notes_(json_notes), reloads_(reloads) {}

  // The signal thread. The first signal that asks a serving server to stop asks for a drain; any
  // other ends the process here and now.
  void OnSignal(int signal) {
    std::unique_lock lock(mutex_);
    if (reloads_ && signal == SIGHUP) {
      reload_ = true;
      changed_.notify_all();
      return;
    }
    if (serving_ && signal_.empty()) {
      signal_ = NameOfSignal(signal);
      changed_.notify_all();
      return;
    }
    for (const service::SocketFile& file : sockets_) service::RemoveSocketFile(file);
    const std::string note =
        absl::StrCat("reprise serve: ", std::string(NameOfSignal(signal)), ": exits at once");
    const std::string text = json_notes_ ? JsonNote(note) : absl::StrCat("\n", note, "\n");
    std::fputs(text.c_str(), stderr);
    std::_Exit(ExitCodeOfSignal(signal));
  }

  void OwnSockets(const std::vector<std::string>& addresses) {
    std::lock_guard lock(mutex_);
    for (const std::string& address : addresses) {
      if (!address.starts_with("unix:")) continue;
      auto file = service::StatSocketFile(address.substr(5));
      if (file.ok()) sockets_.push_back(*std::move(file));
    }
  }

  // Of connections; those that come faster than they are taken are dropped.
  void AddReport(const std::string& text) {
    std::lock_guard lock(mutex_);
    if (reports_.size() < kMaxReports) reports_.push_back(text);
  }
  std::vector<std::string> TakeReports() {
    std::lock_guard lock(mutex_);
    return std::exchange(reports_, {});
  }

  void SetServing() {
    std::lock_guard lock(mutex_);
    serving_ = true;
  }

  // What signals have asked for, or nothing when none came in time.
  struct Asked {
    std::string stop;     // by which signal; "": not to stop
    bool reload = false;  // is told once
  };
  Asked AwaitSignal(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, time, [this] { return reload_ || !signal_.empty(); });
    return {.stop = signal_, .reload = std::exchange(reload_, false)};
  }

 private:
  static constexpr size_t kMaxReports = 16;
  const bool json_notes_;
  const bool reloads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool serving_ = false;
  bool reload_ = false;
  std::string signal_;
  std::vector<service::SocketFile> sockets_;
  std::vector<std::string> reports_;
};

// A fault is said once; health and every refused step go on saying it.
std::string AwaitStop(const engine::DecodeEngine& engine, service::Server* server,
                      ServeState* state, Console* console) {
  bool fault_told = false;
  while (true) {
    const ServeState::Asked asked = state->AwaitSignal(kHealthInterval);
    // What became of it is among the reports.
    if (asked.reload) server->Reload().IgnoreError();
    for (const std::string& report : state->TakeReports()) {
      console->Note(absl::StrCat("reprise serve: ", report));
    }
    if (!asked.stop.empty()) return asked.stop;
    const absl::Status health = engine.health();
    if (!health.ok() && !fault_told) {
      fault_told = true;
      console->Note(absl::StrCat("reprise serve: the device failed, all steps are refused: ",
                                 health.message()));
    }
  }
}

// A summary for people on stdout; where notes are JSON, a note alone.
void TellServing(const LoadedEngine& loaded, const service::Server& server, Console* console) {
  const std::string metrics = server.metrics_address();
  const std::string serving = absl::StrCat("serving on ", absl::StrJoin(server.addresses(), ", "));
  if (console->writes_json()) {
    console->Note(absl::StrCat("reprise serve: ", serving,
                               metrics.empty() ? "" : absl::StrCat("; metrics on ", metrics)));
    return;
  }
  console->Print(absl::StrCat(EngineSummary(loaded, console->width()), "\n", serving, "\n",
                              metrics.empty() ? "" : absl::StrCat("metrics on ", metrics, "\n")));
}

// Options that are wrong together, before a file, a device or a socket is asked for.
absl::Status CheckTogether(const ServeFlags& flags) {
  REPRISE_RETURN_IF_ERROR(CheckDeviceFlags(flags.engine.device));
  const absl::Status tls = service::CheckTlsFiles(flags.server.tls);
  if (!tls.ok()) return UsageError(std::string(tls.message()));
  if (flags.kv_exchange.empty() && flags.engine.engine.export_bytes != 0)
    return UsageError("export-space: got some without --kv-exchange, allowed: with a directory");
  return absl::OkStatus();
}

// The options with these buckets alone, so that what is wrong is theirs.
absl::Status CheckBuckets(const std::string& path, const engine::DecodeEngineOptions& options,
                          bool has_max_rows) {
  engine::DecodeEngineOptions decode, mixed;
  decode.max_rows = mixed.max_rows = options.max_rows;
  decode.decode_buckets = options.decode_buckets;
  mixed.mixed_buckets = options.mixed_buckets;
  const absl::Status decode_status = engine::CheckOptions(decode);
  if (!decode_status.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": decode-buckets: ", decode_status.message(),
        has_max_rows ? ", which is its max-rows" : ", as long as it sets no max-rows"));
  }
  const absl::Status mixed_status = engine::CheckOptions(mixed);
  if (mixed_status.ok()) return mixed_status;
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": mixed-buckets: ", mixed_status.message()));
}

absl::Status Serve(const ServeFlags& flags, const std::string& commit, Console& console) {
  if (flags.json_notes) console.WriteNotesAsJson();
  const bool has_files = !flags.server.identities_file.empty() || !flags.server.tls.empty();
  ServeState state(flags.json_notes, has_files);
  SignalWatcher watcher([&state](int signal, int /*count*/) { state.OnSignal(signal); });
  // The sockets come before the model: whether they are free shows in milliseconds, not after a
  // minute of loading.
  REPRISE_RETURN_IF_ERROR(CheckSource(flags.engine.source));
  REPRISE_RETURN_IF_ERROR(CheckTogether(flags));
  service::ServerOptions options = flags.server;
  options.commit = commit;
  options.record.source = flags.engine.source;
  // A simulated device has no KV contents, and its model no weights.
  if (!flags.engine.device.choice.simulated) {
    REPRISE_ASSIGN_OR_RETURN(
        options.model,
        service::ModelFingerprint(flags.engine.source, flags.engine.engine.max_context_length));
  }
  REPRISE_ASSIGN_OR_RETURN(options.max_message_bytes, MaxMessageBytes(flags, &console));
  options.report = [&state](const std::string& what) { state.AddReport(what); };
  // The engine outlives the server that uses it, and the exchange as well.
  LoadedEngine loaded;
  std::unique_ptr<service::KvExchange> exchange;
  REPRISE_ASSIGN_OR_RETURN(const std::unique_ptr<service::Server> server,
                           service::Server::Start(options));
  state.OwnSockets(server->addresses());
  state.OwnSockets({server->metrics_address()});
  REPRISE_ASSIGN_OR_RETURN(loaded, LoadEngine(flags.engine, &console));
  if (!flags.kv_exchange.empty()) {
    REPRISE_ASSIGN_OR_RETURN(
        exchange, service::KvExchange::Create(*loaded.engine, flags.kv_exchange, options.model));
  }
  // Before health says so: a signal from here on ends accepted steps first.
  state.SetServing();
  server->AttachEngine(*loaded.engine, exchange.get());
  TellServing(loaded, *server, &console);

  const std::string signal = AwaitStop(*loaded.engine, server.get(), &state, &console);
  console.Note(absl::StrCat("reprise serve: ", signal,
                            ": finishing accepted steps; a second signal exits at once"));
  if (!server->Drain()) {
    return absl::DeadlineExceededError(
        absl::StrCat("stopped, but steps were cut off after the drain timeout of ",
                     FormatDuration(flags.server.drain_timeout_ms * 1e6)));
  }
  console.Note("reprise serve: stopped");
  return absl::OkStatus();
}

void AddListenOption(CLI::App* app, ServeFlags* flags) {
  service::ServerOptions* options = &flags->server;
  app->add_option_function<std::vector<std::string>>(
         "--listen",
         [options](const std::vector<std::string>& addresses) {
           for (const std::string& address : addresses) {
             const auto parsed = service::ParseListenAddress(address);
             if (!parsed.ok()) throw OptionError("--listen", parsed.status());
           }
           options->listen = addresses;
         },
         "Address to serve on, HOST:PORT (port 0: any) or unix:PATH; may be given several times")
      ->type_name("ADDRESS")
      ->allow_extra_args(false)
      ->default_str(std::string(kDefaultAddress));
}

// Options from a file, and what comes of them.
void AddConfigOptions(CLI::App* app, ServeFlags* flags) {
  AddFileOption(app, "--config", &flags->config_file,
                "Take options from a file, lines such as max-rows = 64; those of the command line "
                "go first")
      ->configurable(false);
  app->add_flag("--print-config", flags->print_config, "Print all options as such a file, and end")
      ->configurable(false);
}

// Seeing what it does.
void AddTelemetryOptions(CLI::App* app, ServeFlags* flags) {
  AddOption(
      app, "--metrics", &flags->server.metrics_listen,
      [](std::string_view text) -> absl::StatusOr<std::string> {
        REPRISE_ASSIGN_OR_RETURN(const service::ListenAddress address,
                                 service::ParseListenAddress(text));
        return address.text;
      },
      "ADDRESS", "",
      "Answer GET /metrics for Prometheus there, HOST:PORT or unix:PATH, over plain HTTP and to "
      "whoever can connect; an address that other hosts reach needs --allow-anyone");
  app->add_option("--access-log", flags->server.access_log,
                  "Append a line of JSON for each step request and session; -: to stderr")
      ->type_name("FILE");
  AddFileOption(app, "--record", &flags->server.record.directory,
                "Record every session to a file in this directory, for `reprise replay`: prompts "
                "and answers, readable by this user alone")
      ->type_name("DIR");
  AddOption(
      app, "--record-limit", &flags->server.record.limit_bytes,
      [](std::string_view text) { return ParseBytes(text); }, "SIZE", "1GiB",
      "Of all recordings in that directory, earlier ones included; recording stops there and "
      "serving goes on");
  AddOption(
      app, "--log-format", &flags->json_notes,
      [](std::string_view text) -> absl::StatusOr<bool> {
        if (text == "text" || text == "json") return text == "json";
        return absl::InvalidArgumentError(
            absl::StrCat("format: got \"", std::string(text), "\", allowed: text, json"));
      },
      "text|json", "text", "Of what the server notes on stderr; json: a line each");
}

// Who may connect, and how they prove it.
void AddIdentityOptions(CLI::App* app, ServeFlags* flags) {
  service::ServerOptions* options = &flags->server;
  AddFileOption(app, "--identities", &options->identities_file,
                "A file of who may use the server, how they prove it, and what they get (default: "
                "everyone who reaches it may do everything)");
  AddFileOption(app, "--tls-certificate", &options->tls.certificate,
                "TLS on every TCP address, with this certificate");
  AddFileOption(app, "--tls-key", &options->tls.key, "Its key");
  AddFileOption(app, "--tls-client-ca", &options->tls.client_ca,
                "The certificates that vouch for those of clients");
  AddFileOption(app, "--tls-client-crl", &options->tls.client_crl,
                "Which certificates of clients they have revoked: a list of each of them");
  app->add_flag(
      "--allow-anyone", options->allow_anyone,
      "Serve on addresses that other hosts reach without both TLS and identities, and answer "
      "metrics there");
}

// What clients may take of the server.
void AddLimitOptions(CLI::App* app, ServeFlags* flags) {
  service::ServerOptions* options = &flags->server;
  AddOption(
      app, "--max-message", &flags->max_message_bytes,
      [](std::string_view text) -> absl::StatusOr<uint64_t> {
        REPRISE_ASSIGN_OR_RETURN(const uint64_t bytes, ParseBytes(text));
        if (bytes >= 1024 && bytes <= kMaxMessage) return bytes;
        return absl::InvalidArgumentError(
            absl::StrCat("size: got \"", std::string(text), "\", allowed: 1KiB to 1GiB"));
      },
      "SIZE", "",
      "Largest message that is accepted (default: what the model's largest step needs, at least "
      "4MiB)");
  AddOption(
      app, "--max-waiting", &options->max_waiting_bytes,
      [](std::string_view text) { return ParseBytes(text); }, "SIZE", "256MiB",
      "Memory for messages that wait, all clients together");
  const auto connections = [](std::string_view text) { return ParseUnsigned(text, 0, 1u << 20); };
  AddOption(app, "--max-connections", &options->connections.max_connections, connections, "N", "0",
            "Connections open at a time; 0: what `ulimit -n` leaves, up to 1,024");
  AddOption(app, "--max-peer-connections", &options->connections.max_connections_per_peer,
            connections, "N", "0",
            "Of them, those of one host, or process on a unix socket; 0: half");
  AddOption(
      app, "--max-steps-per-request", &flags->engine.engine.max_steps_per_request,
      [](std::string_view text) { return ParseUnsigned(text, 1, kernels::kMaxStepsPerRequest); },
      "K", absl::StrCat(kDefaultStepsPerRequest),
      "Steps that one request may run on the device, between which nobody else's do");
  AddOption(
      app, "--max-joint-requests", &options->joint.max_requests,
      [](std::string_view text) {
        return ParseUnsigned(text, 1, service::JointLimits::kMaxRequests);
      },
      "N", "64", "Step requests of different sessions that may run in one replay; 1: each alone");
  AddOption(
      app, "--max-joint-tokens", &options->joint.max_given_tokens,
      [](std::string_view text) { return ParseUnsigned(text, 0, ~uint32_t{0}); }, "N", "64",
      "Prompt tokens that these may bring together; a request with more runs alone");
  AddOption(
      app, "--max-sessions", &options->max_sessions,
      [](std::string_view text) { return ParseUnsigned(text, 1, 1u << 16); }, "N", "64",
      "Sessions open at a time");
  app->add_flag(
      "--allow-attention-trees", options->allow_attention_trees,
      "Let clients replace the tree by which attention's plan decides (SetAttentionTree); with "
      "--identities their role says so");
  app->add_flag(
      "--allow-administration", options->allow_administration,
      "Let whoever reaches the server list and evict sessions, set buckets, reload files, "
      "and profile steps, which makes others wait; with --identities their role says so");
  const auto limit = [](std::string_view text) { return ParseUnsigned(text, 0, ~uint32_t{0}); };
  AddOption(app, "--max-session-rows", &options->session_limits.max_rows, limit, "N", "0",
            "Rows that one session may have resident; 0: all there are");
  AddOption(app, "--max-session-blocks", &options->session_limits.max_blocks, limit, "N", "0",
            "KV blocks that one session may hold; 0: all there are");
  AddOption(
      app, "--max-session-swap", &options->session_limits.max_swapped, limit, "N", "0",
      "KV blocks, and states of rows, that one session may have in swap space; 0: all that it "
      "has room for");
  AddOption(app, "--max-session-exports", &options->session_limits.max_exported, limit, "N", "0",
            "KV blocks that one session may have in export space; 0: all that it has room for");
  AddOption(
      app, "--swap-space", &flags->engine.engine.swap_bytes,
      [](std::string_view text) { return ParseBytes(text); }, "SIZE", "0",
      "Pinned memory of the host for KV blocks that clients swap out; half of it for states of "
      "rows where rows of the model carry some; 0: none");
  AddOption(
      app, "--export-space", &flags->engine.engine.export_bytes,
      [](std::string_view text) { return ParseBytes(text); }, "SIZE", "0",
      "Memory of the device for copies of KV blocks that other servers of this machine take; 0: "
      "none");
  app->add_option("--kv-exchange", flags->kv_exchange,
                  "Hand KV blocks to servers of this machine that were given the same directory, "
                  "and take theirs; it must be this user's alone")
      ->type_name("DIRECTORY");
}

void AddTimeOptions(CLI::App* app, ServeFlags* flags) {
  service::ServerOptions* options = &flags->server;
  const auto milliseconds = [](std::string_view text) -> absl::StatusOr<uint64_t> {
    REPRISE_ASSIGN_OR_RETURN(const std::chrono::nanoseconds time, ParseDuration(text));
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
  };
  AddOption(app, "--idle-timeout", &options->idle_timeout_ms, milliseconds, "TIME", "0s",
            "End sessions of which nothing was asked for so long; 0: never");
  AddOption(app, "--resume-grace", &options->max_resume_grace_ms, milliseconds, "TIME", "30s",
            "Longest that a session outlives a lost connection, where its client asks for it; 0: "
            "not at all");
  AddOption(
      app, "--gather-time", &options->joint.max_wait_us,
      [](std::string_view text) -> absl::StatusOr<uint64_t> {
        REPRISE_ASSIGN_OR_RETURN(const std::chrono::nanoseconds time, ParseDuration(text));
        return static_cast<uint64_t>(
            std::chrono::duration_cast<std::chrono::microseconds>(time).count());
      },
      "TIME", "2ms",
      "Longest that a step waits for those of other sessions that are about to come, to run in one "
      "replay with them, and at most a quarter of a step; 0: never");
  AddOption(app, "--drain-timeout", &options->drain_timeout_ms, milliseconds, "TIME", "10s",
            "How long a stop waits for accepted steps");
}

// The subcommand; `flags` must outlive it.
CLI::App* AddServeApp(CLI::App* root, ServeFlags* flags) {
  flags->engine.engine.max_steps_per_request = kDefaultStepsPerRequest;
  flags->engine.engine.max_draft_tokens = kDefaultDraftTokens;
  flags->server.listen = {std::string(kDefaultAddress)};
  CLI::App* app = root->add_subcommand("serve", "Serve a model to external schedulers over gRPC");
  app->footer(kServeExamples);
  AddConfigOptions(app, flags);
  AddListenOption(app, flags);
  AddTelemetryOptions(app, flags);
  AddLimitOptions(app, flags);
  AddTimeOptions(app, flags);
  NameOptionGroup(app, "Server");
  AddIdentityOptions(app, flags);
  NameOptionGroup(app, "Identity");
  AddEngineOptions(app, &flags->engine, /*offers_simulation=*/true);
  return app;
}

}  // namespace

absl::StatusOr<ServeConfig> CheckServeConfig(const std::string& path, std::string_view text) {
  ServeFlags flags;
  CLI::App root;
  CLI::App* const app = AddServeApp(&root, &flags);
  REPRISE_RETURN_IF_ERROR(ApplyConfigText(path, text, app));
  const ServeConfig config = {.max_rows = flags.engine.engine.max_rows,
                              .has_max_rows = app->count("--max-rows") > 0};
  REPRISE_RETURN_IF_ERROR(CheckBuckets(path, flags.engine.engine, config.has_max_rows));
  const models::ModelSource& source = flags.engine.source;
  const bool has_model = !source.directory.empty() || !source.preset.empty();
  absl::Status status = has_model ? CheckSource(source) : absl::OkStatus();
  status.Update(engine::CheckOptions(flags.engine.engine));
  if (status.ok() && has_model) status = LargestStepBytes(flags.engine).status();
  // The model may be where the server is, and not here.
  if (status.ok() || absl::IsNotFound(status) || absl::IsPermissionDenied(status)) return config;
  return UsageError(absl::StrCat(path, ": ", status.message()));
}

Command AddServeCommand(CLI::App* root) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* app = AddServeApp(root, flags.get());
  return {app, [app, flags](const Invocation& invocation) -> absl::Status {
            if (!flags->config_file.empty())
              REPRISE_RETURN_IF_ERROR(ApplyConfigFile(flags->config_file, app));
            if (flags->print_config) {
              invocation.console->Print(ConfigText(*app));
              return absl::OkStatus();
            }
            return Serve(*flags, invocation.commit, *invocation.console);
          }};
}

}  // namespace reprise::tools
