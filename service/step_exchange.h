// SPDX-License-Identifier: Apache-2.0
// StepStream::Exchange: a message of a stream's client and its answer. For the sources of
// StepStream alone.
#ifndef REPRISE_SERVICE_STEP_EXCHANGE_H_
#define REPRISE_SERVICE_STEP_EXCHANGE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "engine/step_result.h"
#include "grpcpp/support/slice.h"
#include "reprise/v1/step_service.pb.h"
#include "service/memory_budget.h"
#include "service/step_queue.h"
#include "service/step_stream.h"
#include "service/trace_id.h"
#include "service/wire/step_from_wire.h"

namespace reprise::service {

struct StepStream::Exchange final : public StepJob {
  void Finished(const absl::Status& status, const engine::StepResult* result) override;

  std::shared_ptr<StepStream> stream;  // set while the pipeline has this job
  uint64_t sequence = 0;               // of the step; 0 where the message is none
  TraceId trace;                       // the step's own, or the call's
  MemoryBudget::Charge charge;         // of the message
  MemoryBudget::Charge answer_charge;  // once there is an answer
  v1::StepStreamRequest message;
  bool has_entries = false;  // the message has some of repeated fields of messages
  StepScratch scratch;
  v1::StepStreamResponse response;
  // Guarded by the stream's mutex.
  bool answered = false;
  bool is_lost = false;  // there was no memory for the answer
  bool encoded = false;
  grpc::Slice bytes;  // of the answer, once it is encoded
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_STEP_EXCHANGE_H_
