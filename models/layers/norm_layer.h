// SPDX-License-Identifier: Apache-2.0
// NormLayer: adds the branch of the layer before to the residual stream and normalises the sum:
// residual += residual_multiplier * branch; normed = RMSNorm(residual).
#ifndef REPRISE_MODELS_LAYERS_NORM_LAYER_H_
#define REPRISE_MODELS_LAYERS_NORM_LAYER_H_

#include <string>

#include "models/config/model_spec.h"
#include "models/layers/layer.h"

namespace reprise::models {

class NormLayer final : public Layer {
 public:
  // name: of the weight in the checkpoint. adds_branch: false where no layer with a branch ran
  // before. `spec` must outlive the layer.
  NormLayer(const ModelSpec& spec, std::string name, bool adds_branch)
      : spec_(spec), name_(std::move(name)), adds_branch_(adds_branch) {}

  void DeclareWeights(WeightPlan& weights) override;
  void DeclareBuffers(const LayerBuffers& buffers) override;
  absl::Status Enqueue(const LayerContext& context) const override;
  void AddBytes(const StepTraffic& traffic, StepBytes* bytes) const override;

  const void* weight() const { return weight_; }  // [hidden]

 private:
  const ModelSpec& spec_;
  const std::string name_;
  const bool adds_branch_;
  const void* weight_ = nullptr;
};

}  // namespace reprise::models

#endif  // REPRISE_MODELS_LAYERS_NORM_LAYER_H_
