// SPDX-License-Identifier: Apache-2.0
// Early-return macros for absl::Status and absl::StatusOr, which Abseil itself does not publish.
//
//   REPRISE_ASSIGN_OR_RETURN(auto buffer, device.Allocate(bytes));
//   REPRISE_RETURN_IF_ERROR(stream.Synchronize());
#ifndef REPRISE_RUNTIME_STATUS_MACROS_H_
#define REPRISE_RUNTIME_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define REPRISE_RETURN_IF_ERROR(expr)                  \
  do {                                                 \
    absl::Status reprise_status_ = (expr);             \
    if (!reprise_status_.ok()) return reprise_status_; \
  } while (false)

#define REPRISE_CONCAT_INNER_(a, b) a##b
#define REPRISE_CONCAT_(a, b) REPRISE_CONCAT_INNER_(a, b)

#define REPRISE_ASSIGN_OR_RETURN(lhs, expr) \
  REPRISE_ASSIGN_OR_RETURN_IMPL_(REPRISE_CONCAT_(reprise_status_or_, __LINE__), lhs, expr)

#define REPRISE_ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                                   \
  if (!tmp.ok()) return std::move(tmp).status();       \
  lhs = std::move(tmp).value()

#endif  // REPRISE_RUNTIME_STATUS_MACROS_H_
