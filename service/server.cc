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
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "runtime/status_macros.h"
#include "service/health_service.h"
#include "service/reflection_service.h"
#include "service/step_service.h"
#include "service/transport/listen_address.h"
#include "service/transport/listener.h"
#include "service/transport/listening_socket.h"

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
// For a connection to become one of HTTP/2.
constexpr int kHandshakeTimeoutMs = 10000;
constexpr int kMaxReflectionThreads = 16;
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
  if (options.max_sessions < 1) {
    return absl::InvalidArgumentError("max_sessions: got 0, allowed 1 or more");
  }
  constexpr uint64_t kMaxIdleTimeoutMs = uint64_t{365} * 24 * 3600 * 1000;
  const uint64_t idle_ms = options.idle_timeout_ms;
  if (idle_ms != 0 && (idle_ms < 4 || idle_ms > kMaxIdleTimeoutMs)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "idle_timeout_ms: got ", idle_ms, ", allowed 0 (none), or 4 to ", kMaxIdleTimeoutMs));
  }
  if (options.keepalive_ms > kMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("keepalive_ms: got ", options.keepalive_ms, ", allowed 0 to ", kMax));
  }
  return absl::OkStatus();
}

}  // namespace

class Server::Impl {
 public:
  explicit Impl(const ServerOptions& options)
      : drain_timeout_(options.drain_timeout_ms),
        steps_({.max_message_bytes = options.max_message_bytes,
                .max_waiting_bytes = options.max_waiting_bytes,
                .max_sessions = options.max_sessions,
                .session = options.session_limits,
                .idle_timeout_ms = options.idle_timeout_ms,
                .allow_attention_trees = options.allow_attention_trees}),
        health_([this] { return steps_.IsServing(); }) {}
  ~Impl() { Drain(milliseconds(0)); }

  absl::Status Listen(const ServerOptions& options) {
    REPRISE_ASSIGN_OR_RETURN(std::vector<ListeningSocket> sockets, ListenOnAll(options.listen));
    for (const ListeningSocket& socket : sockets) {
      if (addresses_.empty() || addresses_.back() != socket.address) {
        addresses_.push_back(socket.address);
      }
    }
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    // The listener is ours; gRPC is handed connections.
    connections_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        grpc::InsecureServerCredentials());
    SetChannelArguments(options, &builder);
    // Reflection under its older name comes with gRPC and takes a thread for each call.
    grpc::ResourceQuota quota("reprise");
    quota.SetMaxThreads(kMaxReflectionThreads);
    builder.SetResourceQuota(quota);
    builder.RegisterService(&steps_);
    builder.RegisterService(&health_);
    builder.RegisterService(&reflection_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::UnavailableError("cannot serve: gRPC did not start");
    ConnectionLimits limits = options.connections;
    limits.frames.max_unfinished_bytes = std::max<uint64_t>(
        limits.frames.max_unfinished_bytes, uint64_t{4} * options.max_message_bytes);
    limits.frames.max_calls_before_settings =
        std::max(limits.frames.max_calls_before_settings, options.max_calls_per_connection);
    REPRISE_ASSIGN_OR_RETURN(
        listener_,
        Listener::Start(std::move(sockets), {.limits = limits,
                                             .accept =
                                                 [this, keepalive_ms = options.keepalive_ms](
                                                     FileDescriptor fd, int listening) {
                                                   HandOver(std::move(fd), listening, keepalive_ms);
                                                 },
                                             .report = options.report}));
    return absl::OkStatus();
  }

  void AttachEngine(engine::DecodeEngine& engine) {
    steps_.Attach(engine, [this] { health_.Refresh(); });
    health_.Refresh();
  }

  const std::vector<std::string>& addresses() const { return addresses_; }
  bool Drain() { return Drain(drain_timeout_); }

 private:
  // A connection that was accepted, to gRPC.
  void HandOver(FileDescriptor fd, int listening, uint32_t keepalive_ms) {
    // Bytes that nobody acknowledges for as long end a connection of TCP, as pings without an
    // answer do; fails on a unix socket, which needs none of it.
    if (keepalive_ms > 0) {
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &keepalive_ms, sizeof(keepalive_ms));
    }
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.listener_fd = listening;
    connection.fd = fd.Release();
    connections_->HandleNewConnection(&connection);
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
  StepService steps_;
  HealthService health_;
  ReflectionService reflection_;
  std::vector<std::string> addresses_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;
  std::mutex mutex_;
  std::unique_ptr<grpc::Server> server_ ABSL_GUARDED_BY(mutex_);  // reset when stopped
  std::unique_ptr<Listener> listener_;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() = default;

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options) {
  REPRISE_RETURN_IF_ERROR(CheckOptions(options));
  auto impl = std::make_unique<Impl>(options);
  REPRISE_RETURN_IF_ERROR(impl->Listen(options));
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

void Server::AttachEngine(engine::DecodeEngine& engine) { impl_->AttachEngine(engine); }

const std::vector<std::string>& Server::addresses() const { return impl_->addresses(); }

bool Server::Drain() { return impl_->Drain(); }

}  // namespace reprise::service
