// SPDX-License-Identifier: Apache-2.0
#include "service/step_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/server_context.h"
#include "runtime/status_macros.h"
#include "service/clock.h"
#include "service/out_of_memory.h"
#include "service/status.h"
#include "service/step_exchange.h"
#include "service/wire/message.h"
#include "service/wire/result_to_wire.h"
#include "service/wire/scan.h"
#include "service/wire/step_from_wire.h"

namespace reprise::service {
namespace {

// An exchange whose message or answer took more is not kept for the next one.
constexpr int kMaxKeptBytes = 64 << 10;

// Refuses a call at once.
class RefusedStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit RefusedStream(const absl::Status& status) { Finish(ToGrpcStatus(status)); }
  void OnDone() override { delete this; }
};

const char* NameOf(const v1::StepStreamRequest& message) {
  switch (message.message_case()) {
    case v1::StepStreamRequest::kOpen:
      return "open";
    case v1::StepStreamRequest::kStep:
      return "step";
    case v1::StepStreamRequest::kResume:
      return "resume";
    case v1::StepStreamRequest::MESSAGE_NOT_SET:
      return "nothing";
  }
  return "nothing";
}

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StepStream::Start(
    const ServiceHost& host, Account& account, grpc::CallbackServerContext& context) {
  auto stream = std::make_shared<StepStream>(host, account, context);
  const absl::Status joined = host.admission.Join(stream);
  if (!joined.ok()) return Refuse(joined);
  std::lock_guard lock(stream->mutex_);
  stream->self_ = stream;
  stream->Advance();
  return stream.get();
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StepStream::Refuse(
    const absl::Status& status) {
  return new RefusedStream(status);
}

StepStream::StepStream(const ServiceHost& host, Account& account,
                       grpc::CallbackServerContext& context)
    : host_(host),
      account_(account),
      context_(context),
      origin_(OriginOf(context, account.log_name())) {
  spare_.reserve(host_.max_unanswered());
}

StepStream::~StepStream() = default;

void StepStream::Exchange::Finished(const absl::Status& status, const engine::StepResult* result) {
  // The stream may be freed as soon as its last exchange is answered, so this call holds it.
  const std::shared_ptr<StepStream> holder = std::move(stream);
  SessionRecording* recording = status.ok() ? holder->session_->recording.get() : nullptr;
  const absl::Status written = CatchOutOfMemory([&] {
    if (status.ok()) {
      ResultToWire(*result, times, message.step().omit_rows(), response.mutable_step());
      TraceToWire(trace, response.mutable_step());
      response.mutable_step()->clear_stamps();  // which no recording has
      if (recording != nullptr) {
        recording->AddStep(times.submitted_ns, message.mutable_step(), response.mutable_step());
        recording = nullptr;
      }
      StampsToWire(stamps, response.mutable_step());
    } else {
      ErrorToWire(sequence, status, response.mutable_error());
      TraceToWire(trace, response.mutable_error());
    }
    answer_charge = holder->host_.memory.ChargeAnswer(response.ByteSizeLong());
    return absl::OkStatus();
  });
  // It ran, and there was no memory for what it was answered.
  if (recording != nullptr) recording->Lose(RecordLoss::kOutOfMemory);
  if (status.ok()) holder->session_->NoteResult(result->report);
  holder->host_.telemetry.NoteStep({.call = holder->origin_,
                                    .trace = trace,
                                    .session = holder->session_->info.id,
                                    .sequence = sequence},
                                   *this, status, result);
  holder->Answered(this, written);
}

// ---- messages ----

void StepStream::OnReadDone(bool ok) {
  const uint64_t received_ns = NowNs();
  {
    std::lock_guard lock(mutex_);
    if (!ok) ending_ = true;  // the client has sent all it will send
    if (ending_) {
      reading_ = false;
      return Advance();
    }
  }
  const absl::Status handled = CatchOutOfMemory([&] {
    HandleMessage(received_ns);
    return absl::OkStatus();
  });
  // Only now: an answer on another thread would start the next read, into bytes that are still
  // being parsed, and out of order.
  std::lock_guard lock(mutex_);
  reading_ = false;
  if (!handled.ok()) Break(handled);
  Advance();
}

void StepStream::HandleMessage(uint64_t received_ns) {
  std::unique_ptr<Exchange> exchange;
  bool opened = false;
  {
    std::lock_guard lock(mutex_);
    exchange = TakeSpare();
    opened = opened_;
    if (opened) session_->last_asked_ns.store(received_ns, std::memory_order_relaxed);
  }
  exchange->times = {.received_ns = received_ns};
  exchange->trace = origin_.trace;
  absl::Status parsed = CatchOutOfMemory([&] { return Parse(*exchange); });
  if (opened) {
    HandleStep(std::move(exchange), std::move(parsed));
  } else {
    HandleFirst(std::move(exchange), std::move(parsed));
  }
}

absl::Status StepStream::Parse(Exchange& exchange) {
  WireHead head;
  const absl::Status scanned =
      ScanWire(read_bytes_, *v1::StepStreamRequest::descriptor(), host_.max_entries(), &head);
  exchange.sequence = head.sequence;
  REPRISE_RETURN_IF_ERROR(scanned);
  REPRISE_ASSIGN_OR_RETURN(exchange.charge,
                           host_.memory.ChargeMessage(read_bytes_.Length(), head.num_entries));
  exchange.has_entries = head.num_entries > 0;
  return ParseWireAgain(read_bytes_, &exchange.message);
}

std::unique_ptr<StepStream::Exchange> StepStream::TakeSpare() {
  if (spare_.empty()) return std::make_unique<Exchange>();
  std::unique_ptr<Exchange> exchange = std::move(spare_.back());
  spare_.pop_back();
  return exchange;
}

void StepStream::HandleStep(std::unique_ptr<Exchange> exchange, absl::Status parsed) {
  absl::Status ready =
      parsed.ok() ? CatchOutOfMemory([&] { return Convert(*exchange); }) : std::move(parsed);
  exchange->times.converted_ns = NowNs();
  Exchange* job = exchange.get();
  {
    std::lock_guard lock(mutex_);
    if (broken_) return;
    if (ending_) ready = end_;  // drained while this message was read
    job->stream = shared_from_this();
    exchanges_.push_back(std::move(exchange));
    ++num_unanswered_;
    charged_bytes_ += job->charge.bytes();
  }
  if (ready.ok()) {
    host_.pipeline.Enqueue(job, session_->queue);
  } else {
    job->Finished(ready, nullptr);
  }
}

absl::Status StepStream::Convert(Exchange& exchange) const {
  const v1::StepStreamRequest& message = exchange.message;
  if (!message.has_step()) {
    return absl::FailedPreconditionError(
        absl::StrCat("message of an open StepStream: got ", NameOf(message), ", allowed step"));
  }
  const TraceId own = TraceId::FromBytes(message.step().trace_id());
  if (!own.empty()) exchange.trace = own;
  if (!message.step().session().empty() && !session_->token.Is(message.step().session())) {
    return absl::PermissionDeniedError(
        "session: got a token of another session or of none, allowed none or the stream's own");
  }
  REPRISE_RETURN_IF_ERROR(StepFromWire(message.step(), &exchange.scratch, &exchange.request));
  exchange.stamps = nullptr;
  REPRISE_ASSIGN_OR_RETURN(exchange.form, host_.profile.FormOf(session_->info.id, message.step()));
  exchange.request.session = session_->info.id;
  exchange.request.epoch = session_->info.epoch;
  return absl::OkStatus();
}

// ---- answers ----

void StepStream::Answered(Exchange* exchange, const absl::Status& written) {
  std::lock_guard lock(mutex_);
  exchange->answered = true;
  exchange->is_lost = !written.ok();
  --num_unanswered_;
  charged_bytes_ += exchange->answer_charge.bytes();
  if (!written.ok()) Break(written);
  Advance();
}

void StepStream::Break(const absl::Status& status) {
  broken_ = is_lost_ = true;
  ending_ = true;
  if (end_.ok()) end_ = status;
}

void StepStream::Advance() {
  if (!finished_ && !writing_ && !broken_ && !exchanges_.empty() && exchanges_.front()->answered)
    WriteFront();
  ReleaseIfLost();
  if (finished_) return;
  if (!writing_ && broken_) {
    while (!exchanges_.empty() && exchanges_.front()->answered) PopFront();
  }
  if (!reading_ && !ending_ && !waits_ && exchanges_.size() < host_.max_unanswered() &&
      charged_bytes_ < host_.memory.bytes_per_stream()) {
    reading_ = true;
    read_bytes_.Clear();
    StartRead(&read_bytes_);
  }
  if (ending_ && !writing_ && !cancelling_ && exchanges_.empty() && !AwaitsUnarySteps()) {
    finished_ = true;
    const grpc::Status status = ToGrpcStatus(end_);
    // Whoever sees the end of the stream finds its blocks free. A stream that is lost looks like
    // one that was closed until its call is over, which matters where its session may outlive it.
    if (has_session_ && (!end_.ok() || session_->grace_ns == 0)) ReleaseSession(false);
    Finish(status);
  }
}

void StepStream::PopFront() {
  std::unique_ptr<Exchange> exchange = std::move(exchanges_.front());
  exchanges_.pop_front();
  const uint64_t bytes = exchange->charge.bytes();
  charged_bytes_ -= bytes + exchange->answer_charge.bytes();
  if (bytes > uint64_t{kMaxKeptBytes} || exchange->response.GetCachedSize() > kMaxKeptBytes) return;
  // Entries would keep the largest that each of them has ever been.
  if (exchange->has_entries) exchange->message.Clear();
  exchange->charge = {};
  exchange->answer_charge = {};
  exchange->sequence = 0;
  exchange->answered = exchange->encoded = exchange->is_lost = false;
  exchange->bytes = grpc::Slice();
  spare_.push_back(std::move(exchange));
}

void StepStream::WriteFront() {
  Exchange& exchange = *exchanges_.front();
  const absl::Status encoded = CatchOutOfMemory([&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(Encode(exchange));
    write_bytes_ = grpc::ByteBuffer(&exchange.bytes, 1);
    return absl::OkStatus();
  });
  if (!encoded.ok()) return Break(encoded);
  writing_ = true;
  write_started_ns_ = NowNs();
  StartWrite(&write_bytes_);
}

absl::Status StepStream::Encode(Exchange& exchange) {
  if (exchange.encoded) return absl::OkStatus();
  return CatchOutOfMemory([&] {
    const bool is_step = exchange.response.has_step();
    if (is_step)
      SetReplyTimes(exchange.times, NowNs(), exchange.response.mutable_step()->mutable_ledger());
    exchange.bytes = SerializeToSlice(exchange.response);
    exchange.encoded = true;
    if (is_step && has_session_ && session_->grace_ns != 0)
      session_->kept.Add(exchange.sequence, exchange.bytes, host_.memory);
    return absl::OkStatus();
  });
}

void StepStream::OnWriteDone(bool ok) {
  std::lock_guard lock(mutex_);
  writing_ = false;
  write_bytes_.Clear();
  PopFront();
  if (!ok) {  // OnCancel follows, and withdraws what is queued
    broken_ = is_lost_ = true;
    ending_ = true;
  }
  Advance();
}

}  // namespace reprise::service
