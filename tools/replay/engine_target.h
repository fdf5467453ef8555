// SPDX-License-Identifier: Apache-2.0
// EngineTarget: a session of an engine in this process, reached through the service's own
// conversions between wire and structs.
#ifndef REPRISE_TOOLS_REPLAY_ENGINE_TARGET_H_
#define REPRISE_TOOLS_REPLAY_ENGINE_TARGET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/decode_engine.h"
#include "service/wire/step_from_wire.h"
#include "tools/replay/replay_target.h"

namespace reprise::tools {

class EngineTarget final : public ReplayTarget {
 public:
  // Opens a session of `engine`, which must outlive the target.
  explicit EngineTarget(engine::DecodeEngine* engine);
  // Closes it.
  ~EngineTarget() override;

  absl::StatusOr<std::vector<uint32_t>> Allocate(uint32_t count) override;
  absl::Status Free(const std::vector<uint32_t>& blocks) override;
  absl::Status Write(const v1::WriteBlocksRequest& write) override;
  absl::StatusOr<std::vector<uint32_t>> SwapOut(const std::vector<uint32_t>& blocks) override;
  absl::StatusOr<std::vector<uint32_t>> SwapIn(const std::vector<uint32_t>& swapped) override;
  absl::StatusOr<engine::SwappedState> SwapOutState(uint32_t row) override;
  absl::Status FreeSwapped(const std::vector<uint32_t>& swapped,
                           const std::vector<uint32_t>& states) override;
  absl::Status Share(const std::string& name, const std::vector<uint32_t>& blocks) override;
  absl::Status Release(const std::string& name) override;
  absl::Status Step(const v1::StepRequest& step, v1::StepStreamResponse* answer) override;

 private:
  absl::Status Run(const v1::StepRequest& step);

  engine::DecodeEngine* const engine_;
  const engine::SessionInfo session_;
  service::StepScratch scratch_;
  engine::StepRequest request_;
  engine::StepResult result_;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_REPLAY_ENGINE_TARGET_H_
