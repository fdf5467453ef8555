// SPDX-License-Identifier: Apache-2.0
#include "tools/sched/driver.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

// How long to wait before asking a server again that had no room.
constexpr uint64_t kRetryNs = 20'000'000;

uint64_t MonotonicNs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

}  // namespace

SteadyClock::SteadyClock() : start_ns_(MonotonicNs()) {}
uint64_t SteadyClock::NowNs() { return MonotonicNs() - start_ns_; }
void SteadyClock::SleepNs(uint64_t ns) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
}

absl::Status Driver::Run(std::vector<Request>* requests) {
  requests_ = requests;
  const absl::Status status = RunToEnd();
  for (Request& request : *requests) request.Restore();
  return status;
}

absl::Status Driver::RunToEnd() {
  while (true) {
    if (const absl::Status stop = CheckStop(); !stop.ok()) {
      if (absl::IsCancelled(stop)) FinishSteps();
      return stop;
    }
    REPRISE_RETURN_IF_ERROR(AdmitArrivals());
    const absl::StatusOr<bool> advanced = Advance();
    if (!advanced.ok()) {
      REPRISE_RETURN_IF_ERROR(BeginAgain(advanced.status()));
    } else if (!*advanced) {
      return absl::OkStatus();
    }
  }
}

absl::StatusOr<bool> Driver::Advance() {
  if (in_flight_.size() < options_.pipeline_depth) {
    REPRISE_ASSIGN_OR_RETURN(const bool submitted, SubmitNext());
    if (submitted) return true;
  }
  if (!in_flight_.empty()) {
    REPRISE_RETURN_IF_ERROR(ReceiveOne());
    return true;
  }
  if (num_finished_ < requests_->size()) {
    REPRISE_RETURN_IF_ERROR(WaitForWork());
    return true;
  }
  REPRISE_RETURN_IF_ERROR(blocks_->ReturnAll());
  return false;
}

absl::Status Driver::BeginAgain(const absl::Status& error) {
  REPRISE_RETURN_IF_ERROR(channel_->Reopen(error));
  in_flight_.clear();
  blocks_->Forget();
  batcher_->BeginAgain();
  return absl::OkStatus();
}

absl::Status Driver::CheckStop() {
  if (options_.interrupted != nullptr && *options_.interrupted) {
    return absl::CancelledError("interrupted");
  }
  if (options_.timeout_ns != 0 && clock_->NowNs() > options_.timeout_ns) {
    return absl::DeadlineExceededError(absl::StrCat("the run's time is over with ", num_finished_,
                                                    " of ", requests_->size(),
                                                    " requests finished"));
  }
  return absl::OkStatus();
}

void Driver::FinishSteps() {
  while (!in_flight_.empty()) {
    if (!ReceiveOne().ok()) return;
  }
}

absl::Status Driver::AdmitArrivals() {
  const uint64_t now = clock_->NowNs();
  while (next_arrival_ < requests_->size() && (*requests_)[next_arrival_].arrival_ns <= now) {
    Request* request = &(*requests_)[next_arrival_++];
    REPRISE_RETURN_IF_ERROR(batcher_->Add(request));
    listener_->OnArrival(*request);
    ReportState();
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Driver::SubmitNext() {
  REPRISE_ASSIGN_OR_RETURN(const bool planned, batcher_->Plan(&step_));
  if (!planned) return false;
  in_flight_.push_back({.prefill = !step_.chunks.empty(), .adds_rows = !step_.add.empty()});
  for (const engine::StepDraft::Draft& draft : step_.drafts)
    in_flight_.back().draft_tokens += draft.tokens.size();
  REPRISE_RETURN_IF_ERROR(channel_->Submit(step_));
  return true;
}

absl::Status Driver::ReceiveOne() {
  REPRISE_RETURN_IF_ERROR(channel_->Receive(&outcome_));
  if (!outcome_.refusal.ok()) return HandleRefusal(outcome_.refusal);
  const uint64_t now = clock_->NowNs();
  // Where a call for blocks fails, the session may be lost; the tokens have come.
  const absl::Status applied = batcher_->Apply(outcome_, &progress_);
  FinishedStep finished{.prefill = in_flight_.front().prefill,
                        .draft_tokens = in_flight_.front().draft_tokens,
                        .result_ns = now};
  in_flight_.pop_front();
  for (const engine::RowOutcome& row : outcome_.rows)
    if (row.status == engine::RowStatus::kRan) finished.context_tokens += row.context_length;
  listener_->OnStep(outcome_, finished);
  TellProgress(now);
  REPRISE_RETURN_IF_ERROR(applied);
  ReportState();
  RetryRoom(now);
  return absl::OkStatus();
}

void Driver::TellProgress(uint64_t now) {
  for (Request* request : progress_.advanced) {
    const size_t index = request->token_times_ns.size();
    request->token_times_ns.push_back(now);
    ++num_tokens_;
    listener_->OnToken(*request, index);
  }
  for (const Request* request : progress_.ended) {
    ++num_finished_;
    listener_->OnFinished(*request);
  }
}

void Driver::RetryRoom(uint64_t now) {
  if (now < retry_at_ns_) return;
  retry_at_ns_ = now + kRetryNs;
  blocks_->RetryServer();
  batcher_->LiftRowLimit();
}

// Steps behind a refused one are refused too, because their numbers no longer follow. No room for
// more rows is the one refusal that time cures: other sessions hold rows as well.
absl::Status Driver::HandleRefusal(const absl::Status& refusal) {
  bool adds_rows = in_flight_.front().adds_rows;
  const absl::Status first = refusal;
  in_flight_.pop_front();
  while (!in_flight_.empty()) {
    REPRISE_RETURN_IF_ERROR(channel_->Receive(&outcome_));
    if (outcome_.refusal.ok()) {
      return absl::InternalError("step order: a step ran though the one before it was refused");
    }
    adds_rows |= in_flight_.front().adds_rows;
    in_flight_.pop_front();
  }
  if (!absl::IsResourceExhausted(first) || !adds_rows) return first;
  batcher_->Undo();
  batcher_->LimitRows();
  retry_at_ns_ = clock_->NowNs() + kRetryNs;
  return absl::OkStatus();
}

absl::Status Driver::WaitForWork() {
  const bool awaits_arrival = batcher_->num_waiting() == 0 && batcher_->num_resident() == 0;
  uint64_t pause = kRetryNs;
  if (awaits_arrival && next_arrival_ < requests_->size()) {
    const uint64_t now = clock_->NowNs();
    const uint64_t arrival = (*requests_)[next_arrival_].arrival_ns;
    pause = std::min(pause, arrival > now ? arrival - now : 0);
  }
  ReportState();
  clock_->SleepNs(pause);
  RetryRoom(clock_->NowNs());
  return absl::OkStatus();
}

void Driver::ReportState() {
  listener_->OnState({.num_requests = requests_->size(),
                      .num_finished = num_finished_,
                      .num_resident = batcher_->num_resident(),
                      .num_waiting = batcher_->num_waiting(),
                      .num_tokens = num_tokens_,
                      .now_ns = clock_->NowNs()});
}

}  // namespace reprise::tools
