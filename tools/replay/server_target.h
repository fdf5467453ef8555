// SPDX-License-Identifier: Apache-2.0
// ServerTarget: a session of a running server, over gRPC.
#ifndef REPRISE_TOOLS_REPLAY_SERVER_TARGET_H_
#define REPRISE_TOOLS_REPLAY_SERVER_TARGET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/sync_stream.h"
#include "reprise/v1/step_service.grpc.pb.h"
#include "tools/connection.h"
#include "tools/replay/replay_target.h"

namespace reprise::tools {

// A server that replays go to.
class ReplayServer {
 public:
  // Waits a few seconds for it to serve, and asks what it is. Errors: those of Connection,
  // WaitUntilServing, and of the call.
  static absl::StatusOr<std::unique_ptr<ReplayServer>> Connect(const ConnectionOptions& options);

  const v1::DescribeResponse& description() const { return description_; }
  // Opens a session; the server must outlive it. Errors: the server's.
  absl::StatusOr<std::unique_ptr<ReplayTarget>> OpenSession();

 private:
  friend class ServerTarget;
  ReplayServer(std::string address, Connection connection);

  const std::string address_;
  const Connection connection_;
  const std::unique_ptr<v1::StepService::Stub> stub_;
  v1::DescribeResponse description_;
};

class ServerTarget final : public ReplayTarget {
 public:
  explicit ServerTarget(const ReplayServer& server) : server_(server) {}
  ~ServerTarget() override;

  absl::Status Open();
  absl::StatusOr<std::vector<uint32_t>> Allocate(uint32_t count) override;
  absl::Status Free(const std::vector<uint32_t>& blocks) override;
  absl::Status Step(const v1::StepRequest& step, v1::StepStreamResponse* answer) override;

 private:
  // Why the stream ended.
  absl::Status StreamEnd();

  const ReplayServer& server_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::StepStreamRequest, v1::StepStreamResponse>> stream_;
  bool finished_ = false;
  v1::StepStreamRequest request_;
  std::string session_;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_REPLAY_SERVER_TARGET_H_
