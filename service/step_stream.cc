// SPDX-License-Identifier: Apache-2.0
#include "service/step_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/server_context.h"
#include "runtime/status_macros.h"
#include "service/clock.h"
#include "service/out_of_memory.h"
#include "service/status.h"
#include "service/wire/message.h"
#include "service/wire/result_to_wire.h"
#include "service/wire/scan.h"
#include "service/wire/step_from_wire.h"

namespace reprise::service {
namespace {

constexpr size_t kMaxClientBytes = 256;

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
    case v1::StepStreamRequest::MESSAGE_NOT_SET:
      return "nothing";
  }
  return "nothing";
}

}  // namespace

struct StepStream::Exchange final : public StepJob {
  void Finished(const absl::Status& status, const engine::StepResult* result) override {
    // The stream may be freed as soon as its last exchange is answered, so this call holds it.
    const std::shared_ptr<StepStream> holder = std::move(stream);
    const absl::Status written = CatchOutOfMemory([&] {
      if (status.ok()) {
        ResultToWire(*result, times, message.step().omit_rows(), response.mutable_step());
      } else {
        ErrorToWire(sequence, status, response.mutable_error());
      }
      answer_charge = holder->host_.memory.ChargeAnswer(response.ByteSizeLong());
      return absl::OkStatus();
    });
    holder->Answered(this, written);
  }

  std::shared_ptr<StepStream> stream;  // set while the pipeline has this job
  uint64_t sequence = 0;               // of the step; 0 where the message is none
  MemoryBudget::Charge charge;         // of the message
  MemoryBudget::Charge answer_charge;  // once there is an answer
  v1::StepStreamRequest message;
  StepScratch scratch;
  v1::StepStreamResponse response;
  bool answered = false;  // guarded by the stream's mutex
};

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StepStream::Start(
    const ServiceHost& host, grpc::CallbackServerContext& context) {
  auto stream = std::make_shared<StepStream>(host, context);
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

StepStream::StepStream(const ServiceHost& host, grpc::CallbackServerContext& context)
    : host_(host), context_(context) {
  spare_.reserve(host_.max_unanswered());
}

StepStream::~StepStream() = default;

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
  exchange->times.received_ns = received_ns;
  absl::Status parsed = CatchOutOfMemory([&] { return Parse(*exchange); });
  if (opened) {
    HandleStep(std::move(exchange), std::move(parsed));
  } else {
    HandleOpen(std::move(exchange), std::move(parsed));
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
  return ParseWire(read_bytes_, &exchange.message);
}

std::unique_ptr<StepStream::Exchange> StepStream::TakeSpare() {
  if (spare_.empty()) return std::make_unique<Exchange>();
  std::unique_ptr<Exchange> exchange = std::move(spare_.back());
  spare_.pop_back();
  return exchange;
}

void StepStream::HandleOpen(std::unique_ptr<Exchange> exchange, absl::Status parsed) {
  if (parsed.ok()) parsed = OpenSession(exchange->message);
  std::lock_guard lock(mutex_);
  if (!parsed.ok()) {
    ending_ = true;
    end_ = std::move(parsed);
    return;
  }
  opened_ = true;
  exchange->response.mutable_opened()->set_session(session_->token.bytes().data(),
                                                   session_->token.bytes().size());
  exchange->answered = true;
  exchanges_.push_back(std::move(exchange));
  charged_bytes_ += exchanges_.back()->charge.bytes();
}

absl::Status StepStream::OpenSession(const v1::StepStreamRequest& message) {
  if (!message.has_open()) {
    return absl::FailedPreconditionError(
        absl::StrCat("first message of a StepStream: got ", NameOf(message), ", allowed open"));
  }
  if (message.open().client().size() > kMaxClientBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "open.client: got ", message.open().client().size(), " bytes, allowed ", kMaxClientBytes));
  }
  REPRISE_ASSIGN_OR_RETURN(session_, host_.sessions.Open(host_.engine));
  return absl::OkStatus();
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
  if (!message.step().session().empty() && !session_->token.Is(message.step().session())) {
    return absl::PermissionDeniedError(
        "session: got a token of another session or of none, allowed none or the stream's own");
  }
  REPRISE_RETURN_IF_ERROR(StepFromWire(message.step(), &exchange.scratch, &exchange.request));
  exchange.request.session = session_->info.id;
  exchange.request.epoch = session_->info.epoch;
  return absl::OkStatus();
}

// ---- answers ----

void StepStream::Answered(Exchange* exchange, const absl::Status& written) {
  std::lock_guard lock(mutex_);
  exchange->answered = true;
  charged_bytes_ += exchange->answer_charge.bytes();
  if (!written.ok()) Break(written);
  Advance();
}

void StepStream::Break(const absl::Status& status) {
  broken_ = true;
  ending_ = true;
  if (end_.ok()) end_ = status;
}

void StepStream::Advance() {
  if (finished_) return;
  if (!writing_ && !broken_ && !exchanges_.empty() && exchanges_.front()->answered) WriteFront();
  if (!writing_ && broken_) {
    while (!exchanges_.empty() && exchanges_.front()->answered) PopFront();
  }
  if (!reading_ && !ending_ && exchanges_.size() < host_.max_unanswered() &&
      charged_bytes_ < host_.memory.bytes_per_stream()) {
    reading_ = true;
    read_bytes_.Clear();
    StartRead(&read_bytes_);
  }
  if (ending_ && !writing_ && !cancelling_ && exchanges_.empty()) {
    finished_ = true;
    const grpc::Status status = ToGrpcStatus(end_);
    // Whoever sees the end of the stream finds its blocks free.
    CloseSession();
    Finish(status);
  }
}

void StepStream::CloseSession() {
  if (!opened_ || closed_) return;
  closed_ = true;
  host_.sessions.Forget(*session_);
  host_.pipeline.CloseSession(session_->info.id, session_->queue);
}

void StepStream::PopFront() {
  std::unique_ptr<Exchange> exchange = std::move(exchanges_.front());
  exchanges_.pop_front();
  const uint64_t bytes = exchange->charge.bytes();
  charged_bytes_ -= bytes + exchange->answer_charge.bytes();
  if (bytes > uint64_t{kMaxKeptBytes} || exchange->response.GetCachedSize() > kMaxKeptBytes) return;
  exchange->charge = {};
  exchange->answer_charge = {};
  exchange->sequence = 0;
  exchange->answered = false;
  spare_.push_back(std::move(exchange));
}

void StepStream::WriteFront() {
  Exchange& exchange = *exchanges_.front();
  const absl::Status serialized = CatchOutOfMemory([&] {
    if (exchange.response.has_step()) {
      SetReplyTimes(exchange.times, NowNs(), exchange.response.mutable_step()->mutable_ledger());
    }
    write_bytes_ = SerializeWire(exchange.response);
    return absl::OkStatus();
  });
  if (!serialized.ok()) return Break(serialized);
  writing_ = true;
  write_started_ns_ = NowNs();
  StartWrite(&write_bytes_);
}

void StepStream::OnWriteDone(bool ok) {
  std::lock_guard lock(mutex_);
  writing_ = false;
  write_bytes_.Clear();
  PopFront();
  if (!ok) {  // OnCancel follows, and withdraws what is queued
    broken_ = true;
    ending_ = true;
  }
  Advance();
}

// ---- the end ----

void StepStream::OnCancel() {
  bool opened = false;
  {
    std::lock_guard lock(mutex_);
    Break(absl::CancelledError("the client ended the call"));
    opened = opened_;
  }
  if (opened) host_.pipeline.Withdraw(session_->queue);
  std::lock_guard lock(mutex_);
  Advance();
}

void StepStream::Drain() {
  std::lock_guard lock(mutex_);
  if (!ending_) end_ = absl::UnavailableError("draining: the server is stopping");
  ending_ = true;
  Advance();
}

void StepStream::EndIfIdle(uint64_t since_ns) {
  {
    std::lock_guard lock(mutex_);
    if (!writing_ || write_started_ns_ >= since_ns) return EndIfNothingWasAsked(since_ns);
    // Nothing can be written behind that answer, not even why the call ends.
    Break(absl::CancelledError("the client takes no answers"));
    cancelling_ = true;
  }
  // Not with the lock held: this may run the call's reactions.
  context_.TryCancel();
  std::lock_guard lock(mutex_);
  cancelling_ = false;
  Advance();
}

void StepStream::EndIfNothingWasAsked(uint64_t since_ns) {
  const uint64_t asked_ns =
      opened_ ? session_->last_asked_ns.load(std::memory_order_relaxed) : started_ns_;
  if (ending_ || !exchanges_.empty() || asked_ns > since_ns) return;
  if (opened_ && session_->answers.IsBusy()) return;
  ending_ = true;
  end_ = absl::AbortedError("the session was idle for longer than this server allows");
  Advance();
}

void StepStream::OnDone() {
  std::shared_ptr<StepStream> self;
  {
    // Waits for whoever ended the call to let go of the stream.
    std::lock_guard lock(mutex_);
    self = std::move(self_);
    CloseSession();
  }
  host_.admission.Leave(this);
}

}  // namespace reprise::service
