// SPDX-License-Identifier: Apache-2.0
// ProfileLease: which session may ask for stamped and unpadded steps, and the engine's graphs for
// them, which are there for as long as that session is. Threads: every method from any thread.
#ifndef REPRISE_SERVICE_PROFILE_LEASE_H_
#define REPRISE_SERVICE_PROFILE_LEASE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/decode_engine.h"
#include "engine/engine_profiler.h"
#include "engine/step_form.h"
#include "reprise/v1/step_service.pb.h"
#include "runtime/device_telemetry.h"

namespace reprise::service {

class ProfileLease {
 public:
  // `engine` must outlive the lease.
  explicit ProfileLease(engine::DecodeEngine& engine) : engine_(engine), profiler_(engine) {}

  // Has `capture` capture graphs for the session, which holds the lease from then on; where it held
  // it before, those that it had are replaced. Errors: Aborted (another call is under way, or
  // another session holds the lease); NotFound (the session ended meanwhile); those of `capture`,
  // after which nobody holds it.
  absl::Status Take(engine::SessionId session, const std::function<absl::Status()>& capture);
  // The session has ended: its graphs go, if it has any.
  void Release(engine::SessionId session);
  // What a step of the session asks for. Errors: PermissionDenied (other forms than plain, and the
  // session holds no lease); InvalidArgument (two of them).
  absl::StatusOr<engine::StepForm> FormOf(engine::SessionId session,
                                          const v1::StepRequest& step) const;

  engine::EngineProfiler& profiler() { return profiler_; }

  struct Telemetry {
    runtime::TelemetrySample sample;
    std::string source;    // "" where there is none
    std::string why_none;  // "" where there is one
  };
  // Opens what tells it at the first call.
  Telemetry ReadTelemetry();

 private:
  engine::DecodeEngine& engine_;
  engine::EngineProfiler profiler_;
  std::mutex taking_;   // held by Take from begin to end
  std::mutex holding_;  // held while holder_ changes, and until the graphs have gone with it
  std::atomic<engine::SessionId> holder_ = 0;  // 0: nobody
  std::mutex telemetry_mutex_;
  std::unique_ptr<runtime::DeviceTelemetry> telemetry_ ABSL_GUARDED_BY(telemetry_mutex_);
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_PROFILE_LEASE_H_
