// SPDX-License-Identifier: Apache-2.0
#include "tools/run/embedded_channel.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::tools {
namespace {

RowFinish FromFinish(engine::FinishReason finish) {
  switch (finish) {
    case engine::FinishReason::kNone:
      return RowFinish::kNone;
    case engine::FinishReason::kStopToken:
      return RowFinish::kStopToken;
    case engine::FinishReason::kLength:
      return RowFinish::kLength;
    case engine::FinishReason::kNoCandidate:
      return RowFinish::kNoCandidate;
  }
  return RowFinish::kNone;
}

void FromResult(const engine::StepResult& result, StepOutcome* outcome) {
  outcome->refusal = absl::OkStatus();
  outcome->graph = std::string(result.report.graph);
  outcome->replayed = result.report.replayed;
  outcome->tokens = result.report.tokens;
  outcome->padding_rows = result.report.padding_rows;
  outcome->padding_tokens = result.report.padding_tokens;
  outcome->ledger = {.validate_ns = result.ledger.validate_ns,
                     .ring_ns = result.ledger.ring_ns,
                     .launch_ns = result.ledger.launch_ns,
                     .device_ns = result.ledger.device_ns,
                     .total_ns = result.ledger.total_ns};
  outcome->rows.clear();
  for (const engine::RowOutcome& row : result.rows) {
    outcome->rows.push_back({.row = row.row,
                             .ran = row.status == engine::RowStatus::kRan,
                             .sampled = row.sampled,
                             .token = row.token,
                             .logprob = row.logprob,
                             .context_length = row.context_length,
                             .finish = FromFinish(row.finish),
                             .rank = row.rank});
    for (uint32_t i = 0; i < row.top.count; ++i) {
      const engine::TokenLogprob& top = result.top_logprobs[row.top.begin + i];
      outcome->rows.back().top.push_back({top.token, top.logprob});
    }
  }
}

// Views `add` and `biases`.
engine::SamplingParams ToSampling(const PlannedStep::Add& add,
                                  std::vector<engine::TokenBias>* biases) {
  const SamplingChoice& from = add.sampling;
  for (size_t i = 0; i < from.logit_bias.size(); ++i)
    biases->push_back({.token = from.logit_bias_tokens[i], .bias = from.logit_bias[i]});
  return {.temperature = add.temperature,
          .seed = add.seed,
          .top_k = from.top_k,
          .top_p = from.top_p,
          .min_p = from.min_p,
          .repetition_penalty = from.repetition_penalty,
          .presence_penalty = from.presence_penalty,
          .frequency_penalty = from.frequency_penalty,
          .logit_bias = *biases,
          .stop_tokens = from.stop_tokens,
          .num_logprobs = from.num_logprobs};
}

}  // namespace

EmbeddedChannel::EmbeddedChannel(engine::DecodeEngine* engine)
    : engine_(engine), session_(engine->OpenSession()) {}

EmbeddedChannel::~EmbeddedChannel() {
  // After an error the session's steps may still run; their results are nobody's any more.
  for (const InFlight& step : in_flight_) {
    if (step.ticket.ok()) engine_->Wait(*step.ticket, &result_).IgnoreError();
  }
  engine_->CloseSession(session_.id).IgnoreError();
}

absl::Status EmbeddedChannel::Submit(const PlannedStep& step) {
  const auto now = std::chrono::steady_clock::now();
  add_.clear();
  append_.clear();
  chunks_.clear();
  biases_.assign(step.add.size(), {});
  for (size_t i = 0; i < step.add.size(); ++i) {
    const PlannedStep::Add& add = step.add[i];
    add_.push_back({.row = add.row,
                    .sampling = ToSampling(add, &biases_[i]),
                    .blocks = add.blocks,
                    .prompt_length = add.prompt_length});
  }
  for (const PlannedStep::Append& append : step.append) {
    append_.push_back({.row = append.row, .blocks = append.blocks});
  }
  for (const PlannedStep::Chunk& chunk : step.chunks) {
    chunks_.push_back({.row = chunk.row, .sample = chunk.sample, .tokens = chunk.tokens});
  }
  const engine::StepRequest request{
      .session = session_.id,
      .epoch = session_.epoch,
      .sequence = step.sequence,
      .drop = step.drop,
      .add = add_,
      .append = append_,
      .chunks = chunks_,
      .continue_rows = step.continue_rows,
      .continue_all = step.continue_all,
      .mode = step.eager ? engine::ExecutionMode::kEager : engine::ExecutionMode::kReplay};
  in_flight_.push_back({step.sequence, now, engine_->Submit(request)});
  return absl::OkStatus();
}

absl::Status EmbeddedChannel::Receive(StepOutcome* outcome) {
  const InFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  outcome->sequence = step.sequence;
  if (!step.ticket.ok()) {
    outcome->refusal = absl::Status(
        step.ticket.status().code(),
        absl::StrCat("step ", step.sequence, " was refused: ", step.ticket.status().message()));
    return absl::OkStatus();
  }
  REPRISE_RETURN_IF_ERROR(engine_->Wait(*step.ticket, &result_));
  FromResult(result_, outcome);
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

ServerLimits LimitsOf(const engine::DecodeEngine& engine) {
  const engine::EngineInfo& info = engine.info();
  const engine::PoolInfo pool = engine.pool();
  int64_t max_prompt_tokens = 0;
  for (const graphs::CapturedBucket& captured : info.mixed_buckets) {
    max_prompt_tokens = std::max(max_prompt_tokens, captured.bucket.capacity);
  }
  return {.block_size = pool.block_size,
          .num_blocks = pool.num_blocks,
          .max_rows = info.limits.max_rows,
          .max_context_length = info.limits.max_context_length,
          .max_step_tokens = info.limits.max_step_tokens,
          .max_prompt_tokens = static_cast<uint32_t>(max_prompt_tokens),
          .pipeline_depth = info.limits.pipeline_depth,
          .vocab_size = static_cast<uint32_t>(info.model.vocab_size),
          .eos_token_ids = info.model.eos_token_ids,
          .byte_tokens = info.model.token_encoding == models::TokenEncoding::kBytes};
}

}  // namespace reprise::tools
