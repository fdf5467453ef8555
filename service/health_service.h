// SPDX-License-Identifier: Apache-2.0
// HealthService: grpc.health.v1.Health for "" and "reprise.v1.StepService". gRPC's built-in one
// reports SERVING from the moment the server listens until it is told otherwise; this one asks, so
// a probe never sees SERVING before capture or after a fault.
#ifndef REPRISE_SERVICE_HEALTH_SERVICE_H_
#define REPRISE_SERVICE_HEALTH_SERVICE_H_

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace reprise::service {

class HealthService final : public grpc::health::v1::Health::CallbackService {
 public:
  // `is_serving` is asked by every Check and every Refresh, from any thread.
  explicit HealthService(std::function<bool()> is_serving);
  // After the gRPC server has shut down.
  ~HealthService() override;

  // Tells those who watch when the answer has changed.
  void Refresh();
  // Ends all watches, and those that come later at once.
  void Stop();

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::health::v1::HealthCheckResponse* response) override;
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  class Watcher;

  void Forget(const Watcher* watcher);

  const std::function<bool()> is_serving_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Watcher>> watchers_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_HEALTH_SERVICE_H_
