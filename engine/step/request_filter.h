// SPDX-License-Identifier: Apache-2.0
// RequestFilter: a step request without some of its rows: those that are refused alone
// (StepRequest::isolate_bad_rows). A part of step 3 of the way of a step. It allocates nothing once
// its scratch memory has grown to the limits. Threads: the caller orders all calls.
#ifndef REPRISE_ENGINE_STEP_REQUEST_FILTER_H_
#define REPRISE_ENGINE_STEP_REQUEST_FILTER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/step_request.h"

namespace reprise::engine {

class RequestFilter {
 public:
  // `request` without all that it says of `rows`, which ascend. Views the request's arrays and this
  // filter's: valid until the next call. continue_all stays: who is left out of it is the caller's
  // business.
  const StepRequest& Without(const StepRequest& request, std::span<const uint32_t> rows);

 private:
  StepRequest left_;
  std::vector<uint32_t> drop_;
  std::vector<RowAdd> add_;
  std::vector<RowAppend> append_;
  std::vector<RowMask> masks_;
  std::vector<PrefixGroup> prefixes_;
  std::vector<uint32_t> prefix_rows_;  // of all of them
  std::vector<RowChunk> chunks_;
  std::vector<uint32_t> continue_rows_;
  std::vector<RowDraft> drafts_;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STEP_REQUEST_FILTER_H_
