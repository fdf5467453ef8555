// SPDX-License-Identifier: Apache-2.0
// Replayer: one recorded session on its way through a target: repeats calls one by one, with the
// numbers that it was given in place of the recorded ones, and compares answers. One thread.
#ifndef REPRISE_TOOLS_REPLAY_REPLAYER_H_
#define REPRISE_TOOLS_REPLAY_REPLAYER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "reprise/v1/record.pb.h"
#include "tools/replay/recorded_session.h"
#include "tools/replay/replay_target.h"
#include "tools/replay/replayed_ids.h"

namespace reprise::tools {

class Replayer {
 public:
  // `target` must outlive it.
  explicit Replayer(ReplayTarget* target);

  // Errors: as ReplaySession's.
  absl::Status Repeat(const v1::SessionRecord& call);
  const ReplayResult& result() const { return result_; }

 private:
  // Blocks that the session uses under a name, and the name that they have here.
  struct Shared {
    std::string name;
    ReplayedIds::Recorded blocks;
  };

  absl::Status RepeatKvCall(const v1::SessionRecord& call);
  absl::Status RepeatAllocate(const ReplayedIds::Recorded& recorded);
  absl::Status RepeatFree(const v1::FreeRequest& recorded);
  absl::Status RepeatWrite(const v1::WriteBlocksRequest& recorded);
  absl::Status RepeatSwapOut(const v1::SessionRecord& call);
  absl::Status RepeatSwapIn(const v1::SessionRecord& call);
  absl::Status RepeatSwapOutState(const v1::SessionRecord& call);
  absl::Status RepeatFreeSwapped(const v1::FreeSwappedRequest& recorded);
  absl::Status RepeatShare(const v1::ShareBlocksRequest& recorded);
  absl::Status RepeatRelease(const v1::ReleaseBlocksRequest& recorded);
  absl::Status RepeatStep(const v1::SessionRecord& call);
  // The step with the numbers of the replay, and its answer.
  absl::Status SendStep(const v1::SessionRecord& call);
  absl::Status MapAdded(bool is_refused_alone, v1::AddRow* row) const;
  // is_refused_alone: a row that names a block which is not the session's was refused by itself,
  // and is again: it names one that nobody has.
  absl::Status MapBlocks(bool is_refused_alone, ReplayedIds::Recorded* blocks) const;

  ReplayTarget& target_;
  // Others on the same server share blocks, too, perhaps of the same recording.
  const std::string name_prefix_;
  uint64_t num_names_ = 0;
  ReplayedIds blocks_{"block", "allocated"};
  ReplayedIds swapped_{"swapped block", "swapped out"};
  ReplayedIds states_{"swapped state", "swapped out"};
  std::map<std::string, Shared> shared_;  // by what stands for the name in the recording
  ReplayResult result_;
  v1::StepRequest step_;
  v1::StepStreamResponse answer_;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_REPLAY_REPLAYER_H_
