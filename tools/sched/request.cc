// SPDX-License-Identifier: Apache-2.0
#include "tools/sched/request.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace reprise::tools {
namespace {

constexpr size_t kMaxNamed = 4;  // failed requests that a message names

}  // namespace

void Request::Restore() {
  if (tokens.size() >= had.tokens.size()) return;
  tokens = std::move(had.tokens);
  chances = std::move(had.chances);
  had = {};
}

absl::Status FailureOf(const std::vector<Request>& requests) {
  size_t num_failed = 0;
  std::string named;
  for (const Request& request : requests) {
    if (!request.failed() || ++num_failed > kMaxNamed) continue;
    absl::StrAppend(&named, "; request ", request.id, ": ", request.error);
  }
  if (num_failed == 0) return absl::OkStatus();
  if (num_failed > kMaxNamed) absl::StrAppend(&named, "; and ", num_failed - kMaxNamed, " more");
  return absl::FailedPreconditionError(
      absl::StrCat(num_failed, " of ", requests.size(), " requests failed", named));
}

}  // namespace reprise::tools
