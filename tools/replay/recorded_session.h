// SPDX-License-Identifier: Apache-2.0
// A recorded session as it is repeated: its calls in the order in which they took effect, and
// repeating them. Blocks, and what is in swap space, are named by the ids that the replay was given
// in place of the recorded ones: which blocks a row's tokens lie in changes nothing of its bits.
#ifndef REPRISE_TOOLS_REPLAY_RECORDED_SESSION_H_
#define REPRISE_TOOLS_REPLAY_RECORDED_SESSION_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reprise/v1/record.pb.h"
#include "service/record/record_format.h"
#include "tools/replay/answer_difference.h"
#include "tools/replay/replay_needs.h"
#include "tools/replay/replay_target.h"

namespace reprise::tools {

// Views the recording. Leaves out calls about blocks behind the last step, which no answer depends
// on, and, where a record is missing, everything from there on.
struct RecordedSession {
  explicit RecordedSession(const service::Recording& recording);

  std::vector<const v1::SessionRecord*> calls;
  uint64_t num_steps = 0;
  // The first step that is not there although later ones are; 0: none.
  uint64_t missing_step = 0;
  ReplayNeeds needs;  // of these calls
};

struct ReplayResult {
  uint64_t steps = 0;               // requests that were repeated
  uint64_t rows = 0;                // results that were compared
  uint64_t steps_without_rows = 0;  // of omit_rows: nothing to compare
  std::optional<AnswerDifference> difference = {};

  // Whether it says anything of the answers: without rows none of them could have differed.
  bool has_compared() const { return rows > 0 || difference.has_value(); }
};

// Repeats the session's calls, each when the one before has its answer, up to the first difference
// or until `interrupted`. Errors: the target's; DataLoss where the recording contradicts itself.
// They name the step: "step 17: ", or of a call about blocks "before step 17: ".
absl::StatusOr<ReplayResult> ReplaySession(const RecordedSession& session, ReplayTarget* target,
                                           const std::atomic<bool>& interrupted);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_REPLAY_RECORDED_SESSION_H_
