// SPDX-License-Identifier: Apache-2.0
#include "tools/profile/decode_rows.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <span>

#include "runtime/status_macros.h"

namespace reprise::tools {

uint64_t BlocksOf(uint64_t rows, uint64_t context, uint32_t block_size) {
  return rows * ((context + block_size - 1) / block_size);
}

DecodeRows::DecodeRows(engine::DecodeEngine& engine, uint32_t rows, uint32_t context,
                       const engine::SamplingParams& sampling)
    : engine_(engine),
      session_(engine.OpenSession()),
      rows_(rows),
      context_(context),
      sampling_(sampling) {}

absl::Status DecodeRows::Allocate() {
  const uint32_t block_size = engine_.pool().block_size;
  const auto count = static_cast<uint32_t>(BlocksOf(rows_, context_, block_size));
  REPRISE_ASSIGN_OR_RETURN(blocks_, engine_.AllocateBlocks(session_.id, count));
  std::shuffle(blocks_.begin(), blocks_.end(), std::mt19937_64(1));
  const auto vocab = static_cast<uint32_t>(engine_.info().model.vocab_size);
  for (uint32_t row = 0; row < rows_; ++row) {
    ids_.push_back(row);
    tokens_.push_back(row * 7919 % vocab);
  }
  if (engine::HasPenalties(sampling_)) {
    std::mt19937_64 random(2);
    for (uint32_t i = 0; i < context_; ++i)
      history_.push_back(static_cast<uint32_t>(random() % vocab));
  }
  return absl::OkStatus();
}

engine::StepRequest DecodeRows::Request() {
  engine::StepRequest request;
  request.session = session_.id;
  request.epoch = session_.epoch;
  request.sequence = ++sequence_;
  return request;
}

engine::StepRequest DecodeRows::ContinueRequest() {
  engine::StepRequest request = Request();
  request.continue_all = true;
  return request;
}

engine::StepRequest DecodeRows::AddRequest(uint32_t context) {
  const size_t each = blocks_.size() / rows_;
  add_.clear();
  chunks_.clear();
  for (uint32_t row = 0; row < rows_; ++row) {
    engine::SamplingParams sampling = sampling_;
    sampling.seed += row;
    engine::RowAdd add{.row = row,
                       .sampling = sampling,
                       .context_length = context - 1,
                       .blocks = std::span(blocks_).subspan(row * each, each)};
    if (!history_.empty()) add.history = std::span(history_).first(context - 1);
    add_.push_back(add);
    chunks_.push_back({.row = row, .sample = true, .tokens = std::span(tokens_).subspan(row, 1)});
  }
  engine::StepRequest request = Request();
  if (resident_) request.drop = ids_;
  request.add = add_;
  request.chunks = chunks_;
  return request;
}

absl::Status DecodeRows::AddAll(uint32_t context, engine::StepResult* result) {
  REPRISE_RETURN_IF_ERROR(engine_.Step(AddRequest(context), result));
  resident_ = true;
  return absl::OkStatus();
}

absl::StatusOr<engine::StepTicket> DecodeRows::SubmitAll(uint32_t context) {
  REPRISE_ASSIGN_OR_RETURN(const engine::StepTicket ticket, engine_.Submit(AddRequest(context)));
  resident_ = true;
  return ticket;
}

}  // namespace reprise::tools
