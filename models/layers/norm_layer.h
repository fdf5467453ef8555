// SPDX-License-Identifier: Apache-2.0
// NormLayer: adds the branch of the layer before to the residual stream and normalises the sum:
// residual += residual_multiplier * branch; normed = RMSNorm(residual). Where the layers beside it
// can, it leaves both to them. For a reader that wants it so, it leaves the norm rounded to E4M3.
#ifndef REPRISE_MODELS_LAYERS_NORM_LAYER_H_
#define REPRISE_MODELS_LAYERS_NORM_LAYER_H_

#include <string>
#include <utility>

#include "models/config/model_spec.h"
#include "models/layers/layer.h"

namespace reprise::models {

class NormLayer final : public Layer {
 public:
  // name: of the weight in the checkpoint. before: whose branch is to be added, or nullptr. `spec`
  // and `before` must outlive the layer.
  NormLayer(const ModelSpec& spec, std::string name, const Layer* before)
      : spec_(spec), name_(std::move(name)), before_(before) {}

  // The layer that reads `normed`, before anything is enqueued.
  void set_reader(const Layer* reader) { reader_ = reader; }
  // Whether the layers beside it do its work in that step.
  bool IsDoneBeside(const LayerContext& context) const;

  void DeclareWeights(WeightPlan& weights) override;
  void DeclareBuffers(const LayerBuffers& buffers) override;
  absl::Status Enqueue(const LayerContext& context) const override;
  void AddBytes(const StepTraffic& traffic, StepBytes* bytes) const override;

  const void* weight() const { return weight_; }  // [hidden]
  float eps() const { return static_cast<float>(spec_.rms_norm_eps); }
  float weight_offset() const { return static_cast<float>(spec_.norm_offset); }
  float branch_scale() const { return static_cast<float>(spec_.residual_multiplier); }

 private:
  const ModelSpec& spec_;
  const std::string name_;
  const Layer* const before_;
  const Layer* reader_ = nullptr;
  const void* weight_ = nullptr;
};

}  // namespace reprise::models

#endif  // REPRISE_MODELS_LAYERS_NORM_LAYER_H_
