// SPDX-License-Identifier: Apache-2.0
// UnaryStep: one call of the unary Step: looks at the message, finds its session, waits its turn in
// the pipeline, answers. A repetition of the session's last request, or of one that is on its way,
// is given that request's answer. Threads: gRPC calls the reactions, the pipeline answers. Frees
// itself when the call is over.
#ifndef REPRISE_SERVICE_UNARY_STEP_H_
#define REPRISE_SERVICE_UNARY_STEP_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "reprise/v1/step_service.pb.h"
#include "service/call_origin.h"
#include "service/service_host.h"
#include "service/session_registry.h"
#include "service/step_queue.h"
#include "service/unary_answers.h"
#include "service/wire/scan.h"
#include "service/wire/step_from_wire.h"

namespace reprise::service {

class UnaryStep final : public grpc::ServerUnaryReactor, public StepJob, public UnaryWaiter {
 public:
  // The reactor of a new call, of `account`. `request` and `response` live until it is over.
  static grpc::ServerUnaryReactor* Start(const ServiceHost& host, const Account& account,
                                         const grpc::CallbackServerContext& context,
                                         const grpc::ByteBuffer& request,
                                         grpc::ByteBuffer* response);
  ~UnaryStep() override;

  // Locks, so that OnDone comes after it for tools too, which cannot see gRPC's own order.
  void OnCancel() override {
    const std::lock_guard lock(mutex_);
    cancelled_.store(true, std::memory_order_relaxed);
  }
  // After the threads that ended or cancelled the call have released their lock.
  void OnDone() override {
    { const std::lock_guard lock(mutex_); }
    delete this;
  }

  // Of the step that this call has put into the pipeline.
  void Finished(const absl::Status& status, const engine::StepResult* result) override;
  absl::Status CheckWanted() override;
  // Of a step that another call has.
  void Answer(const absl::Status& status, const grpc::ByteBuffer* answer) override;

 private:
  UnaryStep(const ServiceHost& host, const Account& account,
            const grpc::CallbackServerContext& context, grpc::ByteBuffer* response);

  // Errors end the call.
  absl::Status Handle(const Account& account, const grpc::ByteBuffer& bytes);
  // Errors leave the step unqueued.
  absl::Status Convert(const grpc::ByteBuffer& bytes);
  // Ends the call, once.
  void End(const absl::Status& status);
  absl::Status Serialize(const engine::StepResult& result);
  StepOrigin origin() const;
  // Ends the step in the session's UnaryAnswers; `answer` is nullptr where it was refused.
  void Tell(const absl::Status& status, const grpc::ByteBuffer* answer);

  const ServiceHost host_;
  const std::chrono::steady_clock::time_point deadline_;
  grpc::ByteBuffer* const response_bytes_;
  const CallOrigin origin_;
  TraceId trace_;  // the step's own, or the call's
  std::atomic<bool> cancelled_ = false;
  std::mutex mutex_;  // held while the call is ended
  std::shared_ptr<ServedSession> session_;
  bool admitted_ = false;
  bool withdrawn_ = false;  // nobody waited for it any more: it was not launched
  uint32_t num_entries_ = 0;
  UnaryRequest sent_;
  MemoryBudget::Charge charge_, answer_charge_;  // until the answer is taken
  v1::StepRequest message_;
  StepScratch scratch_;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_UNARY_STEP_H_
