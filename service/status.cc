// SPDX-License-Identifier: Apache-2.0
#include "service/status.h"

#include <new>
#include <string>

namespace reprise::service {

static_assert(static_cast<int>(absl::StatusCode::kInvalidArgument) ==
              grpc::StatusCode::INVALID_ARGUMENT);
static_assert(static_cast<int>(absl::StatusCode::kUnauthenticated) ==
              grpc::StatusCode::UNAUTHENTICATED);

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // absl::Status::code() maps codes outside the canonical range to kUnknown, so the cast is total.
  const auto code = static_cast<grpc::StatusCode>(static_cast<int>(status.code()));
  try {
    return grpc::Status(code, std::string(status.message()));
  } catch (const std::bad_alloc&) {
    return grpc::Status(code, std::string());  // allocates nothing
  }
}

}  // namespace reprise::service
