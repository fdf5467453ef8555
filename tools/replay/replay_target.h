// SPDX-License-Identifier: Apache-2.0
// ReplayTarget: what a recorded session is repeated against: an engine in this process, or a
// running server. It speaks the wire's messages, as the recording does.
#ifndef REPRISE_TOOLS_REPLAY_REPLAY_TARGET_H_
#define REPRISE_TOOLS_REPLAY_REPLAY_TARGET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/kv_part.h"
#include "reprise/v1/step_service.pb.h"

namespace reprise::tools {

// One session. One thread.
class ReplayTarget {
 public:
  virtual ~ReplayTarget() = default;
  virtual absl::StatusOr<std::vector<uint32_t>> Allocate(uint32_t count) = 0;
  virtual absl::Status Free(const std::vector<uint32_t>& blocks) = 0;
  // Contents, into blocks of the session. Errors: also FailedPrecondition, where they are of
  // another model, or lie otherwise.
  virtual absl::Status Write(const v1::WriteBlocksRequest& write) = 0;
  // What blocks that are moved are called there.
  virtual absl::StatusOr<std::vector<uint32_t>> SwapOut(const std::vector<uint32_t>& blocks) = 0;
  virtual absl::StatusOr<std::vector<uint32_t>> SwapIn(const std::vector<uint32_t>& swapped) = 0;
  virtual absl::StatusOr<engine::SwappedState> SwapOutState(uint32_t row) = 0;
  virtual absl::Status FreeSwapped(const std::vector<uint32_t>& swapped,
                                   const std::vector<uint32_t>& states) = 0;
  virtual absl::Status Share(const std::string& name, const std::vector<uint32_t>& blocks) = 0;
  virtual absl::Status Release(const std::string& name) = 0;
  // Runs the step and waits for its answer: a result, or the refusal. An error means that the
  // session is gone.
  virtual absl::Status Step(const v1::StepRequest& step, v1::StepStreamResponse* answer) = 0;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_REPLAY_REPLAY_TARGET_H_
