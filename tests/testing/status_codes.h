// SPDX-License-Identifier: Apache-2.0
// Short names of the status codes that tests expect.
#ifndef REPRISE_TESTS_TESTING_STATUS_CODES_H_
#define REPRISE_TESTS_TESTING_STATUS_CODES_H_

#include "absl/status/status.h"

namespace reprise::testing {

inline constexpr absl::StatusCode kDenied = absl::StatusCode::kPermissionDenied;
inline constexpr absl::StatusCode kExhausted = absl::StatusCode::kResourceExhausted;
inline constexpr absl::StatusCode kExists = absl::StatusCode::kAlreadyExists;
inline constexpr absl::StatusCode kInternal = absl::StatusCode::kInternal;
inline constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
inline constexpr absl::StatusCode kNotFound = absl::StatusCode::kNotFound;
inline constexpr absl::StatusCode kPrecondition = absl::StatusCode::kFailedPrecondition;
inline constexpr absl::StatusCode kRange = absl::StatusCode::kOutOfRange;
inline constexpr absl::StatusCode kUnavailable = absl::StatusCode::kUnavailable;
inline constexpr absl::StatusCode kUnimplemented = absl::StatusCode::kUnimplemented;

}  // namespace reprise::testing

#endif  // REPRISE_TESTS_TESTING_STATUS_CODES_H_
