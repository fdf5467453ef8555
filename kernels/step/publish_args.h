// SPDX-License-Identifier: Apache-2.0
// Arguments of publish. See publish.h.
#ifndef REPRISE_KERNELS_STEP_PUBLISH_ARGS_H_
#define REPRISE_KERNELS_STEP_PUBLISH_ARGS_H_

#include <cstdint>

#include "kernels/step/ring.h"
#include "kernels/step/rows.h"

namespace reprise::kernels {

struct PublishArgs {
  StepPlan plan;
  ResidentRows rows;
  const uint32_t* sampled_token_id = nullptr;  // [num_sampled]
  const float* sampled_logprob = nullptr;      // [num_sampled]
  RowResult* staging = nullptr;                // [max_rows] scratch
  unsigned char* ring = nullptr;  // [depth, entry_bytes], mapped pinned memory, device address
  uint64_t entry_bytes = 0;
  uint64_t sampled_offset = 0;  // ResultEntryLayout::sampled
  uint32_t depth = 0;
  StepProgress* progress = nullptr;
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_STEP_PUBLISH_ARGS_H_
