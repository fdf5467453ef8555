// SPDX-License-Identifier: Apache-2.0
#include "service/message_bounds.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "engine/step/sampling.h"
#include "service/wire/result_to_wire.h"

namespace reprise::service {
namespace {

kernels::StepLimits LimitsOf(uint32_t vocab_size) {
  kernels::StepLimits limits{.vocab_size = vocab_size,
                             .max_rows = 256,
                             .max_context_length = 131072,
                             .max_blocks_per_row = 8192,
                             .max_step_tokens = 2048,
                             .pipeline_depth = 2,
                             .max_steps_per_request = 8,
                             .adjust_logits = true,
                             .max_logit_rows = 4,
                             .max_prompt_logprobs = 64,
                             .max_draft_tokens = 64,
                             .max_stop_tokens = 64,
                             .max_logit_bias = 512,
                             .max_logprobs = 32};
  limits.max_sampling_bytes = 4 * engine::MaxSamplingWords(limits);
  return limits;
}

constexpr uint32_t kLongest = 0xfffffff0;  // an id of five bytes

void FillSampling(const kernels::StepLimits& limits, uint32_t vocab_size, v1::Sampling* s) {
  for (const char* name : {"temperature", "top_p", "min_p", "repetition_penalty",
                           "presence_penalty", "frequency_penalty"}) {
    s->GetReflection()->SetFloat(s, s->GetDescriptor()->FindFieldByName(name), 0.5f);
  }
  s->set_seed(~uint64_t{0});
  s->set_top_k(kLongest);
  s->set_num_logprobs(limits.max_logprobs);
  s->set_max_new_tokens(kLongest);
  s->set_min_tokens(kLongest);
  s->set_stop_at_eos(true);
  s->set_return_logits(true);
  for (uint32_t i = 0; i < limits.max_logit_bias; ++i) {
    s->add_logit_bias_token(kLongest);
    s->add_logit_bias(1.0f);
  }
  for (uint32_t i = 0; i < limits.max_stop_tokens; ++i) s->add_stop_tokens(kLongest);
  s->set_allowed_tokens(std::string((vocab_size + 7) / 8, '\xff'));
}

void FillStep(const kernels::StepLimits& limits, uint32_t vocab_size, v1::StepRequest* step) {
  step->set_session(std::string(16, '\xff'));
  step->set_sequence(~uint64_t{0});
  step->set_trace_id(std::string(16, '\xff'));
  step->set_mode(v1::EXECUTION_MODE_EAGER);
  step->set_num_steps(kLongest);
  for (uint32_t i = 0; i < limits.max_rows; ++i) {
    step->add_drop(kLongest);
    v1::AddRow* add = step->add_add();
    add->set_row(kLongest);
    add->set_context_length(kLongest);
    add->set_prompt_length(kLongest);
    add->set_fork_of(kLongest);
    add->set_swapped_state(kLongest);
    FillSampling(limits, vocab_size, add->mutable_sampling());
    v1::AppendBlocks* append = step->add_append();
    append->set_row(kLongest);
    for (uint32_t b = 0; b < limits.max_blocks_per_row; ++b)
      (b % 2 == 0 ? add->mutable_blocks() : append->mutable_blocks())->Add(kLongest);
    v1::Chunk* chunk = step->add_chunks();
    chunk->set_row(kLongest);
    chunk->set_sample(true);
    chunk->set_prompt_logprobs(true);
    chunk->set_next_token(kLongest);
    for (uint32_t t = 1; t < limits.max_step_tokens / limits.max_rows; ++t)
      chunk->add_tokens(kLongest);
    v1::RowDraft* draft = step->add_drafts();
    draft->set_row(kLongest);
    draft->add_tokens(kLongest);
    v1::PrefixGroup* prefix = step->add_prefixes();
    prefix->set_group(kLongest);
    prefix->set_num_blocks(kLongest);
    prefix->add_rows(kLongest);
  }
  for (uint32_t t = 0; t < limits.max_context_length; ++t)
    step->mutable_add(0)->add_history(kLongest);
}

TEST(MessageBounds, HoldTheLargestStep) {
  for (const uint32_t vocab_size : {97u, 152064u, 262144u}) {
    const kernels::StepLimits limits = LimitsOf(vocab_size);
    v1::StepStreamRequest message;
    FillStep(limits, vocab_size, message.mutable_step());
    EXPECT_LE(message.ByteSizeLong(), MaxStepBytes(limits));
    EXPECT_GE(message.ByteSizeLong(), MaxStepBytes(limits) * 4 / 5) << "a loose bound";
  }
}

TEST(MessageBounds, HoldANewMaskForEveryRow) {
  for (const uint32_t vocab_size : {152064u, 262144u}) {
    v1::StepStreamRequest message;
    for (uint32_t row = 0; row < 256; ++row) {
      v1::SetAllowedTokens* mask = message.mutable_step()->add_masks();
      mask->set_row(row);
      mask->set_allowed_tokens(std::string(vocab_size / 8, '\x7f'));
    }
    EXPECT_GT(message.ByteSizeLong(), 4u << 20) << "gRPC's default would have done";
    EXPECT_LE(message.ByteSizeLong(), MaxStepBytes(LimitsOf(vocab_size)));
  }
}

TEST(MessageBounds, HoldTheLargestResult) {
  const uint32_t vocab_size = 262144;
  const kernels::StepLimits limits = LimitsOf(vocab_size);
  engine::StepResult result;
  result.session = result.sequence = ~uint64_t{0};
  const engine::TopRange top = {.begin = 0, .count = limits.max_logprobs};
  result.top_logprobs.assign(limits.max_logprobs, {.token = kLongest, .logprob = -1.0f});
  for (uint32_t i = 0; i < limits.max_rows * limits.max_steps_per_request; ++i) {
    result.rows.push_back({.row = kLongest,
                           .sampled = true,
                           .token = kLongest,
                           .logprob = -1.0f,
                           .context_length = kLongest,
                           .finish = engine::FinishReason::kLength,
                           .rank = kLongest,
                           .top = top,
                           .has_logits = i < limits.max_logit_rows});
  }
  for (uint32_t i = 0; i < limits.max_prompt_logprobs; ++i) {
    result.prompt_logprobs.push_back(
        {.row = kLongest, .position = kLongest, .logprob = -1.0f, .rank = kLongest, .top = top});
  }
  result.rows[0].accepted = {.begin = 0, .count = limits.max_draft_tokens};
  result.accepted.assign(limits.max_draft_tokens,
                         {.token = kLongest, .logprob = -1.0f, .rank = kLongest, .top = top});
  result.logits.assign(uint64_t{vocab_size} * limits.max_logit_rows, 1.0f);
  result.report = {.graph = "mixed/1048576",
                   .replayed = true,
                   .rows = kLongest,
                   .tokens = kLongest,
                   .padding_rows = kLongest,
                   .padding_tokens = kLongest,
                   .attention_tree = ~uint64_t{0},
                   .attention_leaf = kLongest};
  const uint64_t long_ns = uint64_t{1} << 62;
  result.steps.assign(limits.max_steps_per_request,
                      {.num_rows = limits.max_rows, .report = result.report, .device_ns = long_ns});
  result.ledger = {.validate_ns = long_ns,
                   .ring_ns = long_ns,
                   .launch_ns = long_ns,
                   .device_ns = long_ns,
                   .total_ns = long_ns};
  v1::StepStreamResponse message;
  ResultToWire(result, {}, /*omit_rows=*/false, message.mutable_step());
  TraceToWire(TraceId::FromBytes("0123456789abcdef"), message.mutable_step());
  EXPECT_GT(message.ByteSizeLong(), 4u << 20) << "gRPC's default would have done";
  EXPECT_LE(message.ByteSizeLong(), MaxResultBytes(limits));
  EXPECT_GE(message.ByteSizeLong(), MaxResultBytes(limits) * 9 / 10);
}

}  // namespace
}  // namespace reprise::service
