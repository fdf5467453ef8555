// SPDX-License-Identifier: Apache-2.0
// AttentionLayer: q, k and v in one projection, rope and the append to the paged KV cache, paged
// attention, and the projection of its output: branch = o(attention(qkv(x))).
#ifndef REPRISE_MODELS_LAYERS_ATTENTION_LAYER_H_
#define REPRISE_MODELS_LAYERS_ATTENTION_LAYER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/attention/kv_layout.h"
#include "kernels/attention/plan.h"
#include "kernels/linear/linear_weights.h"
#include "models/config/model_spec.h"
#include "models/layers/layer.h"
#include "models/layers/linear.h"

namespace reprise::models {

class AttentionLayer final : public Layer {
 public:
  // name: prefix of its tensors in the checkpoint. block: of the decoder, which says what its layer
  // of the KV pool is and how far it sees. `spec` must outlive the layer.
  AttentionLayer(const ModelSpec& spec, std::string name, int64_t block, BranchForm form = {});

  void DeclareWeights(WeightPlan& weights) override;
  void DeclareBuffers(const LayerBuffers& buffers) override;
  absl::Status Enqueue(const LayerContext& context) const override;
  void AddBytes(const StepTraffic& traffic, StepBytes* bytes) const override;
  bool CanNormInput(const LayerContext& context) const override {
    return models::CanNormInput(context, qkv_);
  }
  RoundedRows rounded_input() const override { return linear_.RoundedInputOf(qkv_); }
  bool CanAddBranch(const LayerContext& context) const override {
    return models::CanAddBranch(context, o_);
  }

  uint32_t window() const { return window_; }                 // sliding window in tokens; 0: none
  const kernels::LinearWeights& qkv() const { return qkv_; }  // rows: q heads, k heads, v heads
  const kernels::LinearWeights& o() const { return o_; }
  // [head_dim], or of all heads, [q_size] and [kv_size]; nullptr: heads are not normed.
  const void* q_norm() const { return q_norm_; }
  const void* k_norm() const { return k_norm_; }
  const float* sinks() const { return sinks_; }
  const kernels::KvScales& scales() const { return scales_; }  // none but of a KV cache of 8 bits

 private:
  void DeclareScales(WeightPlan& weights, const char* part, const float** out) const;
  absl::Status EnqueueRopeAppend(const LayerContext& context) const;
  absl::Status EnqueueAttention(const LayerContext& context) const;

  const ModelSpec& spec_;
  const std::string name_;
  const int64_t block_;
  const int64_t kv_layer_, rope_table_;
  const BranchForm form_;
  const uint32_t window_;
  const size_t lists_;  // which of StepPlan.attention has its work: layers of one window share one

  kernels::LinearWeights qkv_, o_;
  const void* q_norm_ = nullptr;
  const void* k_norm_ = nullptr;
  const float* sinks_ = nullptr;  // [num_heads]
  kernels::KvScales scales_;

  // Activations, [max_step_tokens, ...].
  void* qkv_out_ = nullptr;   // [tokens, qkv_size]
  void* q_ = nullptr;         // [tokens, q_size] after rope
  void* attended_ = nullptr;  // [tokens, q_size]
  // Partial results of split rows; see AttentionArgs.
  float* partial_out_ = nullptr;
  float* partial_max_ = nullptr;
  float* partial_sum_ = nullptr;
  uint32_t* arrivals_ = nullptr;
  uint32_t* piece_leaves_ = nullptr;
  LinearScratch linear_;
};

}  // namespace reprise::models

#endif  // REPRISE_MODELS_LAYERS_ATTENTION_LAYER_H_
