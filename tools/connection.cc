// SPDX-License-Identifier: Apache-2.0
#include "tools/connection.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

using grpc::health::v1::HealthCheckResponse;
using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPollInterval(50);
constexpr std::chrono::seconds kCallTimeout(2);

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
    return absl::UnavailableError(absl::StrCat("the server at ", address, " is not ready", within,
                                               ": health says ",
                                               HealthCheckResponse::ServingStatus_Name(health)));
  }
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    return absl::UnavailableError(
        absl::StrCat("cannot connect to ", address, within, ": ", status.error_message()));
  }
  return FromGrpc(status, absl::StrCat("health check of the server at ", address));
}

}  // namespace

std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A server that is starting up is found soon after it listens.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
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
    const bool hopeless = !status.ok() && status.error_code() != grpc::StatusCode::UNAVAILABLE &&
                          status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED;
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

}  // namespace reprise::tools
