// SPDX-License-Identifier: Apache-2.0
#include "tools/replay/call_limit.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "tools/units.h"

namespace reprise::tools {
namespace {

using std::chrono::steady_clock;

// How late a call may be broken off. The watcher looks by itself, so that a call costs a lock and
// wakes nobody.
constexpr std::chrono::milliseconds kLookInterval(20);

}  // namespace

CallLimit::CallLimit(std::chrono::nanoseconds time, const std::atomic<bool>* interrupted)
    : time_(time), interrupted_(interrupted), thread_([this] { Watch(); }) {}

CallLimit::~CallLimit() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  ends_.notify_all();
  thread_.join();
}

void CallLimit::Watch() {
  std::unique_lock lock(mutex_);
  while (!is_ending_) {
    ends_.wait_for(lock, kLookInterval);
    if (context_ == nullptr || !broken_off_.ok()) continue;
    if (*interrupted_) {
      broken_off_ = absl::CancelledError("interrupted");
    } else if (time_.count() > 0 && steady_clock::now() - begin_ >= time_) {
      const std::string time = FormatDuration(static_cast<double>(time_.count()));
      broken_off_ = absl::DeadlineExceededError(absl::StrCat(
          "got no answer within ", time, ", allowed: one by then, or a longer --timeout"));
    }
    if (!broken_off_.ok()) context_->TryCancel();
  }
}

LimitedCall::LimitedCall(CallLimit* limit, grpc::ClientContext* context) : limit_(limit) {
  const std::lock_guard lock(limit_->mutex_);
  limit_->context_ = context;
  limit_->begin_ = steady_clock::now();
  limit_->broken_off_ = absl::OkStatus();
}

LimitedCall::~LimitedCall() {
  const std::lock_guard lock(limit_->mutex_);
  limit_->context_ = nullptr;
}

absl::Status LimitedCall::broken_off() const {
  const std::lock_guard lock(limit_->mutex_);
  return limit_->broken_off_;
}

}  // namespace reprise::tools
