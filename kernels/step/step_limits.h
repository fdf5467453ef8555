// SPDX-License-Identifier: Apache-2.0
// StepLimits: how large a step can get.
#ifndef REPRISE_KERNELS_STEP_STEP_LIMITS_H_
#define REPRISE_KERNELS_STEP_STEP_LIMITS_H_

#include <cstdint>

namespace reprise::kernels {

struct StepLimits {
  uint32_t max_rows = 0;             // resident rows
  uint32_t max_step_tokens = 0;      // query tokens of one step
  uint32_t max_blocks_per_row = 0;   // entries of a block table
  bool adjust_logits = false;        // see DecodeEngineOptions
  uint32_t max_logit_rows = 0;       // rows of a step whose logits go to the result ring
  uint32_t max_prompt_logprobs = 0;  // prompt tokens of a step with a LogprobReport
  bool reports = false;              // sampled rows may have one
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_STEP_STEP_LIMITS_H_
