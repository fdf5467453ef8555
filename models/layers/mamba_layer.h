// SPDX-License-Identifier: Apache-2.0
// MambaLayer: a state space model in place of attention: branch = out(norm(y * silu(gate))), where
// gate, the inputs of the model and dt are one projection of x, and y is what the model makes of
// them (kernels/mamba/mamba.h). What it knows of earlier tokens is state of the row's slot, not KV:
// it is laid out once for all slots, outlives the step, and is not filled by the poison mode.
#ifndef REPRISE_MODELS_LAYERS_MAMBA_LAYER_H_
#define REPRISE_MODELS_LAYERS_MAMBA_LAYER_H_

#include <string>
#include <utility>

#include "kernels/linear/linear_weights.h"
#include "kernels/mamba/mamba_args.h"
#include "models/config/model_spec.h"
#include "models/layers/layer.h"
#include "models/layers/linear.h"

namespace reprise::models {

class MambaLayer final : public Layer {
 public:
  // name: prefix of its tensors in the checkpoint. block: of the decoder. `spec`, which has Mamba
  // layers, must outlive the layer.
  MambaLayer(const ModelSpec& spec, std::string name, int64_t block, BranchForm form = {})
      : spec_(spec), mamba_(*spec.mamba), name_(std::move(name)), block_(block), form_(form) {}

  void DeclareWeights(WeightPlan& weights) override;
  void DeclareBuffers(const LayerBuffers& buffers) override;
  absl::Status Enqueue(const LayerContext& context) const override;
  void AddBytes(const StepTraffic& traffic, StepBytes* bytes) const override;
  bool CanNormInput(const LayerContext& context) const override {
    return models::CanNormInput(context, in_);
  }
  RoundedRows rounded_input() const override { return linear_.RoundedInputOf(in_); }
  bool CanAddBranch(const LayerContext& context) const override {
    return models::CanAddBranch(context, out_);
  }
  void ListRowState(std::vector<RowStateBuffer>* buffers) const override;

  const kernels::LinearWeights& in() const { return in_; }  // rows: gate, x, B, C, dt
  const kernels::LinearWeights& out() const { return out_; }

 private:
  absl::Status EnqueueModel(const LayerContext& context) const;

  const ModelSpec& spec_;
  const MambaSpec& mamba_;
  const std::string name_;
  const int64_t block_;
  const BranchForm form_;
  kernels::LinearWeights in_, out_;
  const float* conv_weight_ = nullptr;  // [conv_size, conv_width]
  const float* conv_bias_ = nullptr;    // [conv_size], or nullptr
  const float* a_log_ = nullptr;        // [num_heads], and the next two
  const float* d_ = nullptr;
  const float* dt_bias_ = nullptr;
  const void* norm_ = nullptr;  // [inner_size]

  size_t conv_slot_bytes_ = 0, model_slot_bytes_ = 0;
  // State, by slot.
  void* conv_state_ = nullptr;    // [max_rows, conv_width - 1, conv_size]
  float* model_state_ = nullptr;  // [max_rows, num_heads, head_dim, state_size]
  // Activations, [max_step_tokens, ...].
  void* projected_ = nullptr;  // [tokens, projected_size]
  void* convolved_ = nullptr;  // [tokens, conv_size]
  void* y_ = nullptr;          // [tokens, inner_size], then normed in place
  LinearScratch linear_;
};

}  // namespace reprise::models

#endif  // REPRISE_MODELS_LAYERS_MAMBA_LAYER_H_
