// SPDX-License-Identifier: Apache-2.0
// The part of StepValidator that refuses bad rows alone (StepRequest::isolate_bad_rows): the
// request is staged, rows that were found to be wrong are left out, and what is left is staged
// anew, until nothing is wrong with it. Rows that are wrong only beside others count once those are
// right.
#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/step/validate.h"
#include "runtime/status_macros.h"

namespace reprise::engine {
namespace {

// A pass finds all rows that are wrong in one kind of entry. More are needed only where leaving a
// row out makes others wrong: the blocks of a row that is not dropped after all, say.
constexpr int kMaxPasses = 16;

}  // namespace

absl::Status StepValidator::ValidateIsolated(const StepRequest& request, const RowList& list,
                                             uint32_t max_rows) {
  REPRISE_RETURN_IF_ERROR(CheckNumEntries(request));
  const StepRequest* left = &request;
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    blamed_.clear();
    conflicts_.clear();
    const absl::Status attempted = Attempt(*left, list, max_rows);
    std::vector<RefusedRow>& found = blamed_.empty() ? conflicts_ : blamed_;
    if (found.empty()) return attempted;
    if (attempted.ok()) UndoCounts();
    REPRISE_RETURN_IF_ERROR(RefuseAlone(&found));
    left = &filter_.Without(request, refused_ids_);
  }
  return absl::FailedPreconditionError(
      absl::StrCat("bad rows: leaving them out made others wrong ", kMaxPasses,
                   " times; allowed: requests in which it ends sooner"));
}

absl::Status StepValidator::CheckNumEntries(const StepRequest& request) const {
  const size_t most = size_t{2} * rows_.max_rows();
  size_t members = 0;
  for (const PrefixGroup& prefix : request.prefixes) members += prefix.rows.size();
  const std::pair<const char*, size_t> lists[] = {
      {"drop", request.drop.size()},         {"add", request.add.size()},
      {"append", request.append.size()},     {"masks", request.masks.size()},
      {"prefixes", request.prefixes.size()}, {"rows of prefixes", members},
      {"chunks", request.chunks.size()},     {"continue_rows", request.continue_rows.size()},
      {"drafts", request.drafts.size()}};
  for (const auto& [name, size] : lists) {
    if (size <= most) continue;
    return absl::OutOfRangeError(
        absl::StrCat(name, ": ", size, " entries; allowed: at most ", most,
                     ", twice max_rows, in a request whose bad rows are refused alone"));
  }
  return absl::OkStatus();
}

absl::Status StepValidator::Blame(uint32_t row, absl::Status error) {
  const bool is_conflict = std::exchange(is_conflict_, false);
  if (error.ok() || !isolates_) return error;
  (is_conflict ? conflicts_ : blamed_).push_back({.row = row, .status = std::move(error)});
  return absl::OkStatus();
}

absl::Status StepValidator::StopIfBlamed() const {
  return blamed_.empty() ? absl::OkStatus() : blamed_.front().status;
}

absl::Status StepValidator::RefuseAlone(std::vector<RefusedRow>* rows) {
  for (RefusedRow& bad : *rows) {
    const auto at = std::ranges::lower_bound(refused_ids_, bad.row);
    if (at != refused_ids_.end() && *at == bad.row) continue;
    refused_ids_.insert(at, bad.row);
    refused_.push_back(std::move(bad));
  }
  if (refused_.size() <= rows_.max_rows()) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("bad rows: ", refused_.size(), "; allowed: at most ", rows_.max_rows(),
                   ", max_rows, in one request; the first: ", refused_.front().status.message()));
}

bool StepValidator::IsRefused(uint32_t row) const {
  return std::ranges::binary_search(refused_ids_, row);
}

}  // namespace reprise::engine
