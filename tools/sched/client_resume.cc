// SPDX-License-Identifier: Apache-2.0
// The part of GrpcClient that is about its stream: how it begins and ends, and how a new one takes
// up the session of one that was lost (docs/sessions.md).
#include <algorithm>
#include <future>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "tools/sched/client.h"

namespace reprise::tools {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Between two attempts to resume.
constexpr milliseconds kRetryPause(100);
// For a session that is left behind to be closed, so that it does not wait to be resumed.
constexpr std::chrono::seconds kLeaveTime(2);

// What a server that stops says of streams, and of those that come meanwhile. Their sessions have
// ended: nobody can resume them.
bool IsDraining(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE &&
         std::string_view(status.error_message()).starts_with("draining");
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

GrpcClient::~GrpcClient() {
  if (stream_ == nullptr || finished_) return;
  if (grace_.count() == 0 || cancelled_) {
    CancelStream();
    stream_->Finish();
    return;
  }
  std::promise<void> left;
  std::thread limit([this, left = left.get_future()] {
    if (left.wait_for(kLeaveTime) == std::future_status::timeout) CancelStream();
  });
  stream_->WritesDone();
  FinishStream();
  left.set_value();
  limit.join();
}

absl::Status GrpcClient::Close() {
  while (!finished_) {
    stream_->WritesDone();
    const grpc::Status status = FinishStream();
    if (status.ok()) break;
    const std::string doing = absl::StrCat("closing the session with the server at ", address());
    if (!IsLost(status)) return FromGrpc(status, doing);
    REPRISE_RETURN_IF_ERROR(RecoverFrom(status, /*is_lost=*/true, doing));
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
  const absl::Status end = StreamEnd(status, doing);
  if (!is_lost) return end;
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
    if (over || !IsLost(status)) return FromGrpc(status, "resuming");
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
    if (finished_ || !IsLost(status)) return CallEnd(status, doing);
    // The stream was on the same connection. Where it has not noticed that, it is to end here: what
    // it has not brought comes again.
    CancelStream();
    const grpc::Status end = FinishStream();
    const bool is_lost = IsLost(end) || end.error_code() == grpc::StatusCode::CANCELLED;
    REPRISE_RETURN_IF_ERROR(RecoverFrom(is_lost ? status : end, is_lost, doing));
    *repeated = true;
  }
}

}  // namespace reprise::tools
