// SPDX-License-Identifier: Apache-2.0
// service/status.h: every canonical code keeps its number and its message.
#include "service/status.h"

#include <gtest/gtest.h>

namespace reprise::service {
namespace {

TEST(GrpcStatus, OkStaysOk) { EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok()); }

TEST(GrpcStatus, EveryCodeKeepsItsNumberAndMessage) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "what, got, allowed");
    const grpc::Status wire = ToGrpcStatus(status);
    EXPECT_EQ(static_cast<int>(wire.error_code()), code);
    EXPECT_EQ(wire.error_message(), "what, got, allowed");
  }
}

TEST(GrpcStatus, CodeOutsideTheCanonicalRangeIsUnknown) {
  const absl::Status status(static_cast<absl::StatusCode>(77), "odd");
  EXPECT_EQ(ToGrpcStatus(status).error_code(), grpc::StatusCode::UNKNOWN);
}

}  // namespace
}  // namespace reprise::service
