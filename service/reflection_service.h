// SPDX-License-Identifier: Apache-2.0
// ReflectionService: grpc.reflection.v1.ServerReflection over the descriptors that this program was
// built with, and OldReflectionService, the same under its older name, v1alpha: their messages are
// the same on the wire. gRPC brings the latter, too, but asks nobody who calls it. Threads: gRPC's.
#ifndef REPRISE_SERVICE_REFLECTION_SERVICE_H_
#define REPRISE_SERVICE_REFLECTION_SERVICE_H_

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "grpc/reflection/v1/reflection.grpc.pb.h"
#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"

namespace reprise::service {

// Whether a call is allowed; asked once for each, from any thread.
using ReflectionCheck = std::function<absl::Status(const grpc::CallbackServerContext&)>;

class ReflectionService final : public grpc::reflection::v1::ServerReflection::CallbackService {
 public:
  explicit ReflectionService(ReflectionCheck check) : check_(std::move(check)) {}
  grpc::ServerBidiReactor<grpc::reflection::v1::ServerReflectionRequest,
                          grpc::reflection::v1::ServerReflectionResponse>*
  ServerReflectionInfo(grpc::CallbackServerContext* context) override;

 private:
  const ReflectionCheck check_;
};

class OldReflectionService final : public grpc::reflection::v1alpha::ServerReflection::Service {
 public:
  // `reflection` must outlive this.
  explicit OldReflectionService(ReflectionService& reflection);
};

// The answer to one request; never fails: what cannot be answered is an error_response.
grpc::reflection::v1::ServerReflectionResponse Reflect(
    const grpc::reflection::v1::ServerReflectionRequest& request);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_REFLECTION_SERVICE_H_
