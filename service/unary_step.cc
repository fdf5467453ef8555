// SPDX-License-Identifier: Apache-2.0
#include "service/unary_step.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "grpcpp/support/slice.h"
#include "runtime/status_macros.h"
#include "service/clock.h"
#include "service/out_of_memory.h"
#include "service/status.h"
#include "service/wire/message.h"
#include "service/wire/result_to_wire.h"

namespace reprise::service {
namespace {

absl::Status HashOf(const grpc::ByteBuffer& bytes, uint64_t* hash) {
  grpc::Slice whole;
  if (!bytes.DumpToSingleSlice(&whole).ok())
    return absl::InvalidArgumentError("message: got bytes that cannot be read");
  *hash =
      std::hash<std::string_view>()({reinterpret_cast<const char*>(whole.begin()), whole.size()});
  return absl::OkStatus();
}

// gRPC tells a deadline as a time of the wall clock, which may jump until it is looked at.
std::chrono::steady_clock::time_point SteadyDeadline(const grpc::CallbackServerContext& context) {
  using std::chrono::steady_clock;
  using std::chrono::system_clock;
  constexpr std::chrono::hours kLongest(24 * 365);
  const system_clock::duration left = context.deadline() - system_clock::now();
  return steady_clock::now() + std::min<steady_clock::duration>(left, kLongest);
}

}  // namespace

grpc::ServerUnaryReactor* UnaryStep::Start(const ServiceHost& host, const Account& account,
                                           const grpc::CallbackServerContext& context,
                                           const grpc::ByteBuffer& request,
                                           grpc::ByteBuffer* response) {
  auto* step = new UnaryStep(host, account, context, response);
  const absl::Status handled = CatchOutOfMemory([&] { return step->Handle(account, request); });
  if (!handled.ok()) {
    host.telemetry.NoteStep(step->origin(), *step, handled, nullptr);
    step->End(handled);
  }
  return step;
}

UnaryStep::UnaryStep(const ServiceHost& host, const Account& account,
                     const grpc::CallbackServerContext& context, grpc::ByteBuffer* response)
    : host_(host),
      deadline_(SteadyDeadline(context)),
      response_bytes_(response),
      origin_(OriginOf(context, account.log_name())),
      trace_(origin_.trace) {
  times.received_ns = NowNs();
}

UnaryStep::~UnaryStep() {
  if (admitted_) host_.admission.EndStep(session_->info.id);
}

absl::Status UnaryStep::Handle(const Account& account, const grpc::ByteBuffer& bytes) {
  WireHead head;
  const absl::Status scanned =
      ScanWire(bytes, *v1::StepRequest::descriptor(), host_.max_entries(), &head);
  sent_.sequence = head.sequence;
  REPRISE_RETURN_IF_ERROR(scanned);
  REPRISE_RETURN_IF_ERROR(host_.admission.CheckAdmitting());
  REPRISE_ASSIGN_OR_RETURN(session_, host_.sessions.Find(head.session, account));
  REPRISE_RETURN_IF_ERROR(host_.admission.BeginStep(session_->info.id, host_.max_unanswered()));
  admitted_ = true;
  num_entries_ = head.num_entries;
  REPRISE_RETURN_IF_ERROR(HashOf(bytes, &sent_.fingerprint));
  REPRISE_ASSIGN_OR_RETURN(const UnaryAnswers::Claim claim,
                           session_->answers.Begin(sent_, this, response_bytes_));
  if (claim == UnaryAnswers::Claim::kAnswered) {
    host_.telemetry.NoteRepeated(origin(), absl::OkStatus());
    End(absl::OkStatus());
  }
  if (claim != UnaryAnswers::Claim::kRun) return absl::OkStatus();
  const absl::Status converted = CatchOutOfMemory([&] { return Convert(bytes); });
  if (converted.ok()) {
    host_.pipeline.Enqueue(this, session_->queue);
  } else {
    Finished(converted, nullptr);
  }
  return absl::OkStatus();
}

void UnaryStep::End(const absl::Status& status) {
  answer_charge_ = host_.memory.ChargeAnswer(response_bytes_->Length());
  // A client that has its answer may send the next step at once.
  if (admitted_) host_.admission.AnswerStep(session_->info.id);
  Finish(ToGrpcStatus(status));
}

absl::Status UnaryStep::Convert(const grpc::ByteBuffer& bytes) {
  REPRISE_ASSIGN_OR_RETURN(charge_, host_.memory.ChargeMessage(bytes.Length(), num_entries_));
  REPRISE_RETURN_IF_ERROR(ParseWire(bytes, &message_));
  const TraceId own = TraceId::FromBytes(message_.trace_id());
  if (!own.empty()) trace_ = own;
  REPRISE_RETURN_IF_ERROR(StepFromWire(message_, &scratch_, &request));
  REPRISE_ASSIGN_OR_RETURN(form, host_.profile.FormOf(session_->info.id, message_));
  request.session = session_->info.id;
  request.epoch = session_->info.epoch;
  times.converted_ns = NowNs();
  return absl::OkStatus();
}

absl::Status UnaryStep::CheckWanted() {
  const bool late = std::chrono::steady_clock::now() >= deadline_;
  if (!late && !cancelled_.load(std::memory_order_relaxed)) return absl::OkStatus();
  withdrawn_ = session_->answers.Withdraw(sent_);
  if (!withdrawn_) return absl::OkStatus();
  if (late) {
    return absl::DeadlineExceededError(
        "the call's deadline passed before its step was launched; nothing has changed");
  }
  return absl::CancelledError(
      "the client ended the call before its step was launched; nothing has changed");
}

absl::Status UnaryStep::Serialize(const engine::StepResult& result) {
  v1::StepResponse response;
  SessionRecording* recording = session_->recording.get();
  const absl::Status converted = CatchOutOfMemory([&] {
    ResultToWire(result, times, message_.omit_rows(), &response);
    TraceToWire(trace_, &response);
    return absl::OkStatus();
  });
  if (!converted.ok()) {
    // It ran all the same.
    if (recording != nullptr) recording->Lose(RecordLoss::kOutOfMemory);
    return converted;
  }
  if (recording != nullptr) recording->AddStep(times.submitted_ns, &message_, &response);
  StampsToWire(stamps, &response);
  SetReplyTimes(times, NowNs(), response.mutable_ledger());
  *response_bytes_ = SerializeWire(response);
  return absl::OkStatus();
}

void UnaryStep::Finished(const absl::Status& status, const engine::StepResult* result) {
  const std::lock_guard lock(mutex_);
  absl::Status answered = host_.sessions.WhyEnded(*session_, status);
  if (status.ok()) answered = CatchOutOfMemory([&] { return Serialize(*result); });
  if (answered.ok()) session_->NoteResult(result->report);
  host_.telemetry.NoteStep(origin(), *this, answered, answered.ok() ? result : nullptr);
  // Until then the session is in use.
  session_->last_asked_ns.store(NowNs(), std::memory_order_relaxed);
  if (!withdrawn_) Tell(answered, answered.ok() ? response_bytes_ : nullptr);
  End(answered);
}

StepOrigin UnaryStep::origin() const {
  return {.call = origin_,
          .trace = trace_,
          .session = session_ == nullptr ? 0 : session_->info.id,
          .sequence = sent_.sequence};
}

void UnaryStep::Tell(const absl::Status& status, const grpc::ByteBuffer* answer) {
  for (UnaryWaiter* waiter : session_->answers.Finish(sent_, answer, host_.memory))
    waiter->Answer(status, answer);
}

void UnaryStep::Answer(const absl::Status& status, const grpc::ByteBuffer* answer) {
  const std::lock_guard lock(mutex_);
  host_.telemetry.NoteRepeated(origin(), status);
  if (status.ok()) *response_bytes_ = *answer;
  End(status);
}

}  // namespace reprise::service
