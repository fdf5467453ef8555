// SPDX-License-Identifier: Apache-2.0
#include "tools/replay/server_target.h"

#include <chrono>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

constexpr std::chrono::seconds kWaitForServer(5);

}  // namespace

ReplayServer::ReplayServer(std::string address, Connection connection,
                           std::chrono::nanoseconds timeout, const std::atomic<bool>* interrupted)
    : address_(std::move(address)),
      connection_(std::move(connection)),
      stub_(v1::StepService::NewStub(connection_.channel())),
      limit_(timeout, interrupted) {}

absl::StatusOr<std::unique_ptr<ReplayServer>> ReplayServer::Connect(
    const ConnectionOptions& options, std::chrono::nanoseconds timeout,
    const std::atomic<bool>* interrupted) {
  REPRISE_ASSIGN_OR_RETURN(Connection connection, Connection::Open(options));
  REPRISE_RETURN_IF_ERROR(
      WaitUntilServing(connection.channel(), options.address, kWaitForServer, interrupted));
  std::unique_ptr<ReplayServer> server;
  try {
    server.reset(new ReplayServer(options.address, std::move(connection), timeout, interrupted));
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat("thread: ", error.what()));
  }
  const auto describe = [&server](grpc::ClientContext* context) {
    return server->stub_->Describe(context, v1::DescribeRequest(), &server->description_);
  };
  REPRISE_RETURN_IF_ERROR(
      server->Call(describe, absl::StrCat("Describe of the server at ", options.address)));
  return server;
}

absl::Status ReplayServer::BreakOff(const absl::Status& why) {
  is_silent_ = true;
  return absl::Status(why.code(), absl::StrCat("the server at ", address_, ": ", why.message()));
}

absl::Status ReplayServer::Call(const std::function<grpc::Status(grpc::ClientContext*)>& call,
                                const std::string& doing) {
  grpc::ClientContext context;
  connection_.Prove(&context);
  const LimitedCall limited(&limit_, &context);
  const grpc::Status status = call(&context);
  if (status.ok()) return absl::OkStatus();
  const absl::Status broken_off = limited.broken_off();
  if (broken_off.ok()) return FromGrpc(status, doing);
  return absl::Status(broken_off.code(), absl::StrCat(doing, ": ", BreakOff(broken_off).message()));
}

absl::StatusOr<std::unique_ptr<ReplayTarget>> ReplayServer::OpenSession() {
  auto target = std::make_unique<ServerTarget>(this);
  REPRISE_RETURN_IF_ERROR(target->Open());
  return std::unique_ptr<ReplayTarget>(std::move(target));
}

absl::Status ServerTarget::Open() {
  server_.connection_.Prove(&context_);
  {
    // It waits until its beginning is sent.
    const LimitedCall limited(&server_.limit_, &context_);
    stream_ = server_.stub_->StepStream(&context_);
  }
  request_.mutable_open()->set_client(absl::StrCat("reprise replay ", REPRISE_VERSION));
  v1::StepStreamResponse response;
  const absl::Status status = Exchange(&response);
  if (!status.ok())
    return absl::Status(status.code(), absl::StrCat("opening a session: ", status.message()));
  session_ = response.opened().session();
  return absl::OkStatus();
}

ServerTarget::~ServerTarget() {
  if (stream_ == nullptr || finished_) return;
  const LimitedCall limited(&server_.limit_, &context_);
  // Nobody waits for it again.
  if (server_.is_silent_) context_.TryCancel();
  // Whoever opens the next session finds this one's blocks free: the stream's end says so.
  stream_->WritesDone();
  StreamEnd(limited).IgnoreError();
}

absl::Status ServerTarget::Exchange(v1::StepStreamResponse* answer) {
  const LimitedCall limited(&server_.limit_, &context_);
  if (!stream_->Write(request_) || !stream_->Read(answer)) return StreamEnd(limited);
  // An answer may come as the call is broken off: the stream ends all the same.
  const absl::Status broken_off = limited.broken_off();
  return broken_off.ok() ? broken_off : server_.BreakOff(broken_off);
}

absl::Status ServerTarget::StreamEnd(const LimitedCall& call) {
  v1::StepStreamResponse unread;
  while (stream_->Read(&unread)) {
  }
  finished_ = true;
  const grpc::Status status = stream_->Finish();
  const absl::Status broken_off = call.broken_off();
  if (!broken_off.ok()) return server_.BreakOff(broken_off);
  const std::string what = absl::StrCat("the server at ", server_.address_, " ended the session");
  return status.ok() ? absl::UnavailableError(what) : FromGrpc(status, what);
}

absl::Status ServerTarget::Step(const v1::StepRequest& step, v1::StepStreamResponse* answer) {
  *request_.mutable_step() = step;
  return Exchange(answer);
}

}  // namespace reprise::tools
