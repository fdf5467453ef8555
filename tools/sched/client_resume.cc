// SPDX-License-Identifier: Apache-2.0
// The part of GrpcClient that is about its stream: how it begins and ends, how a new one takes up
// the session of one that was lost (docs/sessions.md), and how another session follows one that was
// lost with its server.
#include <algorithm>
#include <future>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/message_differencer.h"
#include "runtime/status_macros.h"
#include "tools/sched/client.h"

namespace reprise::tools {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Between two attempts to resume.
constexpr milliseconds kRetryPause(100);
// For a stream that ends by itself, as that of a session that is closed.
constexpr std::chrono::seconds kEndTime(2);

// What a server that stops says of streams, and of those that come meanwhile. Their sessions have
// ended: nobody can resume them.
bool IsDraining(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE &&
         std::string_view(status.error_message()).starts_with("draining");
}

// What plans and tokens depend on.
absl::Status CheckIsTheSame(const v1::DescribeResponse& before, const v1::DescribeResponse& now) {
  const auto differs = [](const google::protobuf::Message& a, const google::protobuf::Message& b) {
    return !google::protobuf::util::MessageDifferencer::Equals(a, b);
  };
  const char* field = nullptr;
  if (differs(before.model(), now.model())) field = "model";
  if (differs(before.kv_layout(), now.kv_layout())) field = "kv_layout";
  if (differs(before.limits(), now.limits())) field = "limits";
  if (before.pool().num_blocks() != now.pool().num_blocks()) field = "pool.num_blocks";
  if (before.pool().block_size() != now.pool().block_size()) field = "pool.block_size";
  if (before.pool().swap_blocks() != now.pool().swap_blocks()) field = "pool.swap_blocks";
  if (before.pool().swap_states() != now.pool().swap_states()) field = "pool.swap_states";
  if (field == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the server that is there now differs in ",
                                                    field, ", allowed: one like that before"));
}

}  // namespace

void GrpcClient::StartStream() {
  stream_.reset();  // before its context
  grpc::ClientContext* context = nullptr;
  {
    const std::lock_guard lock(context_mutex_);
    stream_context_ = std::make_unique<grpc::ClientContext>();
    context = stream_context_.get();
  }
  Prepare(context);
  stream_ = stub_->StepStream(context);
  // Whoever cancelled meanwhile may have come too early for this call.
  if (cancelled_) CancelStream();
}

void GrpcClient::CancelStream() {
  const std::lock_guard lock(context_mutex_);
  if (stream_context_ != nullptr) stream_context_->TryCancel();
}

grpc::Status GrpcClient::FinishStream() {
  // A failed write leaves answers behind; Finish wants them read.
  while (stream_->Read(&response_)) {
  }
  finished_ = true;
  return stream_->Finish();
}

grpc::Status GrpcClient::AwaitStreamEnd() {
  std::promise<void> ended;
  std::thread limit([this, ended = ended.get_future()] {
    if (ended.wait_for(kEndTime) == std::future_status::timeout) CancelStream();
  });
  const grpc::Status status = FinishStream();
  ended.set_value();
  limit.join();
  return status;
}

GrpcClient::~GrpcClient() {
  if (stream_ == nullptr || finished_) return;
  if (grace_.count() == 0 || cancelled_) {
    CancelStream();
    stream_->Finish();
    return;
  }
  stream_->WritesDone();
  AwaitStreamEnd();
}

absl::Status GrpcClient::Close() {
  while (!finished_) {
    stream_->WritesDone();
    const grpc::Status status = FinishStream();
    if (status.ok()) break;
    const std::string doing = absl::StrCat("closing the session with the server at ", address());
    const absl::Status end =
        IsLost(status) ? RecoverFrom(status, /*is_lost=*/true, doing) : FromGrpc(status, doing);
    if (!IsLost(status)) NoteLoss(status);
    if (is_lost_) return absl::OkStatus();
    REPRISE_RETURN_IF_ERROR(end);
  }
  return absl::OkStatus();
}

// ---- resuming ----

bool GrpcClient::IsLost(const grpc::Status& status) const {
  return grace_.count() > 0 && !cancelled_ && !IsDraining(status) &&
         status.error_code() == grpc::StatusCode::UNAVAILABLE;
}

absl::Status GrpcClient::Recover(const std::string& doing) {
  const grpc::Status status = FinishStream();
  return RecoverFrom(status, IsLost(status), doing);
}

absl::Status GrpcClient::RecoverFrom(const grpc::Status& status, bool is_lost,
                                     const std::string& doing) {
  trouble_since_ = steady_clock::now();
  const absl::Status end = StreamEnd(status, doing);
  if (!is_lost) {
    NoteLoss(status);
    return end;
  }
  if (options_.note != nullptr) {
    options_.note(absl::StrCat("the connection to ", address(), " was lost after ", num_results_,
                               " steps (", status.error_message(),
                               "); trying to resume the session"));
  }
  const absl::Status resumed = ResumeSession();
  if (absl::IsCancelled(resumed)) return resumed;
  if (!resumed.ok()) {
    return absl::Status(end.code(),
                        absl::StrCat(end.message(), "; it was not resumed: ", resumed.message()));
  }
  ++num_resumed_;
  if (options_.note != nullptr)
    options_.note(absl::StrCat("resumed the session with the server at ", address()));
  return absl::OkStatus();
}

absl::Status GrpcClient::CheckGoesOn() const {
  if (cancelled_ || (options_.interrupted != nullptr && *options_.interrupted))
    return absl::CancelledError("interrupted");
  return absl::OkStatus();
}

absl::Status GrpcClient::ResumeSession() {
  const auto until = steady_clock::now() + grace_;
  while (true) {
    REPRISE_RETURN_IF_ERROR(CheckGoesOn());
    const grpc::Status status = TryResume();
    if (status.ok()) return absl::OkStatus();
    const bool over = steady_clock::now() >= until;
    if (over || !IsLost(status)) {
      NoteLoss(status);
      return FromGrpc(status, "resuming");
    }
    // gRPC connects only while someone waits for it.
    const auto pause_end = std::chrono::system_clock::now() + kRetryPause;
    if (connection_.channel()->WaitForConnected(pause_end))
      std::this_thread::sleep_for(kRetryPause);
  }
}

grpc::Status GrpcClient::TryResume() {
  StartStream();
  v1::StepStreamRequest request;
  request.mutable_resume()->set_session(session_);
  request.mutable_resume()->set_last_sequence(last_sequence_);
  if (!stream_->Write(request) || !stream_->Read(&response_)) return FinishStream();
  if (!response_.has_resumed()) {
    CancelStream();
    FinishStream();
    return {grpc::StatusCode::INTERNAL,
            "`resume` was answered with something other than `resumed`"};
  }
  finished_ = false;
  SendAgain(response_.resumed().last_sequence());
  return grpc::Status::OK;
}

// Steps up to `behind` ran; their answers come next. A write that fails shows at the next read.
void GrpcClient::SendAgain(uint64_t behind) {
  for (const Sent& sent : sent_) {
    if (sent.request.step().sequence() > behind && !stream_->Write(sent.request)) return;
  }
}

absl::Status GrpcClient::Call(const std::function<grpc::Status(grpc::ClientContext*)>& call,
                              const std::string& doing, bool* repeated) {
  while (true) {
    grpc::Status status;
    {
      grpc::ClientContext context;
      Prepare(&context);
      status = call(&context);
    }
    if (status.ok()) return absl::OkStatus();
    if (finished_ || !IsLost(status)) {
      NoteFailedCall(status);
      return CallEnd(status, doing);
    }
    // The stream was on the same connection. Where it has not noticed that, it is to end here: what
    // it has not brought comes again.
    CancelStream();
    const grpc::Status end = FinishStream();
    const bool is_lost = IsLost(end) || end.error_code() == grpc::StatusCode::CANCELLED;
    REPRISE_RETURN_IF_ERROR(RecoverFrom(is_lost ? status : end, is_lost, doing));
    *repeated = true;
  }
}

// ---- another session ----

void GrpcClient::NoteLoss(const grpc::Status& status) {
  const bool is_gone = status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                       status.error_code() == grpc::StatusCode::NOT_FOUND;
  is_lost_ = is_gone && !cancelled_ && options_.reopen.count() > 0;
}

void GrpcClient::NoteFailedCall(const grpc::Status& status) {
  trouble_since_ = steady_clock::now();
  NoteLoss(status);
  // Why a session is gone, its stream says: an administrator may have evicted it.
  if (is_lost_ && !finished_) is_lost_ = AwaitStreamEnd().error_code() != grpc::StatusCode::ABORTED;
}

absl::Status GrpcClient::Reopen(const absl::Status& error) {
  if (!is_lost_) return error;
  if (options_.note != nullptr)
    options_.note(absl::StrCat(error.message(), "; waiting for a server to begin again with"));
  auto until = trouble_since_ + options_.reopen;
  if (deadline_.time_since_epoch().count() != 0) until = std::min(until, deadline_);
  absl::Status status;
  do {
    REPRISE_RETURN_IF_ERROR(CheckGoesOn());
    status = TryReopen(until - steady_clock::now());
    // Cancelled by a server that stops, not by us.
    if (absl::IsCancelled(status) && CheckGoesOn().ok())
      status = absl::UnavailableError(status.message());
  } while (absl::IsUnavailable(status) && steady_clock::now() < until);
  if (absl::IsCancelled(status)) return status;
  if (!status.ok()) {
    return absl::Status(
        error.code(),
        absl::StrCat(error.message(), "; no other session was opened: ", status.message()));
  }
  is_lost_ = false;
  ++num_reopened_;
  if (options_.note != nullptr) {
    options_.note(absl::StrCat("opened another session with the server at ", address(),
                               "; what had not finished is computed again"));
  }
  return absl::OkStatus();
}

absl::Status GrpcClient::TryReopen(std::chrono::nanoseconds time) {
  if (!finished_) AwaitStreamEnd();
  REPRISE_RETURN_IF_ERROR(
      WaitUntilServing(connection_.channel(), address(), time, options_.interrupted));
  v1::DescribeResponse server;
  REPRISE_RETURN_IF_ERROR(DescribeServer(&server));
  REPRISE_RETURN_IF_ERROR(CheckIsTheSame(description_, server));
  for (Sent& sent : sent_) spare_.push_back(std::move(sent.request));
  sent_.clear();
  last_sequence_ = 0;
  return OpenSession();
}

}  // namespace reprise::tools
