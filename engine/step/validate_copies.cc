// SPDX-License-Identifier: Apache-2.0
// The part of StepValidator that checks copies of KV blocks. They are done before any row of the
// step runs, so that no row may see a block change: a destination is in no resident row's table,
// and no copy depends on another.
#include "absl/strings/str_cat.h"
#include "engine/step/validate.h"
#include "runtime/status_macros.h"

namespace reprise::engine {
namespace {

absl::Status Refuse(absl::StatusCode code, const BlockCopy& copy, absl::string_view why) {
  return absl::Status(
      code, absl::StrCat("copy of block ", copy.source, " to ", copy.destination, ": ", why));
}

}  // namespace

absl::Status StepValidator::StageCopies(const StepRequest& request) {
  if (request.copies.empty()) return absl::OkStatus();
  if (request.copies.size() > rows_.max_rows()) {
    return absl::OutOfRangeError(absl::StrCat("the step copies ", request.copies.size(),
                                              " blocks; allowed: at most ", rows_.max_rows(),
                                              ", max_rows"));
  }
  ++table_stamp_;
  for (const BlockCopy& copy : request.copies) {
    const absl::Status source = ledger_.CheckHeld(request.session, copy.source);
    if (!source.ok()) return Refuse(source.code(), copy, source.message());
    const absl::Status destination = ledger_.CheckOwned(request.session, copy.destination);
    if (!destination.ok()) return Refuse(destination.code(), copy, destination.message());
    if (block_stamps_[copy.destination] == table_stamp_) {
      return Refuse(absl::StatusCode::kInvalidArgument, copy,
                    "another copy of the step goes to the same block; allowed: one");
    }
    block_stamps_[copy.destination] = table_stamp_;
  }
  for (const BlockCopy& copy : request.copies) REPRISE_RETURN_IF_ERROR(StageCopy(copy));
  return absl::OkStatus();
}

absl::Status StepValidator::StageCopy(const BlockCopy& copy) {
  if (block_stamps_[copy.source] == table_stamp_) {
    return Refuse(absl::StatusCode::kInvalidArgument, copy,
                  "a copy of the step goes to its source; allowed: blocks that none goes to");
  }
  if (const uint32_t rows = ledger_.rows_naming(copy.destination); rows != 0) {
    return Refuse(absl::StatusCode::kFailedPrecondition, copy,
                  absl::StrCat("its destination is in the table of ", rows,
                               " resident row(s); allowed: a block of no row, which this step may "
                               "give one"));
  }
  const uint32_t num_tokens = ledger_.num_written(copy.source);
  if (num_tokens == 0) {
    return Refuse(absl::StatusCode::kFailedPrecondition, copy,
                  "this session has written no token in its source since it was given the block");
  }
  replaced_.push_back({copy.destination, ledger_.written(copy.destination)});
  ledger_.NoteReplaced(copy.destination, num_tokens);
  return absl::OkStatus();
}

}  // namespace reprise::engine
