// SPDX-License-Identifier: Apache-2.0
#include "tools/connection.h"

#include <algorithm>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "runtime/status_macros.h"
#include "service/identity/private_file.h"
#include "service/identity/token_digest.h"
#include "service/transport/tls_files.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

using grpc::health::v1::HealthCheckResponse;
using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPollInterval(50);
constexpr std::chrono::seconds kCallTimeout(2);
constexpr char kSaidPayload[] = "reprise/health";

grpc::Status CheckHealth(const std::shared_ptr<grpc::Channel>& channel,
                         HealthCheckResponse::ServingStatus* health) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
  HealthCheckResponse response;
  const auto stub = grpc::health::v1::Health::NewStub(channel);
  const grpc::Status status =
      stub->Check(&context, grpc::health::v1::HealthCheckRequest(), &response);
  *health = response.status();
  return status;
}

absl::Status Describe(const grpc::Status& status, HealthCheckResponse::ServingStatus health,
                      const std::string& address, std::chrono::nanoseconds wait) {
  const std::string within =
      wait.count() == 0
          ? ""
          : absl::StrCat(" within ", FormatDuration(static_cast<double>(wait.count())));
  if (status.ok()) {
    const std::string said = HealthCheckResponse::ServingStatus_Name(health);
    absl::Status not_ready = absl::UnavailableError(
        absl::StrCat("the server at ", address, " is not ready", within, ": health says ", said));
    not_ready.SetPayload(kSaidPayload, absl::Cord(absl::string_view(said)));
    return not_ready;
  }
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    return absl::UnavailableError(
        absl::StrCat("cannot connect to ", address, within, ": ", status.error_message()));
  }
  return FromGrpc(status, absl::StrCat("health check of the server at ", address));
}

using service::FileKind;
using service::ReadPrivateFile;

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsOf(
    const ConnectionOptions& options) {
  if (options.tls_ca.empty()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions tls;
  REPRISE_ASSIGN_OR_RETURN(tls.pem_root_certs,
                           ReadPrivateFile("TLS CA", options.tls_ca, FileKind::kTrusted));
  REPRISE_RETURN_IF_ERROR(
      service::CheckCertificate(absl::StrCat("TLS CA file ", options.tls_ca), tls.pem_root_certs));
  if (!options.tls_certificate.empty()) {
    REPRISE_ASSIGN_OR_RETURN(
        const service::TlsTexts own,
        service::ReadTlsFiles({.certificate = options.tls_certificate, .key = options.tls_key}));
    tls.pem_cert_chain = own.certificate;
    tls.pem_private_key = own.key;
  }
  return grpc::SslCredentials(tls);
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  REPRISE_ASSIGN_OR_RETURN(const std::string text,
                           ReadPrivateFile("token", path, FileKind::kSecret));
  const std::string token(absl::StripTrailingAsciiWhitespace(text));
  if (service::IsBearerToken(token)) return token;
  return absl::InvalidArgumentError(
      absl::StrCat("token file ", path, ": got no token, allowed: one line of 1 to ",
                   service::TokenDigest::kMaxTokenBytes, " letters, digits and - . _ ~ + / ="));
}

std::shared_ptr<grpc::Channel> OpenChannel(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A server that is starting up is found soon after it listens.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

}  // namespace

absl::StatusOr<Connection> Connection::Open(const ConnectionOptions& options) {
  Connection connection;
  REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ChannelCredentials> credentials,
                           CredentialsOf(options));
  if (!options.token_file.empty()) {
    REPRISE_ASSIGN_OR_RETURN(const std::string token, ReadToken(options.token_file));
    connection.authorization_ = absl::StrCat("Bearer ", token);
  }
  connection.channel_ = OpenChannel(options.address, credentials);
  return connection;
}

void Connection::Prove(grpc::ClientContext* context) const {
  if (!authorization_.empty()) context->AddMetadata("authorization", authorization_);
}

absl::Status FromGrpc(const grpc::Status& status, const std::string& what) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(what, ": ", status.error_message()));
}

absl::Status WaitUntilServing(const std::shared_ptr<grpc::Channel>& channel,
                              const std::string& address, std::chrono::nanoseconds wait,
                              const std::atomic<bool>* interrupted) {
  const auto deadline = steady_clock::now() + wait;
  while (true) {
    HealthCheckResponse::ServingStatus health = HealthCheckResponse::UNKNOWN;
    const grpc::Status status = CheckHealth(channel, &health);
    if (status.ok() && health == HealthCheckResponse::SERVING) return absl::OkStatus();
    // A server that stops cancels what it is asked meanwhile.
    const bool hopeless = !status.ok() && status.error_code() != grpc::StatusCode::UNAVAILABLE &&
                          status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED &&
                          status.error_code() != grpc::StatusCode::CANCELLED;
    if (hopeless || steady_clock::now() >= deadline) return Describe(status, health, address, wait);
    if (interrupted != nullptr && *interrupted) return absl::CancelledError("interrupted");
    // gRPC makes progress on a connection only while someone waits for it: a plain sleep would
    // leave it half open for seconds.
    if (status.ok()) {
      std::this_thread::sleep_for(kPollInterval);
    } else {
      channel->WaitForConnected(std::chrono::system_clock::now() + kPollInterval);
    }
  }
}

std::string ServingStatusOf(const absl::Status& waited) {
  if (waited.ok()) return "SERVING";
  if (const auto said = waited.GetPayload(kSaidPayload)) return std::string(*said);
  const bool silent = absl::IsUnavailable(waited) || absl::IsDeadlineExceeded(waited);
  return silent ? "UNREACHABLE" : "UNKNOWN";
}

}  // namespace reprise::tools
