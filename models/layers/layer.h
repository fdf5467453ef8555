// SPDX-License-Identifier: Apache-2.0
// Layer: one of the parts that a decoder is a list of. A layer says in one place all that the rest
// of the system needs to know of it: which weights it wants, which buffers it works in, what it
// enqueues, what bytes it moves. It holds numbers and device addresses, and no state of a step: one
// layer serves every bucket, captured or eager.
//
// Layers hand each other three activations (DecoderActivations): a layer reads `normed`, or
// `residual` where no norm stands before it, and leaves its result in `branch`; the norm behind it
// adds `branch` to `residual`. Where the kernels of both can, the layers beside a norm do its work:
// one adds its result to `residual` itself, the other norms `residual` as it reads it. Bits are the
// same.
//
// Enqueue is how a layer runs as kernels of its own. What it says of itself does not depend on
// that: a persistent kernel that walks the units of several layers would take them from the same
// weights and buffers.
#ifndef REPRISE_MODELS_LAYERS_LAYER_H_
#define REPRISE_MODELS_LAYERS_LAYER_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/kernel_set.h"
#include "kernels/linear/linear.h"
#include "kernels/step/rows.h"
#include "kernels/step/step_limits.h"
#include "models/kv_pool.h"
#include "models/row_state.h"
#include "models/step_bytes.h"
#include "models/weights/weight_plan.h"
#include "runtime/device.h"
#include "runtime/memory/buffer_plan.h"

namespace reprise::models {

// The static shape of a bucket.
struct StepShape {
  uint32_t max_rows = 0;    // rows that run
  uint32_t max_tokens = 0;  // query tokens that run
  bool mixed = false;       // rows may have more than one query token
  // Norms are kernels of their own, and add what is to be added: for whoever makes something else
  // of a step's launches.
  bool separate_norms = false;
};

// Tokens that a bucket samples, at most: one for each row, and one for each of up to
// `max_draft_tokens` of a step. Only mixed buckets have drafts.
inline uint32_t MaxSampled(const StepShape& shape, uint32_t max_draft_tokens) {
  const uint32_t most = shape.max_rows + (shape.mixed ? max_draft_tokens : 0);
  return std::min(most, shape.max_tokens);
}
// Prompt tokens of a bucket whose likelihood is asked for, at most `limit` of a step. Only mixed
// buckets have any.
inline uint32_t MaxPromptLogprobs(const StepShape& shape, uint32_t limit) {
  return shape.mixed ? std::min(limit, shape.max_tokens) : 0;
}

// Rows of logits of any step.
inline uint32_t MaxLogits(const kernels::StepLimits& limits) {
  return limits.max_rows + limits.max_draft_tokens + limits.max_prompt_logprobs;
}
// Those of a bucket's.
inline uint32_t MaxLogits(const StepShape& shape, uint32_t max_draft_tokens,
                          uint32_t max_prompt_logprobs) {
  return MaxSampled(shape, max_draft_tokens) + MaxPromptLogprobs(shape, max_prompt_logprobs);
}

// What layers hand each other, compute dtype unless said otherwise.
struct DecoderActivations {
  void* residual = nullptr;  // [max_step_tokens, hidden]
  void* normed = nullptr;    // [max_step_tokens, hidden]
  void* branch = nullptr;    // [max_step_tokens, hidden]
  // [max_step_tokens, ModelSpec::NumRopeTables(), head_dim / 2, 2] f32 cosines and sines.
  float* rope = nullptr;
  // Of the sampled tokens and prompt tokens whose logits are wanted: [max_logits, vocab] f32.
  float* logits = nullptr;
};

// Where a layer's buffers are declared.
struct LayerBuffers {
  const kernels::KernelSet& kernels;
  const kernels::StepLimits& limits;
  // Hold no state from one step to the next, and nothing that a step reads before it writes it: the
  // poison mode fills all of them before every step.
  runtime::BufferPlan& activations;
  // Zero at the start, and from then on as kernels leave it: state that rows carry from step to
  // step is there too.
  runtime::BufferPlan& scratch;
};

// What an architecture says of its layers that leave a branch.
struct BranchForm {
  bool reads_residual = false;  // no norm stands before it
  bool fused_tensors = false;   // q, k and v are published as one tensor
};

class NormLayer;

// What the layers of one step work on. Views; valid during the call.
struct DecoderInputs {
  runtime::Stream& stream;
  const kernels::KernelSet& kernels;
  const StepShape& shape;
  const kernels::StepPlan& plan;
  const kernels::ResidentRows& rows;
  const KvPool& kv;
  kernels::LinearCandidate linear = kernels::LinearCandidate::kBest;
};

// Rows rounded to E4M3, [rows, elements] and [rows] (kernels/round_rows/round_rows.h); or null.
struct RoundedRows {
  void* elements = nullptr;
  float* scales = nullptr;
};

// What a layer enqueues with.
struct LayerContext : DecoderInputs {
  const DecoderActivations& x;
  uint32_t max_logits = 0;  // rows of logits

  const void* InputOf(const BranchForm& form) const {
    return form.reads_residual ? x.residual : x.normed;
  }
};

class Layer {
 public:
  virtual ~Layer() = default;

  // The tensors that it reads, as its checkpoint names them.
  virtual void DeclareWeights(WeightPlan& weights) = 0;
  // Its own buffers, behind DeclareWeights: what they are depends on how weights lie. A layer that
  // takes turns with others of its kind shares them by name.
  virtual void DeclareBuffers(const LayerBuffers& buffers) = 0;
  // Launches only. Errors: those of its ops.
  virtual absl::Status Enqueue(const LayerContext& context) const = 0;
  // Adds what it moves beyond its weights.
  virtual void AddBytes(const StepTraffic& traffic, StepBytes* bytes) const = 0;
  // Whether, in that step, it can norm the residual as it reads it, which takes that one linear
  // call with LinearCall::norm_before is all that reads its input; and add its branch to the
  // residual as it stores it: one linear call with norm_behind is all that writes or reads the
  // branch.
  virtual bool CanNormInput(const LayerContext& /*context*/) const { return false; }
  virtual bool CanAddBranch(const LayerContext& /*context*/) const { return false; }
  // Where the layer wants `normed` rounded, and nowhere else: one linear call with norm_before is
  // all that reads it. Behind the buffers' allocation.
  virtual RoundedRows rounded_input() const { return {}; }
  // Of a layer that leaves a branch, before anything is enqueued: the norms beside it, of which it
  // alone reads the one before, and the one behind adds its branch; nullptr: there is none.
  void set_norm_before(const NormLayer* norm) { norm_before_ = norm; }
  void set_norm_behind(const NormLayer* norm) { norm_behind_ = norm; }
  // Adds where it keeps state of rows from step to step. Behind the buffers' allocation.
  virtual void ListRowState(std::vector<RowStateBuffer>* /*buffers*/) const {}

 protected:
  const NormLayer* norm_before() const { return norm_before_; }
  const NormLayer* norm_behind() const { return norm_behind_; }

 private:
  const NormLayer* norm_before_ = nullptr;
  const NormLayer* norm_behind_ = nullptr;
};

}  // namespace reprise::models

#endif  // REPRISE_MODELS_LAYERS_LAYER_H_
