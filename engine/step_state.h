// SPDX-License-Identifier: Apache-2.0
// StepState: the device memory that steps work in beside the layers' own: the plan, the resident
// rows, sampling and what is published. Laid out once for the largest bucket and shared by all of
// them, together with the decoder's buffers; exact bytes are known before anything is allocated.
#ifndef REPRISE_ENGINE_STEP_STATE_H_
#define REPRISE_ENGINE_STEP_STATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/kernel_set.h"
#include "kernels/sample/sample_args.h"
#include "kernels/step/ring.h"
#include "kernels/step/rows.h"
#include "kernels/step/step_limits.h"
#include "models/decoder.h"
#include "runtime/device.h"
#include "runtime/memory/arena.h"
#include "runtime/memory/buffer_plan.h"

namespace reprise::engine {

class StepState {
 public:
  // Allocates the state and the decoder's buffers; clears what must start at zero (row state,
  // counters, the step count) on `stream`, and waits for it. `decoder` is bound to the buffers.
  // kv_dtype: of the KV cache.
  static absl::StatusOr<std::unique_ptr<StepState>> Create(runtime::Device& device,
                                                           runtime::Stream& stream,
                                                           models::Decoder& decoder,
                                                           const kernels::KernelSet& kernels,
                                                           runtime::DType kv_dtype,
                                                           const kernels::StepLimits& limits);
  StepState(const StepState&) = delete;
  StepState& operator=(const StepState&) = delete;

  size_t bytes() const { return state_.bytes() + activations_.bytes(); }

  kernels::StepPlan plan;
  kernels::AttentionPlanRule attention;  // the decoder's, with what follows from the device
  // What attention.tree points to: the default tree until another is copied there.
  kernels::AttentionTree* attention_tree = nullptr;
  kernels::ResidentRows rows;
  uint32_t max_rows = 0;
  kernels::StepProgress* progress = nullptr;

  // Sampling; see SampleArgs.
  kernels::SamplePartial* sample_partials = nullptr;
  uint32_t* sampled_token_id = nullptr;
  float* sampled_logprob = nullptr;
  float* adjusted_logits = nullptr;  // [max_rows + max_draft_tokens, vocab], or null: not adjusted
  kernels::SamplePartial* adjusted_partials = nullptr;
  kernels::SampleCut* sample_cut = nullptr;
  uint32_t max_draft_tokens = 0;
  uint32_t max_prompt_logprobs = 0;
  kernels::ResultEntryLayout result_layout;
  kernels::RowResult* result_staging = nullptr;

  // All activations of the decoder's layers, and nothing that lives longer than a step.
  const runtime::Arena& activations() const { return activations_; }
  // Everything else: what starts at zero.
  const runtime::Arena& state() const { return state_; }

 private:
  StepState() = default;
  // By what rule the plan works, on this device.
  void ChoosePlan(const models::Decoder& decoder, const kernels::KernelSet& kernels,
                  runtime::DType kv_dtype, const kernels::StepLimits& limits);
  void DeclarePlan(const kernels::StepLimits& limits, runtime::BufferPlan& buffers);
  // Those of one of the rule's windows.
  void DeclareLists(const kernels::StepLimits& limits, uint32_t window,
                    runtime::BufferPlan& buffers);
  void DeclareRows(const models::ModelSpec& spec, const kernels::StepLimits& limits,
                   runtime::BufferPlan& buffers);
  void DeclareSampling(const models::ModelSpec& spec, const kernels::StepLimits& limits,
                       runtime::BufferPlan& buffers);

  runtime::Arena state_;
  runtime::Arena activations_;
};

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_STEP_STATE_H_
