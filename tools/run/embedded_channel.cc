// SPDX-License-Identifier: Apache-2.0
#include "tools/run/embedded_channel.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/step_draft.h"
#include "runtime/status_macros.h"

namespace reprise::tools {

EmbeddedChannel::EmbeddedChannel(engine::DecodeEngine* engine)
    : engine_(engine), session_(engine->OpenSession()) {}

EmbeddedChannel::~EmbeddedChannel() {
  // After an error the session's steps may still run; their results are nobody's any more.
  engine::StepResult result;
  for (const InFlight& step : in_flight_) {
    if (step.ticket.ok()) engine_->Wait(*step.ticket, &result).IgnoreError();
  }
  engine_->CloseSession(session_.id).IgnoreError();
}

absl::Status EmbeddedChannel::Submit(const PlannedStep& step) {
  const auto now = std::chrono::steady_clock::now();
  const engine::DraftView view(step, session_, step.sequence);
  in_flight_.push_back({step.sequence, now, engine_->Submit(view.request())});
  return absl::OkStatus();
}

absl::Status EmbeddedChannel::Receive(StepOutcome* outcome) {
  const InFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (!step.ticket.ok()) {
    outcome->sequence = step.sequence;
    outcome->refusal = absl::Status(
        step.ticket.status().code(),
        absl::StrCat("step ", step.sequence, " was refused: ", step.ticket.status().message()));
    return absl::OkStatus();
  }
  REPRISE_RETURN_IF_ERROR(engine_->Wait(*step.ticket, outcome));
  outcome->refusal = absl::OkStatus();
  outcome->round_trip_ns = static_cast<uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now() - step.submitted).count());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint32_t>> EmbeddedChannel::Allocate(uint32_t count) {
  return engine_->AllocateBlocks(session_.id, count);
}

absl::Status EmbeddedChannel::Free(const std::vector<uint32_t>& blocks) {
  return engine_->FreeBlocks(session_.id, blocks);
}

ServerInfo ServerInfoOf(const engine::DecodeEngine& engine) {
  const engine::EngineInfo& info = engine.info();
  return {.limits = info.limits,
          .num_blocks = engine.pool().num_blocks,
          .eos_token_ids = info.model.eos_token_ids,
          .byte_tokens = info.model.token_encoding == models::TokenEncoding::kBytes};
}

}  // namespace reprise::tools
