// SPDX-License-Identifier: Apache-2.0
// ReplayNeeds: what a recorded session had at a time, for which whatever repeats it needs room; and
// how it is counted.
#ifndef REPRISE_TOOLS_REPLAY_REPLAY_NEEDS_H_
#define REPRISE_TOOLS_REPLAY_REPLAY_NEEDS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "reprise/v1/record.pb.h"

namespace reprise::tools {

struct ReplayNeeds {
  uint32_t blocks = 0;       // KV blocks of the pool
  uint32_t swap_blocks = 0;  // of swap space
  uint32_t swap_states = 0;  // states of rows there

  // Room for either of both.
  void Widen(const ReplayNeeds& other) {
    blocks = std::max(blocks, other.blocks);
    swap_blocks = std::max(swap_blocks, other.swap_blocks);
    swap_states = std::max(swap_states, other.swap_states);
  }
};

// Whether a server has the swap space. Errors: FailedPrecondition: what, got, allowed.
absl::Status CheckSwapSpace(const ReplayNeeds& needs, const v1::DescribeResponse& got);

// Follows the calls of a session, in order.
class NeedsCounter {
 public:
  void Note(const v1::SessionRecord& call);
  // The most of each so far.
  const ReplayNeeds& most() const { return most_; }

 private:
  void NoteStates(const v1::SessionRecord& step);

  ReplayNeeds held_;
  ReplayNeeds most_;
  std::set<uint32_t> states_;               // that are in swap space
  std::map<std::string, uint32_t> shared_;  // blocks, by name
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_REPLAY_REPLAY_NEEDS_H_
