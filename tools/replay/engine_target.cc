// SPDX-License-Identifier: Apache-2.0
#include "tools/replay/engine_target.h"

#include "runtime/status_macros.h"
#include "service/step_times.h"
#include "service/wire/result_to_wire.h"

namespace reprise::tools {

EngineTarget::EngineTarget(engine::DecodeEngine* engine)
    : engine_(engine), session_(engine->OpenSession()) {}

EngineTarget::~EngineTarget() { engine_->CloseSession(session_.id).IgnoreError(); }

absl::StatusOr<std::vector<uint32_t>> EngineTarget::Allocate(uint32_t count) {
  return engine_->AllocateBlocks(session_.id, count);
}

absl::Status EngineTarget::Free(const std::vector<uint32_t>& blocks) {
  return engine_->FreeBlocks(session_.id, blocks);
}

absl::Status EngineTarget::Run(const v1::StepRequest& step) {
  REPRISE_RETURN_IF_ERROR(service::StepFromWire(step, &scratch_, &request_));
  request_.session = session_.id;
  request_.epoch = session_.epoch;
  return engine_->Step(request_, &result_);
}

absl::Status EngineTarget::Step(const v1::StepRequest& step, v1::StepStreamResponse* answer) {
  const absl::Status ran = Run(step);
  // After a fault of the device nothing that follows says anything of the recording.
  REPRISE_RETURN_IF_ERROR(engine_->health());
  if (ran.ok()) {
    service::ResultToWire(result_, service::StepTimes(), step.omit_rows(), answer->mutable_step());
  } else {
    service::ErrorToWire(step.sequence(), ran, answer->mutable_error());
  }
  return absl::OkStatus();
}

}  // namespace reprise::tools
