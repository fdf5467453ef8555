// SPDX-License-Identifier: Apache-2.0
#include "service/message_bounds.h"

namespace reprise::service {
namespace {

constexpr uint64_t kVarint = 5;  // bytes of an id, position or count of 32 bits, at most
constexpr uint64_t kFloat = 4;
// Of a message: its own fields, the report, the ledger, the headers of columns.
constexpr uint64_t kMessage = 1024;
// Of a row that is dropped, added, appended to, of a prefix group and run, with drafts: all but
// tables, tokens and what counts as sampling bytes. 263 when every field is there at its longest.
constexpr uint64_t kStepRow = 264;
// Of a row in all columns but top_token and top_logprob: 38, and 20 for a prompt token or an
// accepted one.
constexpr uint64_t kResultRow = 40;
constexpr uint64_t kPromptToken = 24, kAcceptedToken = 24;
// Of a step in a request of several: its report and the rest.
constexpr uint64_t kSingleStep = 96;
// Of a row that is refused alone, without its message.
constexpr uint64_t kRowError = 24;

}  // namespace

uint64_t MaxStepBytes(const kernels::StepLimits& limits) {
  // The device keeps an id in four bytes.
  const uint64_t sampling = (limits.max_sampling_bytes + kFloat - 1) / kFloat * kVarint;
  const uint64_t row = kStepRow + uint64_t{limits.max_blocks_per_row} * kVarint;
  return kMessage + sampling + limits.max_rows * row + limits.max_step_tokens * kVarint;
}

uint64_t MaxResultBytes(const kernels::StepLimits& limits) {
  const uint64_t likeliest = limits.max_logprobs * (kVarint + kFloat);
  // Rows that return their logits, chunks and drafts are in a request's first step alone.
  const uint64_t step = kSingleStep + limits.max_rows * (kResultRow + likeliest);
  return kMessage + limits.max_steps_per_request * step +
         limits.max_prompt_logprobs * (kPromptToken + likeliest) +
         limits.max_draft_tokens * (kAcceptedToken + likeliest) +
         limits.max_rows * (kRowError + kMaxRowErrorBytes) +
         limits.max_logit_rows * uint64_t{limits.vocab_size} * kFloat;
}

}  // namespace reprise::service
