// SPDX-License-Identifier: Apache-2.0
#include "service/unary_answers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace reprise::service {
namespace {

absl::Status OtherRequest(uint64_t sequence) {
  return absl::FailedPreconditionError(
      absl::StrCat("sequence ", sequence,
                   ": got another request than the one sent with it before; allowed: the same one, "
                   "or the next number"));
}

}  // namespace

absl::StatusOr<UnaryAnswers::Claim> UnaryAnswers::Begin(const UnaryRequest& request,
                                                        UnaryWaiter* waiter,
                                                        grpc::ByteBuffer* answer) {
  std::lock_guard lock(mutex_);
  if (last_.sequence == request.sequence && request.sequence != 0) {
    if (last_.fingerprint != request.fingerprint) return OtherRequest(request.sequence);
    *answer = last_answer_;
    return Claim::kAnswered;
  }
  for (OnItsWay& sent : on_their_way_) {
    if (sent.request.sequence != request.sequence) continue;
    if (sent.request.fingerprint != request.fingerprint) return OtherRequest(request.sequence);
    sent.waiters.push_back(waiter);
    return Claim::kWait;
  }
  on_their_way_.push_back({.request = request, .waiters = {}});
  return Claim::kRun;
}

bool UnaryAnswers::IsBusy() const {
  std::lock_guard lock(mutex_);
  return !on_their_way_.empty();
}

std::vector<UnaryAnswers::OnItsWay>::iterator UnaryAnswers::Find(const UnaryRequest& request) {
  return std::find_if(on_their_way_.begin(), on_their_way_.end(), [&request](const OnItsWay& sent) {
    return sent.request.sequence == request.sequence;
  });
}

bool UnaryAnswers::Withdraw(const UnaryRequest& request) {
  std::lock_guard lock(mutex_);
  const auto sent = Find(request);
  if (!sent->waiters.empty()) return false;
  on_their_way_.erase(sent);
  return true;
}

std::vector<UnaryWaiter*> UnaryAnswers::Finish(const UnaryRequest& request,
                                               const grpc::ByteBuffer* answer,
                                               MemoryBudget& memory) {
  std::lock_guard lock(mutex_);
  if (answer != nullptr) {
    last_ = request;
    last_answer_ = *answer;
    last_charge_ = {};
    last_charge_ = memory.ChargeAnswer(answer->Length());
  }
  const auto sent = Find(request);
  std::vector<UnaryWaiter*> waiters = std::move(sent->waiters);
  on_their_way_.erase(sent);
  return waiters;
}

}  // namespace reprise::service
