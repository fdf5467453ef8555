// SPDX-License-Identifier: Apache-2.0
#include "tools/connection.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "google/protobuf/empty.pb.h"
#include "google/protobuf/unknown_field_set.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/security/credentials.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

using google::protobuf::Empty;
using std::chrono::steady_clock;

constexpr char kHealthMethod[] = "/grpc.health.v1.Health/Check";
constexpr std::chrono::milliseconds kPollInterval(50);
constexpr std::chrono::seconds kCallTimeout(2);

// HealthCheckResponse.ServingStatus
enum class Health { kUnknown = 0, kServing = 1, kNotServing = 2, kServiceUnknown = 3 };

const char* NameOf(Health health) {
  switch (health) {
    case Health::kUnknown:
      return "UNKNOWN";
    case Health::kServing:
      return "SERVING";
    case Health::kNotServing:
      return "NOT_SERVING";
    case Health::kServiceUnknown:
      return "SERVICE_UNKNOWN";
  }
  return "an unknown status";
}

// The request for the whole server is an empty message, and the response's only field is `status =
// 1`. Both therefore travel as Empty, and the status is read among the fields that Empty does not
// know: no copy of health.proto is needed.
grpc::Status CheckHealth(const std::shared_ptr<grpc::Channel>& channel, Health* health) {
  grpc::TemplatedGenericStub<Empty, Empty> stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareUnaryCall(&context, kHealthMethod, Empty(), &queue);
  call->StartCall();
  Empty response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (!status.ok()) return status;

  *health = Health::kUnknown;
  const auto& fields = Empty::GetReflection()->GetUnknownFields(response);
  for (int i = 0; i < fields.field_count(); ++i) {
    const google::protobuf::UnknownField& field = fields.field(i);
    if (field.number() == 1 && field.type() == google::protobuf::UnknownField::TYPE_VARINT) {
      *health = static_cast<Health>(field.varint());
    }
  }
  return grpc::Status::OK;
}

absl::Status Describe(const grpc::Status& status, Health health, const std::string& address,
                      std::chrono::nanoseconds wait) {
  const std::string within =
      wait.count() == 0
          ? ""
          : absl::StrCat(" within ", FormatDuration(static_cast<double>(wait.count())));
  if (status.ok()) {
    return absl::UnavailableError(absl::StrCat("the server at ", address, " is not ready", within,
                                               ": health says ", NameOf(health)));
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
    Health health = Health::kUnknown;
    const grpc::Status status = CheckHealth(channel, &health);
    if (status.ok() && health == Health::kServing) return absl::OkStatus();
    const bool hopeless = !status.ok() && status.error_code() != grpc::StatusCode::UNAVAILABLE &&
                          status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED;
    if (hopeless || steady_clock::now() >= deadline) return Describe(status, health, address, wait);
    if (interrupted != nullptr && *interrupted) return absl::CancelledError("interrupted");
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace reprise::tools
