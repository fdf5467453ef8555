// SPDX-License-Identifier: Apache-2.0
// StepWorkspace: all device memory that a step works in, laid out once for the largest bucket and
// shared by all of them: the plan, the resident rows, activations, attention partials, logits,
// sampling. Exact bytes are known before anything is allocated.
#ifndef REPRISE_ENGINE_WORKSPACE_H_
#define REPRISE_ENGINE_WORKSPACE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/kernel_set.h"
#include "kernels/sample/sample_args.h"
#include "kernels/step/step_args.h"
#include "kernels/step/step_layout.h"
#include "kernels/step/step_limits.h"
#include "models/config/model_spec.h"
#include "runtime/device.h"
#include "runtime/memory/arena.h"

namespace reprise::engine {

class StepWorkspace {
 public:
  // Bytes that Create will allocate for these limits, exactly.
  static absl::StatusOr<size_t> BytesFor(const models::ModelSpec& spec,
                                         const kernels::KernelSet& kernels,
                                         const kernels::StepLimits& limits);
  // Allocates; clears what must start at zero (row state, counters, the step count) on `stream`,
  // and waits for it.
  static absl::StatusOr<StepWorkspace> Create(runtime::Device& device, runtime::Stream& stream,
                                              const models::ModelSpec& spec,
                                              const kernels::KernelSet& kernels,
                                              const kernels::StepLimits& limits);

  // Query tokens of one prefill attention item: a tile of rows over the heads of a group.
  static uint32_t PrefillQueryTokens(const models::ModelSpec& spec);

  size_t bytes() const { return arena_.bytes(); }

  kernels::StepPlan plan;
  kernels::ResidentRows rows;
  kernels::SplitRule split;
  uint64_t* step_count = nullptr;

  // Activations, compute dtype unless said otherwise; [max_step_tokens, ...].
  void* residual = nullptr;        // [tokens, hidden]
  void* normed = nullptr;          // [tokens, hidden]
  void* qkv = nullptr;             // [tokens, qkv_size]
  void* q = nullptr;               // [tokens, q_size] after rope
  void* attention = nullptr;       // [tokens, q_size]
  void* branch = nullptr;          // [tokens, hidden]
  void* gate_up = nullptr;         // [tokens, 2 * intermediate]
  void* activated = nullptr;       // [tokens, intermediate]
  float* rope = nullptr;           // [tokens, head_dim] cos, sin
  float* logits = nullptr;         // [max_rows + max_prompt_logprobs, vocab] f32
  void* sampled_hidden = nullptr;  // [max_rows + max_prompt_logprobs, hidden]

  // Attention partials; see AttentionArgs.
  float* partial_out = nullptr;
  float* partial_max = nullptr;
  float* partial_sum = nullptr;
  uint32_t* arrivals = nullptr;
  // Linear partials; see LinearArgs. Null where the device's linears need none.
  float* linear_partials = nullptr;
  uint32_t* linear_counters = nullptr;

  // Sampling.
  kernels::SamplePartial* sample_partials = nullptr;
  uint32_t* sampled_token_id = nullptr;
  float* sampled_logprob = nullptr;
  float* adjusted_logits = nullptr;  // [max_rows, vocab]; null without adjust_logits
  kernels::SamplePartial* adjusted_partials = nullptr;
  kernels::SampleCut* sample_cut = nullptr;
  uint32_t max_prompt_logprobs = 0;
  kernels::ResultSlotLayout result_layout;
  kernels::RowResult* result_staging = nullptr;

  // The activations as one range of `activation_elements` elements of the compute dtype, for poison
  // mode.
  void* activations = nullptr;
  int64_t activation_elements = 0;

 private:
  runtime::Arena arena_;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_WORKSPACE_H_
