// SPDX-License-Identifier: Apache-2.0
// LaunchTotals: what the requests that share a launch ask for together, and whether one step has
// room for it.
#ifndef REPRISE_ENGINE_STEP_LAUNCH_TOTALS_H_
#define REPRISE_ENGINE_STEP_LAUNCH_TOTALS_H_

#include <algorithm>
#include <cstdint>

#include "engine/step/validate.h"
#include "engine/step_request.h"
#include "kernels/step/step_limits.h"

namespace reprise::engine {

struct LaunchTotals {
  uint32_t num_requests = 0;
  uint32_t num_rows = 0;      // that run
  uint32_t num_tokens = 0;    // query tokens of theirs
  uint32_t num_going_on = 0;  // rows of later replays
  uint32_t num_replays = 1;
  uint64_t num_sampling_words = 0;
  uint64_t num_logit_rows = 0;
  uint64_t num_prompt_logprobs = 0;
  uint64_t num_draft_tokens = 0;
  uint64_t num_copies = 0;  // of blocks
  bool all_single = true;   // as StagedStep's

  // With one request more.
  LaunchTotals With(const StagedStep& staged) const {
    LaunchTotals t = *this;
    ++t.num_requests;
    t.num_rows += static_cast<uint32_t>(staged.runs.size());
    t.num_tokens += staged.num_tokens;
    if (staged.num_replays > 1) t.num_going_on += staged.num_going_on;
    t.num_replays = std::max(t.num_replays, staged.num_replays);
    t.num_sampling_words += staged.num_sampling_words;
    t.num_logit_rows += staged.num_logit_rows;
    t.num_prompt_logprobs += staged.num_prompt_logprobs;
    t.num_draft_tokens += staged.num_draft_tokens;
    t.num_copies += staged.num_copies;
    t.all_single &= staged.all_single;
    return t;
  }

  // Rows, tables and their updates need no look: a slot of the row table is in one request alone.
  bool IsWithin(const kernels::StepLimits& limits) const {
    return num_requests <= kMaxJointRequests && num_tokens <= limits.max_step_tokens &&
           num_sampling_words * sizeof(uint32_t) <= limits.max_sampling_bytes &&
           num_logit_rows <= limits.max_logit_rows &&
           num_prompt_logprobs <= limits.max_prompt_logprobs &&
           num_draft_tokens <= limits.max_draft_tokens && num_copies <= limits.max_rows;
  }
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STEP_LAUNCH_TOTALS_H_
