// SPDX-License-Identifier: Apache-2.0
#include "service/step_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "service/clock.h"
#include "service/status.h"
#include "service/wire/message.h"
#include "service/wire/result_to_wire.h"
#include "service/wire/step_from_wire.h"

namespace reprise::service {
namespace {

constexpr size_t kMaxClientBytes = 256;

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
    if (status.ok()) {
      ResultToWire(*result, times, message.step().omit_rows(), response.mutable_step());
    } else {
      ErrorToWire(message.step().sequence(), status, response.mutable_error());
    }
    holder->Answered(this);
  }

  std::shared_ptr<StepStream> stream;  // set while the pipeline has this job
  v1::StepStreamRequest message;
  StepScratch scratch;
  v1::StepStreamResponse response;
  bool answered = false;  // guarded by the stream's mutex
};

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* StepStream::Start(
    const StreamHost& host) {
  auto stream = std::make_shared<StepStream>(host);
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

// Twice the depth: as many steps in flight as the engine takes, and as many behind them to follow
// without a round trip.
StepStream::StepStream(const StreamHost& host)
    : host_(host), max_unanswered_(2 * host.engine.info().limits.pipeline_depth) {}

StepStream::~StepStream() = default;

void StepStream::OnReadDone(bool ok) {
  const uint64_t received_ns = NowNs();
  std::unique_ptr<Exchange> exchange;
  bool opened = false;
  {
    std::lock_guard lock(mutex_);
    if (!ok) ending_ = true;  // the client has sent all it will send
    if (ending_) {
      reading_ = false;
      return Advance();
    }
    exchange = TakeSpare();
    opened = opened_;
  }
  exchange->times.received_ns = received_ns;
  absl::Status parsed = ParseWire(read_bytes_, &exchange->message);
  if (opened) {
    HandleStep(std::move(exchange), std::move(parsed));
  } else {
    HandleOpen(std::move(exchange), std::move(parsed));
  }
  // Only now: an answer on another thread would start the next read, into bytes that are still
  // being parsed, and out of order.
  std::lock_guard lock(mutex_);
  reading_ = false;
  Advance();
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
  v1::Opened* opened = exchange->response.mutable_opened();
  opened->set_session(session_.id);
  opened->set_epoch(session_.epoch);
  exchange->answered = true;
  exchanges_.push_back(std::move(exchange));
}

absl::Status StepStream::OpenSession(const v1::StepStreamRequest& message) {
  REPRISE_RETURN_IF_ERROR(RefuseUnknownFields(message));
  if (!message.has_open()) {
    return absl::FailedPreconditionError(
        absl::StrCat("first message of a StepStream: got ", NameOf(message), ", allowed open"));
  }
  REPRISE_RETURN_IF_ERROR(RefuseUnknownFields(message.open()));
  if (message.open().client().size() > kMaxClientBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "open.client: got ", message.open().client().size(), " bytes, allowed ", kMaxClientBytes));
  }
  session_ = host_.engine.OpenSession();
  return absl::OkStatus();
}

void StepStream::HandleStep(std::unique_ptr<Exchange> exchange, absl::Status parsed) {
  // A message that does not parse may leave half a step behind; its sequence number means nothing.
  if (!parsed.ok()) exchange->message.Clear();
  absl::Status ready = parsed.ok() ? Convert(*exchange) : std::move(parsed);
  exchange->times.converted_ns = NowNs();
  Exchange* job = exchange.get();
  {
    std::lock_guard lock(mutex_);
    if (broken_) return;
    if (ending_) ready = end_;  // drained while this message was read
    job->stream = shared_from_this();
    exchanges_.push_back(std::move(exchange));
  }
  if (ready.ok()) {
    host_.pipeline.Enqueue(job);
  } else {
    job->Finished(ready, nullptr);
  }
}

absl::Status StepStream::Convert(Exchange& exchange) const {
  const v1::StepStreamRequest& message = exchange.message;
  REPRISE_RETURN_IF_ERROR(RefuseUnknownFields(message));
  if (!message.has_step()) {
    return absl::FailedPreconditionError(
        absl::StrCat("message of an open StepStream: got ", NameOf(message), ", allowed step"));
  }
  REPRISE_RETURN_IF_ERROR(StepFromWire(message.step(), &exchange.scratch, &exchange.request));
  if (exchange.request.session == 0) exchange.request.session = session_.id;
  if (exchange.request.session != session_.id) {
    return absl::PermissionDeniedError(absl::StrCat("session: got ", exchange.request.session,
                                                    ", allowed 0 or ", session_.id,
                                                    ", the stream's own"));
  }
  return absl::OkStatus();
}

void StepStream::Answered(Exchange* exchange) {
  std::lock_guard lock(mutex_);
  exchange->answered = true;
  Advance();
}

void StepStream::Advance() {
  if (finished_) return;
  if (!writing_ && broken_) {
    while (!exchanges_.empty() && exchanges_.front()->answered) PopFront();
  }
  if (!writing_ && !exchanges_.empty() && exchanges_.front()->answered) WriteFront();
  if (!reading_ && !ending_ && exchanges_.size() < max_unanswered_) {
    reading_ = true;
    read_bytes_.Clear();
    StartRead(&read_bytes_);
  }
  if (ending_ && !writing_ && exchanges_.empty()) {
    finished_ = true;
    Finish(ToGrpcStatus(end_));
  }
}

void StepStream::PopFront() {
  std::unique_ptr<Exchange> exchange = std::move(exchanges_.front());
  exchanges_.pop_front();
  exchange->answered = false;
  spare_.push_back(std::move(exchange));
}

void StepStream::WriteFront() {
  Exchange& exchange = *exchanges_.front();
  if (exchange.response.has_step()) {
    SetReplyTimes(exchange.times, NowNs(), exchange.response.mutable_step()->mutable_ledger());
  }
  writing_ = true;
  write_bytes_ = SerializeWire(exchange.response);
  StartWrite(&write_bytes_);
}

void StepStream::OnWriteDone(bool ok) {
  std::lock_guard lock(mutex_);
  writing_ = false;
  PopFront();
  if (!ok) {  // OnCancel follows, and withdraws what is queued
    broken_ = true;
    ending_ = true;
  }
  Advance();
}

void StepStream::OnCancel() {
  bool opened = false;
  {
    std::lock_guard lock(mutex_);
    broken_ = true;
    ending_ = true;
    if (end_.ok()) end_ = absl::CancelledError("the client ended the call");
    opened = opened_;
  }
  if (opened) host_.pipeline.Withdraw(session_.id);
  std::lock_guard lock(mutex_);
  Advance();
}

void StepStream::Drain() {
  std::lock_guard lock(mutex_);
  if (!ending_) end_ = absl::UnavailableError("draining: the server is stopping");
  ending_ = true;
  Advance();
}

void StepStream::OnDone() {
  std::shared_ptr<StepStream> self;
  bool opened = false;
  {
    std::lock_guard lock(mutex_);
    self = std::move(self_);
    opened = opened_;
  }
  if (opened) host_.pipeline.CloseSession(session_.id);
  host_.admission.Leave(this);
}

}  // namespace reprise::service
