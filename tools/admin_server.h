// SPDX-License-Identifier: Apache-2.0
// AdminServer: a server that an administrator calls once or a few times. Threads: one at a time.
#ifndef REPRISE_TOOLS_ADMIN_SERVER_H_
#define REPRISE_TOOLS_ADMIN_SERVER_H_

#include <chrono>
#include <memory>

#include "absl/status/statusor.h"
#include "grpcpp/client_context.h"
#include "reprise/v1/step_service.grpc.pb.h"
#include "tools/connection.h"

namespace reprise::tools {

struct AdminServer {
  Connection connection;
  std::unique_ptr<v1::StepService::Stub> stub;

  // Proves who calls, and bounds how long an answer may take: most take milliseconds.
  void Prepare(grpc::ClientContext* context,
               std::chrono::seconds time = std::chrono::seconds(10)) const;
};

// Does not wait for a server that is not there. Errors: CheckConnectionOptions's, Connection::
// Open's, WaitUntilServing's.
absl::StatusOr<AdminServer> ConnectToAdminister(const ConnectionOptions& options);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_ADMIN_SERVER_H_
