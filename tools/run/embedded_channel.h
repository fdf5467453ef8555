// SPDX-License-Identifier: Apache-2.0
// EmbeddedChannel: the scheduler's steps into an engine in this process, no server between. The
// counterpart of sched/client.h.
#ifndef REPRISE_TOOLS_RUN_EMBEDDED_CHANNEL_H_
#define REPRISE_TOOLS_RUN_EMBEDDED_CHANNEL_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/decode_engine.h"
#include "engine/session_info.h"
#include "engine/step_result.h"
#include "tools/sched/channel.h"

namespace reprise::tools {

class EmbeddedChannel : public StepChannel, public BlockSource {
 public:
  // Opens a session of `engine`, which must outlive the channel.
  explicit EmbeddedChannel(engine::DecodeEngine* engine);
  // Closes it.
  ~EmbeddedChannel() override;

  absl::Status Submit(const PlannedStep& step) override;
  absl::Status Receive(StepOutcome* outcome) override;
  absl::StatusOr<std::vector<uint32_t>> Allocate(uint32_t count) override;
  absl::Status Free(const std::vector<uint32_t>& blocks) override;

 private:
  struct InFlight {
    uint64_t sequence = 0;
    std::chrono::steady_clock::time_point submitted;
    absl::StatusOr<engine::StepTicket> ticket;  // or why the step was refused
  };
  engine::DecodeEngine* engine_;
  engine::SessionInfo session_;
  std::deque<InFlight> in_flight_;
};

// What the scheduler must know of `engine`.
ServerInfo ServerInfoOf(const engine::DecodeEngine& engine);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_RUN_EMBEDDED_CHANNEL_H_
