// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/step_rows.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <span>
#include <utility>

#include "runtime/status_macros.h"

namespace reprise::tools {

StepRows::StepRows(engine::DecodeEngine& engine, StepPoint point,
                   const engine::SamplingParams& sampling)
    : engine_(engine),
      session_(engine.OpenSession()),
      point_(std::move(point)),
      contexts_(point_.contexts()),
      sampling_(sampling) {}

absl::Status StepRows::Allocate() {
  const auto count = static_cast<uint32_t>(BlocksOf(point_, engine_.pool().block_size));
  REPRISE_ASSIGN_OR_RETURN(blocks_, engine_.AllocateBlocks(session_.id, count));
  std::shuffle(blocks_.begin(), blocks_.end(), std::mt19937_64(1));
  const auto vocab = static_cast<uint32_t>(engine_.info().model.vocab_size);
  for (uint32_t row = 0; row < point_.num_rows(); ++row) ids_.push_back(row);
  for (uint32_t i = 0; i < point_.num_tokens(); ++i) tokens_.push_back(i * 7919 % vocab);
  if (engine::HasPenalties(sampling_)) {
    std::mt19937_64 random(2);
    for (uint32_t i = 0; i < point_.context; ++i)
      history_.push_back(static_cast<uint32_t>(random() % vocab));
  }
  return absl::OkStatus();
}

engine::StepRequest StepRows::Request() {
  engine::StepRequest request;
  request.session = session_.id;
  request.epoch = session_.epoch;
  request.sequence = ++sequence_;
  return request;
}

// Their blocks and tokens lie behind those of the rows that decode.
void StepRows::AddPrompts() {
  const uint32_t block_size = engine_.pool().block_size;
  StepPoint decode = point_;
  decode.prompts.clear();
  std::span<const uint32_t> blocks(blocks_), tokens(tokens_);
  blocks = blocks.subspan(BlocksOf(decode, block_size));
  tokens = tokens.subspan(point_.rows);
  for (size_t i = 0; i < point_.prompts.size(); ++i) {
    const uint32_t row = ids_[point_.rows + i];
    const size_t count = BlocksOf({.rows = 1, .context = point_.prompts[i]}, block_size);
    engine::SamplingParams sampling = sampling_;
    sampling.seed += row;
    add_.push_back({.row = row, .sampling = sampling, .blocks = blocks.first(count)});
    chunks_.push_back({.row = row, .sample = true, .tokens = tokens.first(point_.prompts[i])});
    blocks = blocks.subspan(count);
    tokens = tokens.subspan(point_.prompts[i]);
  }
}

engine::StepRequest StepRows::ContinueRequest() {
  const std::span<const uint32_t> ids(ids_);
  engine::StepRequest request = Request();
  if (point_.is_decode()) {
    request.continue_all = true;
    return request;
  }
  add_.clear();
  chunks_.clear();
  AddPrompts();
  request.drop = ids.subspan(point_.rows);
  request.add = add_;
  request.chunks = chunks_;
  request.continue_rows = ids.first(point_.rows);
  return request;
}

engine::StepRequest StepRows::AddRequest(uint32_t context) {
  std::span<const uint32_t> blocks(blocks_);
  add_.clear();
  chunks_.clear();
  for (uint32_t row = 0; row < point_.rows; ++row) {
    const size_t count =
        BlocksOf({.rows = 1, .context = contexts_[row]}, engine_.pool().block_size);
    // Each row is as far from its end as the longest.
    const uint32_t held = contexts_[row] - (point_.context - context) - 1;
    engine::SamplingParams sampling = sampling_;
    sampling.seed += row;
    engine::RowAdd add{
        .row = row, .sampling = sampling, .context_length = held, .blocks = blocks.first(count)};
    blocks = blocks.subspan(count);
    if (!history_.empty()) add.history = std::span(history_).first(held);
    add_.push_back(add);
    chunks_.push_back({.row = row, .sample = true, .tokens = std::span(tokens_).subspan(row, 1)});
  }
  AddPrompts();
  engine::StepRequest request = Request();
  if (resident_) request.drop = ids_;
  request.add = add_;
  request.chunks = chunks_;
  return request;
}

absl::Status StepRows::AddAll(uint32_t context, engine::StepResult* result) {
  REPRISE_RETURN_IF_ERROR(engine_.Step(AddRequest(context), result));
  resident_ = true;
  return absl::OkStatus();
}

absl::StatusOr<engine::StepTicket> StepRows::SubmitAll(uint32_t context) {
  REPRISE_ASSIGN_OR_RETURN(const engine::StepTicket ticket, engine_.Submit(AddRequest(context)));
  resident_ = true;
  return ticket;
}

}  // namespace reprise::tools
