// SPDX-License-Identifier: Apache-2.0
// Arguments of the sampling op. See sample.h.
#ifndef REPRISE_KERNELS_SAMPLE_SAMPLE_ARGS_H_
#define REPRISE_KERNELS_SAMPLE_SAMPLE_ARGS_H_

#include <cstdint>

#include "kernels/step/ring.h"
#include "kernels/step/rows.h"

namespace reprise::kernels {

// Logits of one chunk, reduced. The sums are relative to the chunk's own maximum.
struct SamplePartial {
  float max;
  uint32_t argmax;   // token id; 0xffffffff when no logit is above minus infinity
  float sum;         // sum exp(l - max)
  float sum_scaled;  // sum exp((l - max) / temperature)
};

// The tokens that top-k, top-p and min-p leave of a row: those whose key is above `key`, and those
// of that key up to id `last_id`. See OrderKey in select.h.
struct SampleCut {
  uint32_t key;
  uint32_t last_id;
};

constexpr int32_t kSampleChunk = 4096;        // logits of one chunk
constexpr int32_t kSampleSubChunk = 64;       // logits of one serial walk inside a chunk
constexpr int32_t kSampleMaxVocab = 1 << 22;  // a selection cuts ids into 2048 runs twice

struct SampleArgs {
  const float* logits = nullptr;      // [max_sampled + max_prompt, vocab]
  SamplePartial* partials = nullptr;  // [max_sampled + max_prompt, num_chunks]
  // Of rows that adjust their logits; null where the engine has that switched off.
  float* adjusted = nullptr;                   // [max_sampled, vocab]
  SamplePartial* adjusted_partials = nullptr;  // [max_sampled, num_chunks]
  SampleCut* cut = nullptr;                    // [max_sampled] of rows that truncate
  uint32_t* token = nullptr;                   // [max_sampled]
  float* logprob = nullptr;                    // [max_sampled]
  // Result ring, mapped: reports and logits of the step's entry. Null: rows ask for neither.
  unsigned char* results = nullptr;
  ResultEntryLayout result_layout;
  uint32_t result_depth = 0;
  StepPlan plan;
  ResidentRows rows;
  int32_t vocab = 0;
  int32_t num_chunks = 0;  // ceil(vocab / kSampleChunk)
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_SAMPLE_SAMPLE_ARGS_H_
