// SPDX-License-Identifier: Apache-2.0
// ReflectionService: grpc.reflection.v1.ServerReflection over the descriptors that this program was
// built with. gRPC 1.51 brings the same service under its older name, v1alpha; both are served.
// Threads: gRPC's.
#ifndef REPRISE_SERVICE_REFLECTION_SERVICE_H_
#define REPRISE_SERVICE_REFLECTION_SERVICE_H_

#include "grpc/reflection/v1/reflection.grpc.pb.h"

namespace reprise::service {

class ReflectionService final : public grpc::reflection::v1::ServerReflection::CallbackService {
 public:
  grpc::ServerBidiReactor<grpc::reflection::v1::ServerReflectionRequest,
                          grpc::reflection::v1::ServerReflectionResponse>*
  ServerReflectionInfo(grpc::CallbackServerContext* context) override;
};

// The answer to one request; never fails: what cannot be answered is an error_response.
grpc::reflection::v1::ServerReflectionResponse Reflect(
    const grpc::reflection::v1::ServerReflectionRequest& request);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_REFLECTION_SERVICE_H_
