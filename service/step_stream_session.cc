// SPDX-License-Identifier: Apache-2.0
// The part of StepStream that is about its session: how it comes to one, by `open` or `resume`, and
// how it lets go of it, when the call ends or another stream takes over.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpcpp/server_context.h"
#include "runtime/status_macros.h"
#include "service/clock.h"
#include "service/end_session.h"
#include "service/out_of_memory.h"
#include "service/step_exchange.h"
#include "service/step_stream.h"

namespace reprise::service {
namespace {

constexpr size_t kMaxClientBytes = 256;
constexpr uint64_t kNsPerMs = 1'000'000;

absl::Status TakenOver() {
  return absl::AbortedError("the session has gone to another stream, which resumed it");
}

}  // namespace

// ---- the first message ----

void StepStream::HandleFirst(std::unique_ptr<Exchange> exchange, absl::Status parsed) {
  if (parsed.ok() && exchange->message.has_resume()) {
    parsed = CatchOutOfMemory([&] { return AskForSession(exchange->message.resume()); });
    if (parsed.ok()) return;
  } else if (parsed.ok()) {
    parsed = OpenSession(exchange->message);
  }
  std::lock_guard lock(mutex_);
  if (!parsed.ok()) {
    ending_ = true;
    if (end_.ok()) end_ = std::move(parsed);
    return;
  }
  opened_ = has_session_ = true;
  v1::Opened* opened = exchange->response.mutable_opened();
  opened->set_session(session_->token.bytes().data(), session_->token.bytes().size());
  opened->set_resume_grace_ms(session_->grace_ns / kNsPerMs);
  opened->set_max_kept_answers(static_cast<uint32_t>(session_->kept.max_answers()));
  exchange->answered = true;
  exchanges_.push_back(std::move(exchange));
  charged_bytes_ += exchanges_.back()->charge.bytes();
}

absl::Status StepStream::OpenSession(const v1::StepStreamRequest& message) {
  if (!message.has_open()) {
    return absl::FailedPreconditionError(absl::StrCat("first message of a StepStream: got ",
                                                      message.has_step() ? "step" : "nothing",
                                                      ", allowed open or resume"));
  }
  const v1::Open& open = message.open();
  if (open.client().size() > kMaxClientBytes) {
    return absl::InvalidArgumentError(absl::StrCat("open.client: got ", open.client().size(),
                                                   " bytes, allowed ", kMaxClientBytes));
  }
  auto opened = host_.sessions.Open(
      host_.engine, account_,
      {.client = open.client(),
       .grace_ns = std::min(open.resume_grace_ms(), host_.max_resume_grace_ms) * kNsPerMs,
       .max_kept_bytes = host_.max_kept_bytes(),
       .origin = origin_,
       .stream = shared_from_this()});
  if (!opened.ok()) {
    host_.telemetry.NoteSessionRefused();
    return opened.status();
  }
  session_ = *std::move(opened);
  if (host_.recorder != nullptr)
    session_->recording.Set(host_.recorder->Begin(host_.engine, session_->info.id, open.client()));
  host_.telemetry.NoteSessionOpened(origin_, session_->info.id, open.client());
  return absl::OkStatus();
}

absl::Status StepStream::AskForSession(const v1::Resume& message) {
  REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<ServedSession> session,
                           host_.sessions.Find(message.session(), account_));
  const absl::StatusOr<engine::SessionUse> found = host_.engine.session_use(session->info.id);
  if (!found.ok()) return host_.sessions.WhyEnded(*session, found.status());
  const engine::SessionUse& use = *found;
  // Before anybody is disturbed by a claim that cannot be right.
  if (message.last_sequence() > use.last_sequence) {
    return absl::OutOfRangeError(absl::StrCat("resume.last_sequence: got ", message.last_sequence(),
                                              ", allowed at most ", use.last_sequence,
                                              ", that of the last step"));
  }
  {
    std::lock_guard lock(mutex_);
    session_ = session;
    last_seen_ = message.last_sequence();
    waits_ = true;
  }
  auto attached = host_.sessions.Attach(*session, shared_from_this(), origin_);
  if (!attached.ok()) {
    std::lock_guard lock(mutex_);
    waits_ = false;
    return attached.status();
  }
  if (attached->waiter != nullptr) attached->waiter->LoseSession(TakenOver());
  if (attached->holder != nullptr) attached->holder->LoseSession(TakenOver());
  if (attached->now) GainSession();
  return absl::OkStatus();
}

// ---- resuming ----

void StepStream::GainSession() {
  std::lock_guard lock(mutex_);
  waits_ = false;
  has_session_ = true;
  absl::Status resumed = absl::CancelledError("the stream ended while it waited for its session");
  if (!ending_) resumed = CatchOutOfMemory([this] { return AddResumed(); });
  if (resumed.ok()) {
    opened_ = true;
    host_.telemetry.NoteSessionResumed(origin_, session_->info.id);
  } else {
    ending_ = is_lost_ = true;
    if (end_.ok()) end_ = resumed;
  }
  Advance();
}

absl::Status StepStream::AddResumed() {
  REPRISE_RETURN_IF_ERROR(CheckLastSeen(last_seen_));
  REPRISE_ASSIGN_OR_RETURN(const engine::SessionUse use,
                           host_.engine.session_use(session_->info.id));
  const std::vector<grpc::Slice> unseen = session_->kept.After(last_seen_);
  std::vector<std::unique_ptr<Exchange>> answers;
  answers.push_back(std::make_unique<Exchange>());
  v1::Resumed* resumed = answers.back()->response.mutable_resumed();
  resumed->set_last_sequence(use.last_sequence);
  resumed->set_num_answers(static_cast<uint32_t>(unseen.size()));
  for (const grpc::Slice& bytes : unseen) {
    answers.push_back(std::make_unique<Exchange>());
    answers.back()->bytes = bytes;
    answers.back()->encoded = true;
  }
  for (std::unique_ptr<Exchange>& answer : answers) {
    answer->answered = true;
    exchanges_.push_back(std::move(answer));
  }
  return absl::OkStatus();
}

absl::Status StepStream::CheckLastSeen(uint64_t last_sequence) const {
  const uint64_t missing = session_->kept.missing_through();
  if (last_sequence >= missing) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("resume.last_sequence: got ", last_sequence, ", allowed at least ", missing,
                   ", because answers to steps up to that are not kept any more"));
}

// ---- letting go ----

void StepStream::ReleaseIfLost() {
  if (!has_session_ || !is_lost_) return;
  for (const std::unique_ptr<Exchange>& exchange : exchanges_) {
    if (!exchange->answered) continue;
    const bool is_lost = exchange->is_lost || !Encode(*exchange).ok();
    if (is_lost && exchange->response.has_step()) session_->kept.NoteLost(exchange->sequence);
  }
  if (num_unanswered_ == 0) ReleaseSession(true);
}

void StepStream::ReleaseSession(bool lost) {
  has_session_ = false;
  const SessionRegistry::Released released =
      host_.sessions.Release(*session_, *this, lost, NowNs());
  switch (released.state) {
    case SessionRegistry::Released::State::kGone:
      break;
    case SessionRegistry::Released::State::kEnded: {
      const bool cancelled = lost_ns_ != 0 || (end_.ok() && context_.IsCancelled());
      EndSession(host_, *session_, cancelled ? SessionEnd::kCancelled : SessionEndOf(end_));
      if (released.next != nullptr)
        released.next->LoseSession(host_.sessions.WhyEnded(
            *session_, absl::NotFoundError("session: has ended meanwhile")));
      break;
    }
    case SessionRegistry::Released::State::kDetached:
      host_.telemetry.NoteSessionDetached(origin_, session_->info.id);
      break;
    case SessionRegistry::Released::State::kHandedOn:
      released.next->GainSession();
      break;
  }
}

void StepStream::LoseSession(const absl::Status& why) { EndAtOnce(why, /*session_is_lost=*/true); }

void StepStream::EndAtOnce(const absl::Status& why, bool session_is_lost) {
  JobList withdrawn;
  {
    std::lock_guard lock(mutex_);
    Break(why);
    if (session_is_lost) lost_ns_ = NowNs();
    // As long as the session is this stream's: the next one may have it as soon as all steps of
    // this one are answered, and what waits then is not this one's to withdraw.
    if (has_session_) withdrawn = host_.pipeline.Withdraw(session_->queue);
  }
  StepPipeline::FinishRefused(&withdrawn);
  std::lock_guard lock(mutex_);
  Advance();
}

// ---- the end of the call ----

void StepStream::OnCancel() {
  EndAtOnce(absl::CancelledError("the client ended the call"), /*session_is_lost=*/false);
}

void StepStream::Drain() {
  std::lock_guard lock(mutex_);
  if (!ending_) end_ = absl::UnavailableError("draining: the server is stopping");
  ending_ = draining_ = true;
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
  Cut();
}

void StepStream::CutIfLost(uint64_t since_ns) {
  {
    std::lock_guard lock(mutex_);
    if (lost_ns_ == 0 || lost_ns_ >= since_ns || !writing_ || cancelling_) return;
    cancelling_ = true;
  }
  Cut();
}

void StepStream::Cut() {
  // Not with the lock held: this may run the call's reactions.
  context_.TryCancel();
  std::lock_guard lock(mutex_);
  cancelling_ = false;
  Advance();
}

void StepStream::EndIfNothingWasAsked(uint64_t since_ns) {
  const bool idle = opened_ ? session_->IsIdle(since_ns) : started_ns_ <= since_ns;
  if (ending_ || !exchanges_.empty() || !idle) return;
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
    if (has_session_) {
      ReleaseSession(context_.IsCancelled());
    } else if (waits_) {
      host_.sessions.StopWaiting(*session_, *this);
    }
  }
  host_.admission.Leave(this);
}

}  // namespace reprise::service
