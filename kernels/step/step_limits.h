// SPDX-License-Identifier: Apache-2.0
// StepLimits: the numbers that bound one step request: what its workspace and its rings have room
// for, what its request may name. An engine fills them in once, from its options and the model,
// before anything is allocated; workspace, validation, the wire's Describe and schedulers read the
// same struct.
#ifndef REPRISE_KERNELS_STEP_STEP_LIMITS_H_
#define REPRISE_KERNELS_STEP_STEP_LIMITS_H_

#include <cstdint>

namespace reprise::kernels {

// StepLimits.max_steps_per_request of any engine.
inline constexpr uint32_t kMaxStepsPerRequest = 32;

struct StepLimits {
  uint32_t block_size = 0;          // tokens of a KV block
  uint32_t vocab_size = 0;          // token ids are less
  uint32_t max_rows = 0;            // resident rows, of all sessions together
  uint32_t max_context_length = 0;  // tokens of a row
  uint32_t max_blocks_per_row = 0;
  uint32_t max_step_tokens = 0;    // query tokens of one step: the largest bucket
  uint32_t max_prompt_tokens = 0;  // of these in a step with chunks: the largest mixed bucket
  uint32_t pipeline_depth = 0;     // step requests in flight
  uint32_t max_steps_per_request = 1;
  uint32_t min_shared_tokens = 0;  // see DecodeEngineOptions
  // Of sampling. A 0 or false among these switches off what it bounds.
  bool adjust_logits = false;        // penalties, logit bias, allowed tokens and min_tokens
  uint32_t max_logit_rows = 0;       // rows of a step that return their logits
  uint32_t max_prompt_logprobs = 0;  // given tokens of a step whose likelihood is reported
  uint32_t max_draft_tokens = 0;     // of all rows of a step
  uint64_t max_sampling_bytes = 0;   // of parameters that the rows of one step bring
  uint32_t max_stop_tokens = 0;      // of a row
  uint32_t max_logit_bias = 0;       // tokens of a row
  uint32_t max_logprobs = 0;         // likeliest tokens that a row may ask for
  // Bytes of the state that a row of this model carries beside its KV; 0: none. Where there is
  // some, a row is added without context, or with the state of the row that it forks or of swap
  // space, and there are no drafts and no prefix groups.
  uint64_t row_state_bytes = 0;
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_STEP_STEP_LIMITS_H_
