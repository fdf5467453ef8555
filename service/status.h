// SPDX-License-Identifier: Apache-2.0
// absl::Status to grpc::Status: the one place where an error of ours becomes one of gRPC's. The
// codes are the same numbers.
#ifndef REPRISE_SERVICE_STATUS_H_
#define REPRISE_SERVICE_STATUS_H_

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace reprise::service {

// Same code, same message. OK stays OK.
grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace reprise::service

#endif  // REPRISE_SERVICE_STATUS_H_
