// SPDX-License-Identifier: Apache-2.0
// GrpcClient: a scheduler's session with a server over the public API: one StepStream that carries
// the steps, and unary calls for blocks. Steps go out and results come in on one thread; the server
// keeps them in order. A stream that is lost with its connection is taken up again on a new one
// (docs/sessions.md): no result is missing then, and none comes twice. A session that is lost with
// its server may be replaced by another one.
#ifndef REPRISE_TOOLS_SCHED_CLIENT_H_
#define REPRISE_TOOLS_SCHED_CLIENT_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
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
  // For how long the session outlives a lost stream, and is tried to be resumed, as far as the
  // server allows; 0: not at all.
  std::chrono::milliseconds resume_grace{0};
  // For how long after a session was lost another one may be opened in its place, on whatever
  // server is at the address then; 0: not at all.
  std::chrono::milliseconds reopen{0};
  // Told that the connection was lost, and that the session goes on; may be empty.
  std::function<void(const std::string&)> note = {};
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
  // Another session where this one was lost: its server is gone, or does not know it any more.
  // Errors: `error`, and why there is no other; FailedPrecondition: what is there now serves
  // something else.
  absl::Status Reopen(const absl::Status& error) override;
  absl::StatusOr<std::vector<uint32_t>> Allocate(uint32_t count) override;
  absl::Status Free(const std::vector<uint32_t>& blocks) override;
  absl::StatusOr<std::vector<uint32_t>> SwapOut(const std::vector<uint32_t>& blocks) override;
  absl::StatusOr<std::vector<uint32_t>> SwapIn(const std::vector<uint32_t>& swapped) override;
  absl::Status FreeSwapped(const std::vector<uint32_t>& swapped) override;
  absl::StatusOr<uint32_t> SwapOutState(uint32_t row) override;
  absl::Status FreeSwappedState(uint32_t state) override;

  // Lets the session's steps be stamped, or run without padding: the request's session is filled
  // in. Errors: the server's, PermissionDenied where the client is no administrator among them.
  absl::Status StartProfile(v1::StartProfileRequest request, v1::StartProfileResponse* response);
  absl::Status ReadTelemetry(v1::ReadTelemetryResponse* response);

  // How often the session was resumed.
  uint32_t num_resumed() const { return num_resumed_; }
  // How often another one took its place.
  uint32_t num_reopened() const { return num_reopened_; }

  // Ends the session: no step may be in flight. The server drops its rows and frees its blocks.
  // Nothing is left to do where the session has ended already, or was lost.
  absl::Status Close();
  // Breaks off whatever is going on. Any thread, at any time until destruction.
  void Cancel() {
    cancelled_ = true;
    CancelStream();
  }

 private:
  using Stream = grpc::ClientReaderWriter<v1::StepStreamRequest, v1::StepStreamResponse>;
  // A step without a result in hand, to be sent again where it has not run.
  struct Sent {
    v1::StepStreamRequest request;
    std::chrono::steady_clock::time_point time;
  };
  GrpcClient(const ClientOptions& options, Connection connection)
      : options_(options), connection_(std::move(connection)) {}
  absl::Status DescribeServer(v1::DescribeResponse* description);
  absl::Status OpenSession();
  // One attempt, in that time.
  absl::Status TryReopen(std::chrono::nanoseconds time);
  // Whether a session that ended with `status` was lost, and may be replaced.
  void NoteLoss(const grpc::Status& status);
  // A unary call of the session failed.
  void NoteFailedCall(const grpc::Status& status);
  // A new call of StepStream, instead of the one that has ended, if any.
  void StartStream();
  void CancelStream();
  // Reads what is left of the stream, and its status.
  grpc::Status FinishStream();
  // The same of a stream that ought to end by itself: cancels one that does not.
  grpc::Status AwaitStreamEnd();
  // After a read or a write failed: OK where the session goes on, on a new stream, to which all
  // steps that have not run were sent. Errors: why the stream, and with it the session, is over.
  absl::Status Recover(const std::string& doing);
  // The same, of a stream that ended with `status`. `is_lost`: its connection was.
  absl::Status RecoverFrom(const grpc::Status& status, bool is_lost, const std::string& doing);
  // Tries until the grace time is over.
  absl::Status ResumeSession();
  grpc::Status TryResume();
  absl::Status CheckGoesOn() const;
  void SendAgain(uint64_t behind);
  // A unary call of the session, made again after the session was resumed where the connection was
  // lost under it. `repeated`: whether it was.
  absl::Status Call(const std::function<grpc::Status(grpc::ClientContext*)>& call,
                    const std::string& doing, bool* repeated);
  bool IsLost(const grpc::Status& status) const;
  // Who calls, and for how long at most.
  void Prepare(grpc::ClientContext* context) const;
  const std::string& address() const { return options_.connection.address; }
  // Why the stream is over, after a read or a write failed.
  absl::Status StreamEnd(const grpc::Status& status, const std::string& doing) const;
  absl::Status CallEnd(const grpc::Status& status, const std::string& doing) const;

  const ClientOptions options_;
  const Connection connection_;
  std::chrono::steady_clock::time_point deadline_;  // the epoch: none
  std::unique_ptr<v1::StepService::Stub> stub_;
  v1::DescribeResponse description_;
  std::mutex context_mutex_;
  std::unique_ptr<grpc::ClientContext> stream_context_ ABSL_GUARDED_BY(context_mutex_);
  std::unique_ptr<Stream> stream_;
  std::atomic<bool> cancelled_ = false;
  bool finished_ = false;               // the stream's end has been read
  std::string session_;                 // the token
  std::chrono::milliseconds grace_{0};  // what the server gives
  // Since when the session may be lost, and whether it is.
  std::chrono::steady_clock::time_point trouble_since_;
  bool is_lost_ = false;
  uint64_t num_results_ = 0;
  uint64_t last_sequence_ = 0;  // of the last result in hand
  uint32_t num_resumed_ = 0;
  uint32_t num_reopened_ = 0;
  std::deque<Sent> sent_;
  std::vector<v1::StepStreamRequest> spare_;  // reused, so that a steady state allocates nothing
  std::set<std::string, std::less<>> graph_names_;  // that results have named; outcomes view them
  v1::StepStreamResponse response_;                 // reused
};

// What the scheduler must know of `description`.
ServerInfo ServerInfoOf(const v1::DescribeResponse& description);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_SCHED_CLIENT_H_
