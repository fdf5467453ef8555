// SPDX-License-Identifier: Apache-2.0
// Arguments of the sampling op. See sample.h.
#ifndef REPRISE_KERNELS_SAMPLE_SAMPLE_ARGS_H_
#define REPRISE_KERNELS_SAMPLE_SAMPLE_ARGS_H_

#include <cstdint>

#include "kernels/step/step_layout.h"

namespace reprise::kernels {

// Logits of one chunk, reduced. The sums are relative to the chunk's own maximum.
struct SamplePartial {
  float max;
  uint32_t argmax;   // token id; 0xffffffff when every logit is NaN
  float sum;         // sum exp(l - max)
  float sum_scaled;  // sum exp((l - max) / temperature)
};

constexpr int32_t kSampleChunk = 4096;   // logits of one chunk
constexpr int32_t kSampleSubChunk = 64;  // logits of one serial walk inside a chunk

struct SampleArgs {
  const float* logits = nullptr;      // [max_sampled, vocab]
  SamplePartial* partials = nullptr;  // [max_sampled, num_chunks]
  uint32_t* token = nullptr;          // [max_sampled]
  float* logprob = nullptr;           // [max_sampled]
  StepPlan plan;
  ResidentRows rows;
  int32_t vocab = 0;
  int32_t num_chunks = 0;  // ceil(vocab / kSampleChunk)
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_SAMPLE_SAMPLE_ARGS_H_
