// SPDX-License-Identifier: Apache-2.0
// StepBytes: what a step has to move between its kernels and the device's memory, counted from the
// model's shape, layer by layer. A model of the traffic, not a measurement: what a profile sets
// beside the measured bandwidth.
#ifndef REPRISE_MODELS_STEP_BYTES_H_
#define REPRISE_MODELS_STEP_BYTES_H_

#include <cstdint>

namespace reprise::models {

// The rows of a step: those that go on, with a token each, and prompts that begin with it.
struct StepRowCounts {
  uint64_t decoding = 0;
  uint64_t prompts = 0, prompt_tokens = 0;  // of all prompts together
};

// A step of `rows` query tokens which attend over `attended` tokens each, the one that the step
// appends among them: the mean of all layers, ModelSpec::MeanVisible. It may be the mean of several
// steps, too.
struct StepTraffic {
  uint64_t rows = 0;
  // Rows that bring state from the step before, and those that leave it for the next one.
  uint64_t states_read = 0, states_written = 0;
  double attended = 0.0;          // tokens
  uint64_t element_bytes = 0;     // of the compute dtype
  uint64_t kv_element_bytes = 0;  // of the KV cache
};

// Bytes of one step. All matrices, norms and biases count once, whatever the number of rows; of the
// embedding table the rows' own lines. Of experts, those that so many rows go to where every choice
// of a token's experts is as likely as any other: at most all, and those of one row alone for one.
// Activations count once for every kernel that reads them and once for the one that writes them:
// many of these stay in a GPU's cache.
//
// Not counted: block tables and the step's metadata, partial results of attention, linear and
// sampling, and what a kernel reads twice because a tile of its own did not hold it.
struct StepBytes {
  uint64_t weights = 0;
  // Of the KV cache, and of the state that rows of some models carry beside it.
  uint64_t kv_read = 0;
  uint64_t kv_written = 0;
  uint64_t activations = 0;
  uint64_t total() const { return weights + kv_read + kv_written + activations; }
};

}  // namespace reprise::models

#endif  // REPRISE_MODELS_STEP_BYTES_H_
