// SPDX-License-Identifier: Apache-2.0
// AttentionLayer: q, k and v in one projection, rope and the append to the paged KV cache, paged
// attention, and the projection of its output: branch = o(attention(qkv(normed))).
#ifndef REPRISE_MODELS_LAYERS_ATTENTION_LAYER_H_
#define REPRISE_MODELS_LAYERS_ATTENTION_LAYER_H_

#include <cstdint>
#include <string>

#include "kernels/step/step_args.h"
#include "models/config/model_spec.h"
#include "models/layers/layer.h"
#include "models/layers/linear.h"
#include "models/weights/linear_weights.h"

namespace reprise::models {

// What the plan of a step must know of attention, to list its work. Layers with the same value
// share one list.
struct AttentionPlanSpec {
  kernels::SplitRule split = {};
  uint32_t prefill_query_tokens = 0;  // of one prefill work item
  uint32_t sliding_window = 0;        // tokens; 0: none

  bool operator==(const AttentionPlanSpec& other) const;
};

class AttentionLayer final : public Layer {
 public:
  // name: prefix of its tensors in the checkpoint. kv_layer: which layer of the KV pool is its own.
  // `spec` must outlive the layer.
  AttentionLayer(const ModelSpec& spec, std::string name, int64_t kv_layer)
      : spec_(spec), name_(std::move(name)), kv_layer_(kv_layer) {}

  void DeclareWeights(WeightPlan& weights) override;
  void DeclareBuffers(const LayerBuffers& buffers) override;
  absl::Status Enqueue(const LayerContext& context) const override;
  void AddBytes(const StepTraffic& traffic, StepBytes* bytes) const override;

  AttentionPlanSpec plan_spec() const;
  const LinearWeights& qkv() const { return qkv_; }  // rows: q heads, k heads, v heads
  const LinearWeights& o() const { return o_; }
  const void* q_norm() const { return q_norm_; }  // [head_dim], or nullptr: heads are not normed
  const void* k_norm() const { return k_norm_; }  // the same for k

 private:
  absl::Status EnqueueRopeAppend(const LayerContext& context) const;
  absl::Status EnqueueAttention(const LayerContext& context) const;

  const ModelSpec& spec_;
  const std::string name_;
  const int64_t kv_layer_;

  LinearWeights qkv_, o_;
  const void* q_norm_ = nullptr;
  const void* k_norm_ = nullptr;

  // Activations, [max_step_tokens, ...].
  void* qkv_out_ = nullptr;   // [tokens, qkv_size]
  void* q_ = nullptr;         // [tokens, q_size] after rope
  void* attended_ = nullptr;  // [tokens, q_size]
  // Partial results of split rows; see AttentionArgs.
  float* partial_out_ = nullptr;
  float* partial_max_ = nullptr;
  float* partial_sum_ = nullptr;
  uint32_t* arrivals_ = nullptr;
  LinearScratch linear_;
};

}  // namespace reprise::models

#endif  // REPRISE_MODELS_LAYERS_ATTENTION_LAYER_H_
