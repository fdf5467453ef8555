// SPDX-License-Identifier: Apache-2.0
#include "tools/replay/engine_target.h"

#include "engine/kv_part.h"
#include "runtime/status_macros.h"
#include "service/kv/kv_wire.h"
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

absl::Status EngineTarget::Write(const v1::WriteBlocksRequest& write) {
  const engine::KvShape& shape = engine_->info().kv;
  v1::KvLayout own;
  // That the model is the recorded one, its config says.
  service::KvLayoutToWire(shape, write.layout().model(), &own);
  REPRISE_RETURN_IF_ERROR(service::CheckKvLayout(write.layout(), own));
  REPRISE_ASSIGN_OR_RETURN(const service::KvParts parts, service::PartsFromWire(shape, write));
  return engine_->WriteBlocks(session_.id, parts.parts, parts.contents);
}

absl::StatusOr<std::vector<uint32_t>> EngineTarget::SwapOut(const std::vector<uint32_t>& blocks) {
  return engine_->SwapOut(session_.id, blocks);
}

absl::StatusOr<std::vector<uint32_t>> EngineTarget::SwapIn(const std::vector<uint32_t>& swapped) {
  return engine_->SwapIn(session_.id, swapped);
}

absl::StatusOr<engine::SwappedState> EngineTarget::SwapOutState(uint32_t row) {
  return engine_->SwapOutState(session_.id, row);
}

absl::Status EngineTarget::FreeSwapped(const std::vector<uint32_t>& swapped,
                                       const std::vector<uint32_t>& states) {
  return engine_->FreeSwapped(session_.id, swapped, states);
}

absl::Status EngineTarget::Share(const std::string& name, const std::vector<uint32_t>& blocks) {
  return engine_->ShareBlocks(session_.id, name, blocks);
}

absl::Status EngineTarget::Release(const std::string& name) {
  return engine_->ReleaseBlocks(session_.id, name);
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
