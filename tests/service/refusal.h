// SPDX-License-Identifier: Apache-2.0
// What the tests of bad requests share: two rows that must not notice, and short names of the codes
// that a request may get.
#ifndef REPRISE_TESTS_SERVICE_REFUSAL_H_
#define REPRISE_TESTS_SERVICE_REFUSAL_H_

#include <cstdint>
#include <vector>

#include "grpcpp/support/status_code_enum.h"

namespace reprise::service {

inline const std::vector<uint32_t> kOwnPrompt = {5, 80, 33, 12, 96};
inline const std::vector<uint32_t> kOtherPrompt = {64, 1, 17};

constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
constexpr auto kRange = grpc::StatusCode::OUT_OF_RANGE;
constexpr auto kPrecondition = grpc::StatusCode::FAILED_PRECONDITION;
constexpr auto kUnimplemented = grpc::StatusCode::UNIMPLEMENTED;
constexpr auto kDenied = grpc::StatusCode::PERMISSION_DENIED;
constexpr auto kExhausted = grpc::StatusCode::RESOURCE_EXHAUSTED;
constexpr auto kAlreadyThere = grpc::StatusCode::ALREADY_EXISTS;
constexpr auto kNotFound = grpc::StatusCode::NOT_FOUND;
constexpr auto kAborted = grpc::StatusCode::ABORTED;
constexpr auto kDamaged = grpc::StatusCode::DATA_LOSS;
constexpr auto kUnavailable = grpc::StatusCode::UNAVAILABLE;
constexpr auto kUnknown = grpc::StatusCode::UNAUTHENTICATED;  // who calls

}  // namespace reprise::service

#endif  // REPRISE_TESTS_SERVICE_REFUSAL_H_
