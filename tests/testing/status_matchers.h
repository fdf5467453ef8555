// SPDX-License-Identifier: Apache-2.0
// What this Abseil lacks for tests: assertions on absl::Status and absl::StatusOr that print the
// message when they fail.
#ifndef REPRISE_TESTS_TESTING_STATUS_MATCHERS_H_
#define REPRISE_TESTS_TESTING_STATUS_MATCHERS_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reprise::testing {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

// For instance EXPECT_THAT(device.Allocate(0), StatusIs(absl::StatusCode::kInvalidArgument, "0
// bytes")). The message must contain `part`.
MATCHER_P2(StatusIs, code, part, absl::StatusCodeToString(code) + " with \"" + part + "\"") {
  const absl::Status& status = StatusOf(arg);
  *result_listener << "which is " << status.ToString();
  return status.code() == code && std::string(status.message()).find(part) != std::string::npos;
}
MATCHER(IsOk, "OK") {
  *result_listener << "which is " << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

}  // namespace reprise::testing

#define ASSERT_OK(expr) ASSERT_THAT((expr), ::reprise::testing::IsOk())
#define EXPECT_OK(expr) EXPECT_THAT((expr), ::reprise::testing::IsOk())

// Declares or assigns `lhs`; in test bodies and other functions that return void.
#define ASSERT_OK_AND_ASSIGN(lhs, expr) \
  REPRISE_ASSERT_OK_AND_ASSIGN_(REPRISE_TEST_CONCAT_(result_, __LINE__), lhs, expr)
#define REPRISE_ASSERT_OK_AND_ASSIGN_(result, lhs, expr)                   \
  auto result = (expr);                                                    \
  ASSERT_TRUE(result.ok()) << #expr << ": " << result.status().ToString(); \
  lhs = std::move(result).value()
#define REPRISE_TEST_CONCAT_(a, b) REPRISE_TEST_CONCAT_INNER_(a, b)
#define REPRISE_TEST_CONCAT_INNER_(a, b) a##b

#endif  // REPRISE_TESTS_TESTING_STATUS_MATCHERS_H_
