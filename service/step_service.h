// SPDX-License-Identifier: Apache-2.0
// StepService: the handlers of reprise.v1.StepService over one DecodeEngine. It serves raw bytes,
// so that a message that does not parse gets a typed error of ours. It exists before the engine
// does: until Attach every call answers UNAVAILABLE ("loading").
#ifndef REPRISE_SERVICE_STEP_SERVICE_H_
#define REPRISE_SERVICE_STEP_SERVICE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "engine/decode_engine.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "reprise/v1/step_service.grpc.pb.h"
#include "service/admission.h"
#include "service/step_pipeline.h"

namespace reprise::service {

using RawStepService = v1::StepService::WithRawCallbackMethod_Describe<
    v1::StepService::WithRawCallbackMethod_Step<v1::StepService::WithRawCallbackMethod_StepStream<
        v1::StepService::WithRawCallbackMethod_Allocate<
            v1::StepService::WithRawCallbackMethod_Free<v1::StepService::Service>>>>>;

class StepService final : public RawStepService {
 public:
  // `max_message_bytes` is what Describe says.
  explicit StepService(uint64_t max_message_bytes);
  // After the gRPC server has shut down.
  ~StepService() override;

  // Serves `engine`, which must outlive this service. Once only. `on_fault`: see StepPipeline.
  void Attach(engine::DecodeEngine& engine, std::function<void()> on_fault);
  // Attached, not draining, and the device works.
  bool IsServing() const;

  // No new streams and steps; streams end when their steps are answered.
  void Drain();
  // False when streams or unary steps were left at the deadline.
  bool WaitIdle(std::chrono::steady_clock::time_point deadline);

  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Step(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StepStream(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Allocate(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Free(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;

 private:
  class UnaryStep;
  struct Attached;

  // nullptr while loading.
  Attached* attached() const { return attached_.load(std::memory_order_acquire); }
  absl::Status Describe(const v1::DescribeRequest& request, v1::DescribeResponse* response);
  absl::Status Allocate(const v1::AllocateRequest& request, v1::AllocateResponse* response);
  absl::Status Free(const v1::FreeRequest& request, v1::FreeResponse* response);
  // Parses, calls `handle`, serialises, finishes.
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Unary(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                  absl::Status (StepService::*handle)(const Request&, Response*));

  const uint64_t max_message_bytes_;
  Admission admission_;
  std::unique_ptr<Attached> owned_;  // written once, published by attached_
  std::atomic<Attached*> attached_ = nullptr;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_STEP_SERVICE_H_
