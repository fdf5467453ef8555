// SPDX-License-Identifier: Apache-2.0
// EmbeddingLayer: where a decoder begins. Looks up the tokens' lines of the embedding table, and
// computes the rope tables of the step, one of which every attention layer reads.
#ifndef REPRISE_MODELS_LAYERS_EMBEDDING_LAYER_H_
#define REPRISE_MODELS_LAYERS_EMBEDDING_LAYER_H_

#include <cstdint>
#include <string>

#include "models/config/model_spec.h"
#include "models/layers/layer.h"

namespace reprise::models {

class EmbeddingLayer final : public Layer {
 public:
  // name: of the table in the checkpoint. `spec` must outlive the layer.
  EmbeddingLayer(const ModelSpec& spec, std::string name) : spec_(spec), name_(std::move(name)) {}

  void DeclareWeights(WeightPlan& weights) override;
  void DeclareBuffers(const LayerBuffers& buffers) override;
  absl::Status Enqueue(const LayerContext& context) const override;
  void AddBytes(const StepTraffic& traffic, StepBytes* bytes) const override;

  const void* table() const { return table_.data; }                      // [vocab, hidden]
  const float* inverse_frequency() const { return inverse_frequency_; }  // RopeInverseFrequencies

 private:
  const ModelSpec& spec_;
  const std::string name_;
  kernels::LinearWeights table_;
  const float* inverse_frequency_ = nullptr;
};

}  // namespace reprise::models

#endif  // REPRISE_MODELS_LAYERS_EMBEDDING_LAYER_H_
