// SPDX-License-Identifier: Apache-2.0
#include "service/server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "grpc/compression.h"
#include "grpc/grpc.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "runtime/status_macros.h"
#include "service/acceptors.h"
#include "service/access_log/access_log.h"
#include "service/clock.h"
#include "service/exposure.h"
#include "service/health_service.h"
#include "service/identity/callers.h"
#include "service/identity/identity_file.h"
#include "service/metrics/metrics_endpoint.h"
#include "service/metrics/render_metrics.h"
#include "service/out_of_memory.h"
#include "service/record/recorder.h"
#include "service/reflection_service.h"
#include "service/step_service.h"
#include "service/transport/connection_counters.h"
#include "service/transport/listen_address.h"
#include "service/transport/listener.h"
#include "service/transport/listening_socket.h"
#include "service/transport/tls_files.h"
#include "service/transport/tls_handshake.h"

namespace reprise::service {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

absl::StatusOr<std::vector<ListeningSocket>> ListenOnAll(const std::vector<std::string>& texts) {
  if (texts.empty()) {
    return absl::InvalidArgumentError("listen addresses: got none, allowed one or more");
  }
  std::vector<ListeningSocket> sockets;
  for (const std::string& text : texts) {
    REPRISE_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(text));
    const bool fixed = address.is_unix() || address.port != 0;
    if (fixed && std::count(texts.begin(), texts.end(), text) > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("listen addresses: got ", text, " twice, allowed once"));
    }
    REPRISE_ASSIGN_OR_RETURN(std::vector<ListeningSocket> more, Listen(address));
    std::move(more.begin(), more.end(), std::back_inserter(sockets));
  }
  return sockets;
}

// A client may ping as often as this, with calls or without, which is what clients call keepalive;
// one that goes on faster is disconnected.
constexpr int kMinClientPingIntervalMs = 1000;
// For a connection to become one of HTTP/2, with TLS's handshake before that.
constexpr int kHandshakeTimeoutMs = 10000;
// What is left to stop once all steps are answered: connections that idle, short calls.
constexpr milliseconds kStopTimeout(250);

void SetChannelArguments(const ServerOptions& options, grpc::ServerBuilder* builder) {
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              kMinClientPingIntervalMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  // A compressed message is as large as its sender likes once it is unpacked, before any limit of
  // ours sees it.
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                              static_cast<int>(options.max_calls_per_connection));
  builder->SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  if (options.keepalive_ms > 0) {
    const int keepalive_ms = static_cast<int>(options.keepalive_ms);
    builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, keepalive_ms);
    builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, keepalive_ms);
    // Pings go on however long a client is silent.
    builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  }
}

absl::Status CheckOptions(const ServerOptions& options) {
  constexpr uint32_t kMax = std::numeric_limits<int>::max();
  if (options.max_message_bytes < 1 || options.max_message_bytes > kMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_message_bytes: got ", options.max_message_bytes, ", allowed 1 to ", kMax));
  }
  if (options.max_calls_per_connection < 1 || options.max_calls_per_connection > kMax) {
    return absl::InvalidArgumentError(absl::StrCat("max_calls_per_connection: got ",
                                                   options.max_calls_per_connection,
                                                   ", allowed 1 to ", kMax));
  }
  if (options.joint.max_requests < 1 || options.joint.max_requests > JointLimits::kMaxRequests) {
    return absl::InvalidArgumentError(absl::StrCat("joint.max_requests: got ",
                                                   options.joint.max_requests, ", allowed 1 to ",
                                                   JointLimits::kMaxRequests));
  }
  if (options.max_sessions < 1) {
    return absl::InvalidArgumentError("max_sessions: got 0, allowed 1 or more");
  }
  constexpr uint64_t kMaxIdleTimeoutMs = uint64_t{365} * 24 * 3600 * 1000;
  if (options.max_resume_grace_ms > kMaxIdleTimeoutMs) {
    return absl::InvalidArgumentError(absl::StrCat("max_resume_grace_ms: got ",
                                                   options.max_resume_grace_ms, ", allowed 0 to ",
                                                   kMaxIdleTimeoutMs));
  }
  const uint64_t idle_ms = options.idle_timeout_ms;
  if (idle_ms != 0 && (idle_ms < 4 || idle_ms > kMaxIdleTimeoutMs)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "idle_timeout_ms: got ", idle_ms, ", allowed 0 (none), or 4 to ", kMaxIdleTimeoutMs));
  }
  if (options.keepalive_ms > kMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("keepalive_ms: got ", options.keepalive_ms, ", allowed 0 to ", kMax));
  }
  REPRISE_RETURN_IF_ERROR(CheckIdentities(options.identities));
  return CheckTlsOptions(options.tls, options.identities);
}

// `options` with the identities of its file, if it has one.
absl::StatusOr<ServerOptions> WithIdentities(const ServerOptions& options) {
  if (options.identities_file.empty()) return options;
  if (!options.identities.empty()) {
    return absl::InvalidArgumentError("identities: got some and a file of them, allowed: one");
  }
  ServerOptions complete = options;
  REPRISE_ASSIGN_OR_RETURN(complete.identities, ReadIdentities(options.identities_file));
  return complete;
}

// Where a certificate is the only proof that there is over TCP, nobody gets further without one.
absl::StatusOr<std::shared_ptr<const TlsHandshake>> HandshakeOf(
    const TlsTexts& texts, const std::vector<Identity>& identities) {
  const bool has_tokens = std::ranges::any_of(
      identities, [](const Identity& identity) { return !identity.tokens.empty(); });
  return TlsHandshake::Create(texts, /*needs_client=*/!has_tokens);
}

std::string Count(uint32_t count, std::string_view one, std::string_view several) {
  return absl::StrCat(count, " ", std::string(count == 1 ? one : several));
}

std::string TextOf(const FilesChange& change, bool has_identities) {
  std::string text = "files read again:";
  if (has_identities) {
    absl::StrAppend(&text, " ", Count(change.identities_added, "identity", "identities"),
                    " added, ", change.identities_changed, " changed, ", change.identities_removed,
                    " removed, ", Count(change.sessions_ended, "session", "sessions"), " ended");
  }
  if (!change.tls) return text;
  return absl::StrCat(text, has_identities ? ";" : "", " TLS for new connections");
}

}  // namespace

class Server::Impl {
 public:
  explicit Impl(const ServerOptions& options)
      : drain_timeout_(options.drain_timeout_ms),
        identities_file_(options.identities_file),
        identities_(options.identities),
        tls_files_(options.tls),
        report_(options.report),
        callers_(options.identities),
        steps_({.max_message_bytes = options.max_message_bytes,
                .max_waiting_bytes = options.max_waiting_bytes,
                .max_sessions = options.max_sessions,
                .session = options.session_limits,
                .idle_timeout_ms = options.idle_timeout_ms,
                .max_resume_grace_ms = options.max_resume_grace_ms,
                .allow_attention_trees = options.allow_attention_trees,
                .allow_administration = options.allow_administration,
                .joint = options.joint,
                .model = options.model},
               callers_, options.report),
        health_([this] { return steps_.IsServing(); }),
        reflection_([this](const grpc::CallbackServerContext& context) {
          const absl::Status status =
              callers_.Authorize(context, Role::kObserve, "ServerReflectionInfo").status();
          steps_.telemetry().NoteDenied(status);
          return status;
        }),
        old_reflection_(reflection_) {
    steps_.SetReload([this] { return Reload(); });
  }
  ~Impl() { Drain(milliseconds(0)); }

  absl::Status Listen(const ServerOptions& options) {
    // What may be refused comes first, and what would stay behind on disk last.
    TlsTexts tls;
    if (!options.tls.certificate.empty()) {
      REPRISE_ASSIGN_OR_RETURN(tls, ReadTlsFiles(options.tls));
      REPRISE_ASSIGN_OR_RETURN(handshake_, HandshakeOf(tls, options.identities));
    }
    REPRISE_ASSIGN_OR_RETURN(std::vector<ListeningSocket> sockets, ListenOnAll(options.listen));
    REPRISE_RETURN_IF_ERROR(CheckExposure(options, sockets));
    std::vector<ListeningSocket> metrics_sockets;
    if (!options.metrics_listen.empty()) {
      REPRISE_ASSIGN_OR_RETURN(metrics_sockets, ListenOnAll({options.metrics_listen}));
      REPRISE_RETURN_IF_ERROR(CheckMetricsExposure(options, metrics_sockets));
    }
    if (!options.access_log.empty()) {
      REPRISE_ASSIGN_OR_RETURN(access_log_, AccessLog::Open({.path = options.access_log}));
      steps_.telemetry().SetAccessLog(access_log_.get());
    }
    if (!options.record.directory.empty()) {
      REPRISE_ASSIGN_OR_RETURN(recorder_, Recorder::Open(options.record, options.report));
      steps_.SetRecorder(recorder_.get());
    }
    for (ListeningSocket& socket : sockets) {
      socket.is_encrypted = !socket.is_unix && !options.tls.certificate.empty();
      if (addresses_.empty() || addresses_.back() != socket.address) {
        addresses_.push_back(socket.address);
      }
    }
    const bool has_unix_sockets = std::ranges::any_of(sockets, &ListeningSocket::is_unix);
    REPRISE_RETURN_IF_ERROR(StartGrpc(options, has_unix_sockets, tls));
    ConnectionLimits limits = options.connections;
    limits.frames.max_unfinished_bytes = std::max<uint64_t>(
        limits.frames.max_unfinished_bytes, uint64_t{4} * options.max_message_bytes);
    limits.frames.max_calls_before_settings =
        std::max(limits.frames.max_calls_before_settings, options.max_calls_per_connection);
    const auto accept = [this, keepalive_ms = options.keepalive_ms](
                            FileDescriptor fd, const ListeningSocket& listening) {
      HandOver(std::move(fd), listening, keepalive_ms);
    };
    // A recorded session has a file.
    const uint32_t record_files = recorder_ == nullptr ? 0 : options.max_sessions;
    REPRISE_ASSIGN_OR_RETURN(
        listener_, Listener::Start(std::move(sockets), {.limits = limits,
                                                        .kept_descriptors = record_files,
                                                        .accept = accept,
                                                        .report = options.report,
                                                        .counters = connection_counters_}));
    return ServeMetrics(options, std::move(metrics_sockets));
  }

  void AttachEngine(engine::DecodeEngine& engine, KvExchange* exchange) {
    steps_.Attach(engine, exchange, [this] { health_.Refresh(); });
    health_.Refresh();
  }

  absl::StatusOr<FilesChange> Reload() {
    const std::lock_guard lock(reload_mutex_);
    absl::StatusOr<FilesChange> change;
    const absl::Status status = CatchOutOfMemory([&]() -> absl::Status {
      change = ReloadFiles();
      return change.status();
    });
    steps_.telemetry().NoteReload(status.ok());
    if (!status.ok()) {
      change = absl::FailedPreconditionError(absl::StrCat(
          "files read again and refused, what was in force stays: ", status.message()));
    }
    if (report_) {
      report_(status.ok() ? TextOf(*change, !identities_file_.empty())
                          : std::string(change.status().message()));
    }
    return change;
  }

  const std::vector<std::string>& addresses() const { return addresses_; }
  std::string metrics_address() const { return metrics_ == nullptr ? "" : metrics_->address(); }
  bool Drain() { return Drain(drain_timeout_); }

 private:
  absl::Status ServeMetrics(const ServerOptions& options, std::vector<ListeningSocket> sockets) {
    if (sockets.empty()) return absl::OkStatus();
    const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
    const MetricsSources sources = {
        .telemetry = steps_.telemetry(),
        .connections = *connection_counters_,
        .recordings = recorder_ == nullptr ? nullptr : &recorder_->counters(),
        .start_time_ns = static_cast<uint64_t>(std::chrono::nanoseconds(since_1970).count()),
        .version = REPRISE_VERSION,
        .commit = options.commit};
    const auto render = [this, sources, started_ns = NowNs()] {
      MetricsSources now = sources;
      now.host = steps_.host();
      now.serving = steps_.IsServing();
      now.uptime_ns = NowNs() - started_ns;
      return RenderMetrics(now);
    };
    REPRISE_ASSIGN_OR_RETURN(
        metrics_, MetricsEndpoint::Start({.listen = {}, .render = render}, std::move(sockets)));
    return absl::OkStatus();
  }

  // The listener is ours; gRPC is handed connections.
  absl::Status StartGrpc(const ServerOptions& options, bool has_unix_sockets, const TlsTexts& tls) {
    grpc::ServerBuilder builder;
    acceptors_.AddTo(&builder, has_unix_sockets, tls);
    SetChannelArguments(options, &builder);
    builder.RegisterService(&steps_);
    builder.RegisterService(&health_);
    builder.RegisterService(&reflection_);
    builder.RegisterService(&old_reflection_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::UnavailableError("cannot serve: gRPC did not start");
    return absl::OkStatus();
  }

  // A connection that was accepted, to gRPC.
  void HandOver(FileDescriptor fd, const ListeningSocket& listening, uint32_t keepalive_ms) {
    // Bytes that nobody acknowledges for as long end a connection of TCP, as pings without an
    // answer do; fails on a unix socket, which needs none of it.
    if (keepalive_ms > 0) {
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &keepalive_ms, sizeof(keepalive_ms));
    }
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    auto& acceptor = acceptors_.Of(fd, listening);
    connection.listener_fd = listening.fd.get();
    connection.fd = fd.Release();
    if (!listening.is_encrypted) {
      acceptor.HandleNewConnection(&connection);
      return;
    }
    const std::shared_ptr<const TlsHandshake> handshake = this->handshake();
    const TlsOffer offer(*handshake);
    acceptor.HandleNewConnection(&connection);
  }

  std::shared_ptr<const TlsHandshake> handshake() {
    const std::lock_guard lock(handshake_mutex_);
    return handshake_;
  }

  absl::StatusOr<FilesChange> ReloadFiles() {
    const bool has_tls = !tls_files_.certificate.empty();
    if (identities_file_.empty() && !has_tls) {
      return absl::FailedPreconditionError(
          "got a server that was started without files of identities or TLS, allowed: with some");
    }
    std::vector<Identity> identities = identities_;
    if (!identities_file_.empty()) {
      REPRISE_ASSIGN_OR_RETURN(identities, ReadIdentities(identities_file_));
    }
    REPRISE_RETURN_IF_ERROR(CheckTlsOptions(tls_files_, identities));
    std::shared_ptr<const TlsHandshake> handshake;
    if (has_tls) {
      REPRISE_ASSIGN_OR_RETURN(const TlsTexts texts, ReadTlsFiles(tls_files_));
      REPRISE_ASSIGN_OR_RETURN(handshake, HandshakeOf(texts, identities));
    }
    FilesChange change;
    if (!identities_file_.empty()) {
      REPRISE_ASSIGN_OR_RETURN(change, steps_.ReplaceIdentities(identities));
    }
    change.tls = has_tls;
    identities_.swap(identities);
    const std::lock_guard lock(handshake_mutex_);
    handshake_.swap(handshake);
    return change;
  }

  bool Drain(milliseconds timeout) {
    std::lock_guard lock(mutex_);
    if (server_ == nullptr) return true;
    const steady_clock::time_point deadline = steady_clock::now() + timeout;
    steps_.Drain();
    health_.Refresh();
    const bool complete = steps_.WaitIdle(deadline);
    health_.Stop();
    if (listener_ != nullptr) listener_->Stop();
    // gRPC wants the system clock. What is still there then is cancelled, and waited for: a
    // connection that does not close by itself among it, however idle.
    const steady_clock::duration rest = deadline - steady_clock::now();
    const auto left = complete ? std::min<steady_clock::duration>(kStopTimeout, rest) : rest;
    server_->Shutdown(std::chrono::system_clock::now() + left);
    server_->Wait();
    server_.reset();
    return complete;
  }

  const milliseconds drain_timeout_;
  const std::string identities_file_;
  std::mutex reload_mutex_;
  std::vector<Identity> identities_ ABSL_GUARDED_BY(reload_mutex_);
  const TlsFiles tls_files_;
  const std::function<void(const std::string&)> report_;
  std::mutex handshake_mutex_;
  // Of the next connection of TLS.
  std::shared_ptr<const TlsHandshake> handshake_ ABSL_GUARDED_BY(handshake_mutex_);
  std::unique_ptr<AccessLog> access_log_;
  std::unique_ptr<Recorder> recorder_;
  Callers callers_;
  StepService steps_;
  HealthService health_;
  ReflectionService reflection_;
  OldReflectionService old_reflection_;
  std::vector<std::string> addresses_;
  Acceptors acceptors_{callers_};
  std::mutex mutex_;
  std::unique_ptr<grpc::Server> server_ ABSL_GUARDED_BY(mutex_);  // reset when stopped
  std::unique_ptr<Listener> listener_;
  const std::shared_ptr<ConnectionCounters> connection_counters_ =
      std::make_shared<ConnectionCounters>();
  std::unique_ptr<MetricsEndpoint> metrics_;  // goes first: it reads the others
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() = default;

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options) {
  REPRISE_ASSIGN_OR_RETURN(const ServerOptions complete, WithIdentities(options));
  REPRISE_RETURN_IF_ERROR(CheckOptions(complete));
  auto impl = std::make_unique<Impl>(complete);
  REPRISE_RETURN_IF_ERROR(impl->Listen(complete));
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

void Server::AttachEngine(engine::DecodeEngine& engine, KvExchange* exchange) {
  impl_->AttachEngine(engine, exchange);
}

const std::vector<std::string>& Server::addresses() const { return impl_->addresses(); }

absl::StatusOr<FilesChange> Server::Reload() { return impl_->Reload(); }

std::string Server::metrics_address() const { return impl_->metrics_address(); }

bool Server::Drain() { return impl_->Drain(); }

}  // namespace reprise::service
