// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/server_rows.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

// Tokens that are in the vocabulary, and not all the same.
std::vector<uint32_t> TokensFrom(uint32_t first, uint32_t count, uint32_t vocab_size) {
  std::vector<uint32_t> tokens(count);
  for (uint32_t i = 0; i < count; ++i)
    tokens[i] = static_cast<uint32_t>((uint64_t{first} + i) * 7919 % vocab_size);
  return tokens;
}

}  // namespace

absl::Status StepSession::Step(PlannedStep step, StepOutcome* outcome) {
  step.sequence = last_sequence_ + 1;
  REPRISE_RETURN_IF_ERROR(channel_->Submit(step));
  REPRISE_RETURN_IF_ERROR(channel_->Receive(outcome));
  REPRISE_RETURN_IF_ERROR(outcome->refusal);
  if (outcome->sequence != step.sequence) {
    return absl::InternalError(absl::StrCat("step result: got sequence ", outcome->sequence,
                                            ", allowed: ", step.sequence, ", the one in flight"));
  }
  last_sequence_ = step.sequence;
  return absl::OkStatus();
}

ServerRows::ServerRows(StepSession* session, StepPoint point)
    : session_(*session), point_(std::move(point)), contexts_(point_.contexts()) {
  for (uint32_t row = 0; row < point_.num_rows(); ++row) ids_.push_back(row);
}

std::vector<uint32_t> ServerRows::TakeBlocks(uint32_t tokens, size_t* next) const {
  const uint64_t count =
      BlocksOf({.rows = 1, .context = tokens}, session_.server().limits.block_size);
  const auto begin = blocks_.begin() + static_cast<std::ptrdiff_t>(*next);
  *next += count;
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

absl::Status ServerRows::Prefill(GoOnFn go_on) {
  go_on_ = std::move(go_on);
  const auto count = static_cast<uint32_t>(BlocksOf(point_, session_.server().limits.block_size));
  REPRISE_ASSIGN_OR_RETURN(blocks_, session_.source().Allocate(count));
  // Scattered, as they are after a while of serving.
  std::shuffle(blocks_.begin(), blocks_.end(), std::mt19937_64(1));
  return carries_state() ? absl::OkStatus() : Write(point_.context);
}

absl::Status ServerRows::Write(uint32_t context) {
  const kernels::StepLimits& limits = session_.server().limits;
  StepOutcome outcome;
  PlannedStep step;
  step.drop = std::exchange(resident_, {});
  uint32_t room = limits.max_prompt_tokens;
  const auto run = [&]() -> absl::Status {
    REPRISE_RETURN_IF_ERROR(go_on_());
    REPRISE_RETURN_IF_ERROR(session_.Step(std::exchange(step, {}), &outcome));
    room = limits.max_prompt_tokens;
    return absl::OkStatus();
  };
  size_t next_block = 0;
  for (uint32_t row = 0; row < point_.rows; ++row) {
    const std::vector<uint32_t> blocks = TakeBlocks(contexts_[row], &next_block);
    const uint32_t tokens = HeldBefore(context, row);
    if (tokens == 0) continue;
    step.add.push_back({.row = row, .blocks = blocks});
    resident_.push_back(row);
    for (uint32_t done = 0; done < tokens;) {
      const uint32_t chunk = std::min(room, tokens - done);
      step.chunks.push_back({.row = row,
                             .tokens = TokensFrom(row + done, chunk, limits.vocab_size),
                             .sample = false});
      done += chunk;
      room -= chunk;
      if (room == 0) REPRISE_RETURN_IF_ERROR(run());
    }
  }
  return step.chunks.empty() && step.drop.empty() ? absl::OkStatus() : run();
}

void ServerRows::AddPrompts(PlannedStep* step) const {
  StepPoint decode = point_;
  decode.prompts.clear();
  const kernels::StepLimits& limits = session_.server().limits;
  size_t next_block = BlocksOf(decode, limits.block_size);
  for (size_t i = 0; i < point_.prompts.size(); ++i) {
    const uint32_t row = ids_[point_.rows + i];
    const uint32_t tokens = point_.prompts[i];
    step->add.push_back({.row = row, .blocks = TakeBlocks(tokens, &next_block)});
    step->chunks.push_back({.row = row, .tokens = TokensFrom(row, tokens, limits.vocab_size)});
  }
}

absl::Status ServerRows::AddAll(uint32_t context, StepOutcome* outcome) {
  if (carries_state()) REPRISE_RETURN_IF_ERROR(Write(context));
  PlannedStep step;
  if (!carries_state()) step.drop = std::exchange(resident_, {});
  size_t next_block = 0;
  for (uint32_t row = 0; row < point_.rows; ++row) {
    const uint32_t held = HeldBefore(context, row);
    const std::vector<uint32_t> blocks = TakeBlocks(contexts_[row], &next_block);
    const bool is_there = carries_state() && held > 0;
    if (!is_there) step.add.push_back({.row = row, .blocks = blocks, .context_length = held});
    step.chunks.push_back(
        {.row = row, .tokens = TokensFrom(row, 1, session_.server().limits.vocab_size)});
  }
  AddPrompts(&step);
  REPRISE_RETURN_IF_ERROR(session_.Step(std::move(step), outcome));
  resident_ = ids_;
  return absl::OkStatus();
}

absl::Status ServerRows::Continue(engine::StepForm form, StepOutcome* outcome) {
  PlannedStep step;
  step.form = form;
  if (point_.is_decode()) {
    step.continue_all = true;
    return session_.Step(std::move(step), outcome);
  }
  step.drop.assign(ids_.begin() + point_.rows, ids_.end());
  step.continue_rows.assign(ids_.begin(), ids_.begin() + point_.rows);
  AddPrompts(&step);
  return session_.Step(std::move(step), outcome);
}

absl::Status ServerRows::Release() {
  StepOutcome outcome;
  PlannedStep step;
  step.drop = std::exchange(resident_, {});
  REPRISE_RETURN_IF_ERROR(session_.Step(std::move(step), &outcome));
  return session_.source().Free(std::exchange(blocks_, {}));
}

}  // namespace reprise::tools
