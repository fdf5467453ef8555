// SPDX-License-Identifier: Apache-2.0
// StuckServer: a step server on a unix socket that says it serves, answers up to a call of the
// test's choice, and never that one: as a server whose device hangs. It ends its calls when they
// are cancelled, and when it goes.
#ifndef REPRISE_TESTS_TOOLS_STUCK_SERVER_H_
#define REPRISE_TESTS_TOOLS_STUCK_SERVER_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "reprise/v1/step_service.grpc.pb.h"
#include "tests/testing/tiny_model.h"

namespace reprise::tools {

enum class StuckAt { kDescribe, kOpen, kAllocate, kStep, kNothing };

class StuckServer {
 public:
  // Describe says `description`.
  explicit StuckServer(StuckAt at, v1::DescribeResponse description = {})
      : steps_(at, std::move(description)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address(), grpc::InsecureServerCredentials());
    builder.RegisterService(&health_);
    builder.RegisterService(&steps_);
    server_ = builder.BuildAndStart();
  }
  ~StuckServer() {
    steps_.ends = true;
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

  bool started() const { return server_ != nullptr; }
  std::string address() const { return "unix:" + directory_.path() + "/stuck.sock"; }
  // Whether the call that is not answered has come.
  bool AwaitCall() const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!steps_.is_stuck && std::chrono::steady_clock::now() < deadline) Pause();
    return steps_.is_stuck;
  }

 private:
  static void Pause() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

  class Health final : public grpc::health::v1::Health::Service {
    grpc::Status Check(grpc::ServerContext*, const grpc::health::v1::HealthCheckRequest*,
                       grpc::health::v1::HealthCheckResponse* response) override {
      response->set_status(grpc::health::v1::HealthCheckResponse::SERVING);
      return grpc::Status::OK;
    }
  };

  class Steps final : public v1::StepService::Service {
   public:
    Steps(StuckAt at, v1::DescribeResponse description)
        : at_(at), description_(std::move(description)) {}
    std::atomic<bool> is_stuck = false, ends = false;

   private:
    grpc::Status Describe(grpc::ServerContext* context, const v1::DescribeRequest*,
                          v1::DescribeResponse* response) override {
      if (at_ == StuckAt::kDescribe) return Hang(context);
      *response = description_;
      return grpc::Status::OK;
    }
    grpc::Status Allocate(grpc::ServerContext* context, const v1::AllocateRequest* request,
                          v1::AllocateResponse* response) override {
      if (at_ == StuckAt::kAllocate) return Hang(context);
      for (uint32_t block = 1; block <= request->count(); ++block) response->add_blocks(block);
      return grpc::Status::OK;
    }
    grpc::Status StepStream(
        grpc::ServerContext* context,
        grpc::ServerReaderWriter<v1::StepStreamResponse, v1::StepStreamRequest>* stream) override {
      v1::StepStreamRequest request;
      while (stream->Read(&request)) {
        if (at_ == (request.has_open() ? StuckAt::kOpen : StuckAt::kStep)) return Hang(context);
        v1::StepStreamResponse response;
        if (request.has_open()) {
          response.mutable_opened()->set_session("a session");
        } else {
          response.mutable_step()->set_sequence(request.step().sequence());
        }
        stream->Write(response);
      }
      return grpc::Status::OK;
    }
    grpc::Status Hang(grpc::ServerContext* context) {
      is_stuck = true;
      while (!ends && !context->IsCancelled()) Pause();
      return grpc::Status(grpc::StatusCode::CANCELLED, "the test's end");
    }

    const StuckAt at_;
    const v1::DescribeResponse description_;
  };

  testing::TemporaryDirectory directory_;
  Health health_;
  Steps steps_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace reprise::tools

#endif  // REPRISE_TESTS_TOOLS_STUCK_SERVER_H_
