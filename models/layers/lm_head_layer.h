// SPDX-License-Identifier: Apache-2.0
// LmHeadLayer: where a decoder ends. The last norm and the logits, of the rows that sample and of
// the prompt tokens whose likelihood is asked for alone.
#ifndef REPRISE_MODELS_LAYERS_LM_HEAD_LAYER_H_
#define REPRISE_MODELS_LAYERS_LM_HEAD_LAYER_H_

#include <string>

#include "kernels/linear/linear_weights.h"
#include "models/config/model_spec.h"
#include "models/layers/layer.h"
#include "models/layers/linear.h"

namespace reprise::models {

class LmHeadLayer final : public Layer {
 public:
  // Names in the checkpoint: of the last norm's weight, of the head (a prefix), and of the
  // embedding table that a tied model uses instead. `spec` must outlive the layer.
  struct Names {
    std::string norm;
    std::string head;
    std::string embedding;
  };
  // adds_branch: whether the last layer's branch is still to be added.
  LmHeadLayer(const ModelSpec& spec, Names names, bool adds_branch)
      : spec_(spec), names_(std::move(names)), adds_branch_(adds_branch) {}

  void DeclareWeights(WeightPlan& weights) override;
  void DeclareBuffers(const LayerBuffers& buffers) override;
  absl::Status Enqueue(const LayerContext& context) const override;
  void AddBytes(const StepTraffic& traffic, StepBytes* bytes) const override;

  const void* norm() const { return norm_; }  // [hidden]
  const kernels::LinearWeights& head() const { return head_; }

 private:
  const ModelSpec& spec_;
  const Names names_;
  const bool adds_branch_;
  const void* norm_ = nullptr;
  kernels::LinearWeights head_;
  void* normed_ = nullptr;  // [MaxLogits, hidden]
  LinearScratch linear_;
};

}  // namespace reprise::models

#endif  // REPRISE_MODELS_LAYERS_LM_HEAD_LAYER_H_
