// SPDX-License-Identifier: Apache-2.0
// Arguments of the nodes that frame a step. See step.h.
#ifndef REPRISE_KERNELS_STEP_STEP_ARGS_H_
#define REPRISE_KERNELS_STEP_STEP_ARGS_H_

#include "kernels/step/step_layout.h"

namespace reprise::kernels {

struct FetchArgs {
  const unsigned char* ring =
      nullptr;  // [depth, layout.bytes], mapped pinned memory, device address
  StepSlotLayout layout;
  uint32_t depth = 0;
  const uint64_t* step_count = nullptr;  // steps published so far, device memory
  StepPlan plan;
  ResidentRows rows;
};

// How a row's KV is cut into splits: a rule of that row alone, so that a row's bits never depend on
// its neighbours. kv_length counts the tokens that the row sees, those in its window. split length
// = max(min_split_tokens, ceil(kv_length / max_splits) rounded up to split_multiple).
struct SplitRule {
  uint32_t min_split_tokens = 256;
  uint32_t max_splits = 32;
  uint32_t split_multiple = 64;
};

struct PlanArgs {
  StepPlan plan;
  ResidentRows rows;
  SplitRule split;
  uint32_t block_size = 0;        // tokens
  uint32_t prefill_q_tokens = 0;  // query tokens of one prefill item
  uint32_t window = 0;            // of all layers' attention; 0: none. See AttentionArgs
};

struct PublishArgs {
  StepPlan plan;
  ResidentRows rows;
  const uint32_t* sampled_token_id = nullptr;  // [num_sampled]
  const float* sampled_logprob = nullptr;      // [num_sampled]
  RowResult* staging = nullptr;                // [max_rows] scratch
  unsigned char* ring = nullptr;  // [depth, slot_bytes], mapped pinned memory, device address
  uint64_t slot_bytes = 0;
  uint32_t depth = 0;
  uint64_t* step_count = nullptr;
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_STEP_STEP_ARGS_H_
