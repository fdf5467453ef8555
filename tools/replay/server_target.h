// SPDX-License-Identifier: Apache-2.0
// ServerTarget: a session of a running server, over gRPC.
#ifndef REPRISE_TOOLS_REPLAY_SERVER_TARGET_H_
#define REPRISE_TOOLS_REPLAY_SERVER_TARGET_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/sync_stream.h"
#include "reprise/v1/step_service.grpc.pb.h"
#include "tools/connection.h"
#include "tools/replay/call_limit.h"
#include "tools/replay/replay_target.h"

namespace reprise::tools {

// A server that replays go to.
class ReplayServer {
 public:
  // Waits a few seconds for it to serve, and asks what it is. `timeout` is of each call from here
  // on, and of each step; 0: none. `interrupted` must outlive the server. Errors: those of
  // Connection, WaitUntilServing, and of the call; DeadlineExceeded where it is not answered in
  // time; Cancelled once `interrupted` is true. The last two are errors of sessions, too.
  static absl::StatusOr<std::unique_ptr<ReplayServer>> Connect(
      const ConnectionOptions& options, std::chrono::nanoseconds timeout,
      const std::atomic<bool>* interrupted);

  const v1::DescribeResponse& description() const { return description_; }
  // Opens a session; the server must outlive it. Errors: the server's.
  absl::StatusOr<std::unique_ptr<ReplayTarget>> OpenSession();

 private:
  friend class ServerTarget;
  ReplayServer(std::string address, Connection connection, std::chrono::nanoseconds timeout,
               const std::atomic<bool>* interrupted);

  // A call beside a stream; `doing` begins the messages.
  absl::Status Call(const std::function<grpc::Status(grpc::ClientContext*)>& call,
                    const std::string& doing);
  // Notes that nobody waits for the server any more, and says why, with its name.
  absl::Status BreakOff(const absl::Status& why);

  const std::string address_;
  const Connection connection_;
  const std::unique_ptr<v1::StepService::Stub> stub_;
  CallLimit limit_;
  bool is_silent_ = false;
  v1::DescribeResponse description_;
};

class ServerTarget final : public ReplayTarget {
 public:
  explicit ServerTarget(ReplayServer* server) : server_(*server) {}
  ~ServerTarget() override;

  absl::Status Open();
  absl::StatusOr<std::vector<uint32_t>> Allocate(uint32_t count) override;
  absl::Status Free(const std::vector<uint32_t>& blocks) override;
  absl::Status Step(const v1::StepRequest& step, v1::StepStreamResponse* answer) override;

 private:
  // Sends the request, and waits for its answer.
  absl::Status Exchange(v1::StepStreamResponse* answer);
  // Why the stream ended, on which `call` was made.
  absl::Status StreamEnd(const LimitedCall& call);

  ReplayServer& server_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::StepStreamRequest, v1::StepStreamResponse>> stream_;
  bool finished_ = false;
  v1::StepStreamRequest request_;
  std::string session_;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_REPLAY_SERVER_TARGET_H_
