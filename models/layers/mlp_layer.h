// SPDX-License-Identifier: Apache-2.0
// MlpLayer: the gated MLP: branch = down(act(gate(x)) * up(x)), act being SiLU or GELU.
#ifndef REPRISE_MODELS_LAYERS_MLP_LAYER_H_
#define REPRISE_MODELS_LAYERS_MLP_LAYER_H_

#include <cstdint>
#include <string>

#include "kernels/linear/linear_weights.h"
#include "models/config/architectures.h"
#include "models/config/model_spec.h"
#include "models/layers/layer.h"
#include "models/layers/linear.h"

namespace reprise::models {

class MlpLayer final : public Layer {
 public:
  // name: prefix of its tensors in the checkpoint, `tensors` what they are called behind it. block:
  // of the decoder. `spec` must outlive the layer.
  MlpLayer(const ModelSpec& spec, std::string name, int64_t block, const MlpTensors& tensors = {},
           BranchForm form = {})
      : spec_(spec), name_(std::move(name)), block_(block), tensors_(tensors), form_(form) {}

  void DeclareWeights(WeightPlan& weights) override;
  void DeclareBuffers(const LayerBuffers& buffers) override;
  absl::Status Enqueue(const LayerContext& context) const override;
  void AddBytes(const StepTraffic& traffic, StepBytes* bytes) const override;
  bool CanNormInput(const LayerContext& context) const override {
    return models::CanNormInput(context, gate_up_);
  }
  RoundedRows rounded_input() const override { return linear_.RoundedInputOf(gate_up_); }
  bool CanAddBranch(const LayerContext& context) const override {
    return models::CanAddBranch(context, down_);
  }

  const kernels::LinearWeights& gate_up() const { return gate_up_; }  // rows: gate, then up
  const kernels::LinearWeights& down() const { return down_; }

 private:
  // Gate and up come as the product that down reads.
  bool HasPairs() const { return gate_up_.layout == kernels::WeightLayout::kPackedPairs; }

  const ModelSpec& spec_;
  const std::string name_;
  const int64_t block_;
  const MlpTensors tensors_;
  const BranchForm form_;
  kernels::LinearWeights gate_up_, down_;
  void* gate_up_out_ = nullptr;  // [max_step_tokens, 2 * intermediate]
  void* activated_ = nullptr;    // [max_step_tokens, intermediate]
  LinearScratch linear_;
};

}  // namespace reprise::models

#endif  // REPRISE_MODELS_LAYERS_MLP_LAYER_H_
