// SPDX-License-Identifier: Apache-2.0
#include "tools/replay/server_target.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

constexpr std::chrono::seconds kWaitForServer(5);

}  // namespace

ReplayServer::ReplayServer(std::string address, Connection connection)
    : address_(std::move(address)),
      connection_(std::move(connection)),
      stub_(v1::StepService::NewStub(connection_.channel())) {}

absl::StatusOr<std::unique_ptr<ReplayServer>> ReplayServer::Connect(
    const ConnectionOptions& options) {
  REPRISE_ASSIGN_OR_RETURN(Connection connection, Connection::Open(options));
  REPRISE_RETURN_IF_ERROR(
      WaitUntilServing(connection.channel(), options.address, kWaitForServer, nullptr));
  std::unique_ptr<ReplayServer> server(new ReplayServer(options.address, std::move(connection)));
  grpc::ClientContext context;
  server->connection_.Prove(&context);
  REPRISE_RETURN_IF_ERROR(
      FromGrpc(server->stub_->Describe(&context, v1::DescribeRequest(), &server->description_),
               absl::StrCat("Describe of the server at ", options.address)));
  return server;
}

absl::StatusOr<std::unique_ptr<ReplayTarget>> ReplayServer::OpenSession() {
  auto target = std::make_unique<ServerTarget>(*this);
  REPRISE_RETURN_IF_ERROR(target->Open());
  return std::unique_ptr<ReplayTarget>(std::move(target));
}

absl::Status ServerTarget::Open() {
  server_.connection_.Prove(&context_);
  stream_ = server_.stub_->StepStream(&context_);
  request_.mutable_open()->set_client(absl::StrCat("reprise replay ", REPRISE_VERSION));
  v1::StepStreamResponse response;
  if (!stream_->Write(request_) || !stream_->Read(&response)) return StreamEnd();
  session_ = response.opened().session();
  return absl::OkStatus();
}

ServerTarget::~ServerTarget() {
  if (stream_ == nullptr || finished_) return;
  // Whoever opens the next session finds this one's blocks free: the stream's end says so.
  stream_->WritesDone();
  StreamEnd().IgnoreError();
}

absl::Status ServerTarget::StreamEnd() {
  v1::StepStreamResponse unread;
  while (stream_->Read(&unread)) {
  }
  finished_ = true;
  const std::string what = absl::StrCat("the server at ", server_.address_, " ended the session");
  const grpc::Status status = stream_->Finish();
  return status.ok() ? absl::UnavailableError(what) : FromGrpc(status, what);
}

absl::StatusOr<std::vector<uint32_t>> ServerTarget::Allocate(uint32_t count) {
  grpc::ClientContext context;
  server_.connection_.Prove(&context);
  v1::AllocateRequest request;
  v1::AllocateResponse response;
  request.set_session(session_);
  request.set_count(count);
  REPRISE_RETURN_IF_ERROR(FromGrpc(server_.stub_->Allocate(&context, request, &response),
                                   absl::StrCat("allocating ", count, " blocks")));
  return std::vector<uint32_t>(response.blocks().begin(), response.blocks().end());
}

absl::Status ServerTarget::Free(const std::vector<uint32_t>& blocks) {
  grpc::ClientContext context;
  server_.connection_.Prove(&context);
  v1::FreeRequest request;
  v1::FreeResponse response;
  request.set_session(session_);
  request.mutable_blocks()->Assign(blocks.begin(), blocks.end());
  return FromGrpc(server_.stub_->Free(&context, request, &response),
                  absl::StrCat("freeing ", blocks.size(), " blocks"));
}

absl::Status ServerTarget::Step(const v1::StepRequest& step, v1::StepStreamResponse* answer) {
  *request_.mutable_step() = step;
  if (!stream_->Write(request_) || !stream_->Read(answer)) return StreamEnd();
  return absl::OkStatus();
}

}  // namespace reprise::tools
