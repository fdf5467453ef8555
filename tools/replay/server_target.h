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
  absl::Status Write(const v1::WriteBlocksRequest& write) override;
  absl::StatusOr<std::vector<uint32_t>> SwapOut(const std::vector<uint32_t>& blocks) override;
  absl::StatusOr<std::vector<uint32_t>> SwapIn(const std::vector<uint32_t>& swapped) override;
  absl::StatusOr<engine::SwappedState> SwapOutState(uint32_t row) override;
  absl::Status FreeSwapped(const std::vector<uint32_t>& swapped,
                           const std::vector<uint32_t>& states) override;
  absl::Status Share(const std::string& name, const std::vector<uint32_t>& blocks) override;
  absl::Status Release(const std::string& name) override;
  absl::Status Step(const v1::StepRequest& step, v1::StepStreamResponse* answer) override;

 private:
  using Stub = v1::StepService::Stub;
  template <typename Request, typename Response>
  using Method = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, Response*);

  // A call of this session beside its stream.
  template <typename Request, typename Response>
  absl::Status Call(Method<Request, Response> method, Request* request, Response* response,
                    const std::string& doing);
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
