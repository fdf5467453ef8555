// SPDX-License-Identifier: Apache-2.0
// GrpcClient: a scheduler's session with a server over the public API: one StepStream that carries
// the steps, and unary calls for blocks. Steps go out and results come in on one thread; the server
// keeps them in order.
#ifndef REPRISE_TOOLS_SCHED_CLIENT_H_
#define REPRISE_TOOLS_SCHED_CLIENT_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/sync_stream.h"
#include "reprise/v1/step_service.grpc.pb.h"
#include "tools/connection.h"
#include "tools/sched/channel.h"

namespace reprise::tools {

struct ClientOptions {
  ConnectionOptions connection;
  std::string name;                     // told to the server
  std::chrono::nanoseconds wait{0};     // for the server to become ready
  std::chrono::nanoseconds timeout{0};  // of the whole session, from Connect on; 0: none
  // Stops waiting when another thread sets it; may be null.
  const std::atomic<bool>* interrupted = nullptr;
};

class GrpcClient : public StepChannel, public BlockSource {
 public:
  // Waits for the server, asks what it serves, opens a session. Errors say which server and why.
  static absl::StatusOr<std::unique_ptr<GrpcClient>> Connect(const ClientOptions& options);
  ~GrpcClient() override;

  const v1::DescribeResponse& description() const { return description_; }

  absl::Status Submit(const PlannedStep& step) override;
  absl::Status Receive(StepOutcome* outcome) override;
  absl::StatusOr<std::vector<uint32_t>> Allocate(uint32_t count) override;
  absl::Status Free(const std::vector<uint32_t>& blocks) override;

  // Ends the session: no step may be in flight. The server drops its rows and frees its blocks.
  // Nothing is left to do where the session has ended already.
  absl::Status Close();
  // Breaks off whatever is going on. Any thread, at any time until destruction.
  void Cancel() {
    cancelled_ = true;
    stream_context_.TryCancel();
  }

 private:
  GrpcClient(const ClientOptions& options, Connection connection)
      : options_(options), connection_(std::move(connection)) {}
  absl::Status OpenSession();
  // Who calls, and for how long at most.
  void Prepare(grpc::ClientContext* context) const;
  const std::string& address() const { return options_.connection.address; }
  // Why the stream is over, after a read or a write failed.
  absl::Status StreamEnd(const std::string& doing);
  absl::Status CallEnd(const grpc::Status& status, const std::string& doing) const;

  const ClientOptions options_;
  const Connection connection_;
  std::chrono::system_clock::time_point deadline_;  // the epoch: none
  std::unique_ptr<v1::StepService::Stub> stub_;
  v1::DescribeResponse description_;
  grpc::ClientContext stream_context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::StepStreamRequest, v1::StepStreamResponse>> stream_;
  std::atomic<bool> cancelled_ = false;
  bool finished_ = false;  // the stream's end has been read
  std::string session_;    // the token
  uint64_t num_results_ = 0;
  std::deque<std::chrono::steady_clock::time_point> submit_times_;
  std::set<std::string, std::less<>> graph_names_;  // that results have named; outcomes view them
  v1::StepStreamRequest request_;    // reused, so that a steady state allocates nothing
  v1::StepStreamResponse response_;  // reused
};

// What the scheduler must know of `description`.
ServerInfo ServerInfoOf(const v1::DescribeResponse& description);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_SCHED_CLIENT_H_
