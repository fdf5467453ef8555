// SPDX-License-Identifier: Apache-2.0
#include "tools/admin_server.h"

#include <chrono>
#include <utility>

#include "runtime/status_macros.h"
#include "tools/connection_flags.h"

namespace reprise::tools {

void AdminServer::Prepare(grpc::ClientContext* context, std::chrono::seconds time) const {
  connection.Prove(context);
  context->set_deadline(std::chrono::system_clock::now() + time);
}

absl::StatusOr<AdminServer> ConnectToAdminister(const ConnectionOptions& options) {
  REPRISE_RETURN_IF_ERROR(CheckConnectionOptions(options));
  REPRISE_ASSIGN_OR_RETURN(Connection connection, Connection::Open(options));
  REPRISE_RETURN_IF_ERROR(WaitUntilServing(connection.channel(), options.address,
                                           std::chrono::nanoseconds(0), nullptr));
  auto stub = v1::StepService::NewStub(connection.channel());
  return AdminServer{.connection = std::move(connection), .stub = std::move(stub)};
}

}  // namespace reprise::tools
