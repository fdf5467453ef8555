// SPDX-License-Identifier: Apache-2.0
#include "service/health_service.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "service/status.h"

namespace reprise::service {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

bool IsKnown(const std::string& service) {
  return service.empty() || service == "reprise.v1.StepService";
}

HealthCheckResponse::ServingStatus ToWire(bool serving) {
  return serving ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

}  // namespace

// One Watch call: writes the latest state that it has not written yet, one write at a time.
// HealthService holds it until OnDone.
class HealthService::Watcher final : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  Watcher(HealthService& service, bool known) : service_(service), known_(known) {}

  // Asks under the lock, so that of two calls the later one has the newer answer.
  void Refresh() {
    std::lock_guard lock(mutex_);
    wanted_ = known_ ? ToWire(service_.is_serving_()) : HealthCheckResponse::SERVICE_UNKNOWN;
    Advance();
  }

  void End(absl::Status status) {
    std::lock_guard lock(mutex_);
    if (ending_) return;
    ending_ = true;
    end_ = std::move(status);
    Advance();
  }

  void OnWriteDone(bool /*ok*/) override {
    std::lock_guard lock(mutex_);
    writing_ = false;
    Advance();
  }

  void OnCancel() override { End(absl::CancelledError("the client ended the call")); }
  // gRPC calls this after every other reaction has returned: each holds a count of the call, and
  // the last one to give it up comes here. Its counts are atomics that no tool can see which
  // watches locks, and they say nothing of Refresh and End from elsewhere; so this waits for
  // whoever holds the lock, and those others hold the watcher by a pointer of their own.
  void OnDone() override {
    { const std::lock_guard lock(mutex_); }
    service_.Forget(this);
  }

 private:
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_) return;
    if (wanted_ != response_.status()) {
      response_.set_status(wanted_);
      writing_ = true;
      StartWrite(&response_);
    } else if (ending_) {
      finished_ = true;
      Finish(ToGrpcStatus(end_));
    }
  }

  HealthService& service_;
  const bool known_;
  std::mutex mutex_;
  // UNKNOWN is never shown, so the first Refresh always writes.
  HealthCheckResponse::ServingStatus wanted_ ABSL_GUARDED_BY(mutex_) = HealthCheckResponse::UNKNOWN;
  HealthCheckResponse response_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

HealthService::HealthService(std::function<bool()> is_serving)
    : is_serving_(std::move(is_serving)) {}

HealthService::~HealthService() = default;

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const HealthCheckRequest* request,
                                               HealthCheckResponse* response) {
  absl::Status status;
  if (IsKnown(request->service())) {
    response->set_status(ToWire(is_serving_()));
  } else {
    status = absl::NotFoundError(
        absl::StrCat("service: got \"", request->service(),
                     "\", allowed \"\" (the whole server) and \"reprise.v1.StepService\""));
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(
    grpc::CallbackServerContext* /*context*/, const HealthCheckRequest* request) {
  auto watcher = std::make_shared<Watcher>(*this, IsKnown(request->service()));
  bool stopped = false;
  {
    std::lock_guard lock(mutex_);
    watchers_.push_back(watcher);
    stopped = stopped_;
  }
  // Refreshed after it is listed: no change falls in between.
  watcher->Refresh();
  if (stopped) watcher->End(absl::UnavailableError("the server is stopping"));
  return watcher.get();
}

void HealthService::Refresh() {
  std::vector<std::shared_ptr<Watcher>> watchers;
  {
    std::lock_guard lock(mutex_);
    watchers = watchers_;
  }
  for (const auto& watcher : watchers) watcher->Refresh();
}

void HealthService::Stop() {
  std::vector<std::shared_ptr<Watcher>> watchers;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    watchers = watchers_;
  }
  for (const auto& watcher : watchers) {
    watcher->End(absl::UnavailableError("the server is stopping"));
  }
}

void HealthService::Forget(const Watcher* watcher) {
  std::shared_ptr<Watcher> last;  // freed after the lock
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < watchers_.size(); ++i) {
    if (watchers_[i].get() != watcher) continue;
    last = std::move(watchers_[i]);
    watchers_.erase(watchers_.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
}

}  // namespace reprise::service
