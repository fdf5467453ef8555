// SPDX-License-Identifier: Apache-2.0
#include "service/profile_lease.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace reprise::service {

absl::Status ProfileLease::Take(engine::SessionId session,
                                const std::function<absl::Status()>& capture) {
  // A second call would wait on one of gRPC's threads.
  const std::unique_lock lock(taking_, std::try_to_lock);
  if (!lock.owns_lock())
    return absl::AbortedError("profile: another call starts one; allowed: when it has ended");
  {
    const std::lock_guard holding(holding_);
    const engine::SessionId holder = holder_.load();
    if (holder != 0 && holder != session) {
      return absl::AbortedError(absl::StrCat("profile: got it while session ", holder,
                                             " has one; allowed: when that session has ended"));
    }
    holder_.store(session);
  }
  const absl::Status captured = capture();
  if (!captured.ok()) {
    Release(session);
    return captured;
  }
  const std::lock_guard holding(holding_);
  if (engine_.IsOpen(session) && holder_.load() == session) return absl::OkStatus();
  // Its end may have come before there was anything to drop.
  profiler_.Drop().IgnoreError();
  holder_.store(0);
  return absl::NotFoundError("session: has ended meanwhile");
}

void ProfileLease::Release(engine::SessionId session) {
  const std::lock_guard holding(holding_);
  if (holder_.load() != session) return;
  // After a device fault they stay with the engine, which runs nothing any more.
  profiler_.Drop().IgnoreError();
  holder_.store(0);
}

absl::StatusOr<engine::StepForm> ProfileLease::FormOf(engine::SessionId session,
                                                      const v1::StepRequest& step) const {
  if (!step.stamped() && !step.unpadded()) return engine::StepForm::kPlain;
  if (step.stamped() && step.unpadded())
    return absl::InvalidArgumentError("unpadded: got it beside stamped; allowed: one of them");
  if (holder_.load(std::memory_order_relaxed) != session) {
    return absl::PermissionDeniedError(
        absl::StrCat(step.stamped() ? "stamped" : "unpadded",
                     ": got it of a session that profiles nothing; allowed: behind StartProfile, "
                     "which is for administrators"));
  }
  return step.stamped() ? engine::StepForm::kProfiled : engine::StepForm::kUnpadded;
}

ProfileLease::Telemetry ProfileLease::ReadTelemetry() {
  const std::lock_guard lock(telemetry_mutex_);
  if (telemetry_ == nullptr) {
    auto opened = runtime::DeviceTelemetry::Open(engine_.info().device);
    if (!opened.ok())
      return {.sample = {}, .source = "", .why_none = std::string(opened.status().message())};
    telemetry_ = *std::move(opened);
  }
  return {.sample = telemetry_->Read(), .source = telemetry_->source(), .why_none = ""};
}

}  // namespace reprise::service
