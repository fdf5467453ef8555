// SPDX-License-Identifier: Apache-2.0
// StepService: the handlers of reprise.v1.StepService over one DecodeEngine. It serves raw bytes,
// so that a message that does not parse gets a typed error of ours. It exists before the engine
// does: until Attach every call answers UNAVAILABLE ("loading").
#ifndef REPRISE_SERVICE_STEP_SERVICE_H_
#define REPRISE_SERVICE_STEP_SERVICE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engine/decode_engine.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "reprise/v1/step_service.grpc.pb.h"
#include "service/admission.h"
#include "service/memory_budget.h"
#include "service/session_registry.h"

namespace reprise::service {

// What clients may take of the server; see ServerOptions.
struct ServiceLimits {
  uint64_t max_message_bytes = 0;
  uint64_t max_waiting_bytes = 0;
  uint32_t max_sessions = 0;
  engine::SessionLimits session = {};  // of each
  uint64_t idle_timeout_ms = 0;        // 0: none
  bool allow_attention_trees = false;
};

using RawStepService = v1::StepService::WithRawCallbackMethod_Describe<
    v1::StepService::WithRawCallbackMethod_Step<v1::StepService::WithRawCallbackMethod_StepStream<
        v1::StepService::WithRawCallbackMethod_Allocate<v1::StepService::WithRawCallbackMethod_Free<
            v1::StepService::WithRawCallbackMethod_SetAttentionTree<v1::StepService::Service>>>>>>;

class StepService final : public RawStepService {
 public:
  explicit StepService(const ServiceLimits& limits);
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
  grpc::ServerUnaryReactor* SetAttentionTree(grpc::CallbackServerContext* context,
                                             const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* response) override;

 private:
  struct Attached;

  // nullptr while loading.
  Attached* attached() const { return attached_.load(std::memory_order_acquire); }
  absl::Status Describe(const v1::DescribeRequest& request, v1::DescribeResponse* response);
  absl::Status Allocate(const v1::AllocateRequest& request, v1::AllocateResponse* response);
  absl::Status SetAttentionTree(const v1::SetAttentionTreeRequest& request,
                                v1::SetAttentionTreeResponse* response);
  absl::Status Free(const v1::FreeRequest& request, v1::FreeResponse* response);
  // Scans, parses, calls `handle`, serialises, finishes.
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Unary(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request, grpc::ByteBuffer* response,
                                  absl::Status (StepService::*handle)(const Request&, Response*));

  // Ends idle streams until the service goes.
  void WatchIdle(std::chrono::milliseconds timeout);

  const uint64_t max_message_bytes_;
  const bool allow_attention_trees_;
  Admission admission_;
  SessionRegistry sessions_;
  MemoryBudget memory_;
  std::unique_ptr<Attached> owned_;  // written once, published by attached_
  std::atomic<Attached*> attached_ = nullptr;

  std::mutex mutex_;
  std::condition_variable stopping_changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread idle_watcher_;  // where there is a timeout
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_STEP_SERVICE_H_
