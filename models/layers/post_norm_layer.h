// SPDX-License-Identifier: Apache-2.0
// PostNormLayer: normalises the branch of the layer before and adds it to the residual stream:
// residual += residual_multiplier * RMSNorm(branch).
#ifndef REPRISE_MODELS_LAYERS_POST_NORM_LAYER_H_
#define REPRISE_MODELS_LAYERS_POST_NORM_LAYER_H_

#include <string>

#include "models/config/model_spec.h"
#include "models/layers/layer.h"

namespace reprise::models {

class PostNormLayer final : public Layer {
 public:
  // name: of the weight in the checkpoint. `spec` must outlive the layer.
  PostNormLayer(const ModelSpec& spec, std::string name) : spec_(spec), name_(std::move(name)) {}

  void DeclareWeights(WeightPlan& weights) override;
  void DeclareBuffers(const LayerBuffers& buffers) override;
  absl::Status Enqueue(const LayerContext& context) const override;
  void AddBytes(const StepTraffic& traffic, StepBytes* bytes) const override;

  const void* weight() const { return weight_; }  // [hidden]

 private:
  const ModelSpec& spec_;
  const std::string name_;
  const void* weight_ = nullptr;
};

}  // namespace reprise::models

#endif  // REPRISE_MODELS_LAYERS_POST_NORM_LAYER_H_
