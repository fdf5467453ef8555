// SPDX-License-Identifier: Apache-2.0
#include "models/layers/embedding_layer.h"

#include "kernels/embedding/embedding.h"
#include "runtime/float_convert.h"

namespace reprise::models {
namespace {

float MultiplierOf(const ModelSpec& spec, runtime::DType dtype) {
  const auto multiplier = static_cast<float>(spec.embedding_multiplier);
  if (!spec.rounds_embedding_multiplier) return multiplier;
  switch (dtype) {
    case runtime::DType::kBf16:
      return runtime::Bf16ToFloat(runtime::FloatToBf16(multiplier));
    case runtime::DType::kF16:
      return runtime::F16ToFloat(runtime::FloatToF16(multiplier));
    default:
      return multiplier;
  }
}

}  // namespace

void EmbeddingLayer::DeclareWeights(WeightPlan& weights) {
  weights.Table(&table_, name_, spec_.vocab_size, spec_.hidden_size, spec_.tie_word_embeddings);
  weights.Computed(&inverse_frequency_, RopeInverseFrequencies(spec_));
}

// Its outputs are the decoder's own.
void EmbeddingLayer::DeclareBuffers(const LayerBuffers&) {}

absl::Status EmbeddingLayer::Enqueue(const LayerContext& context) const {
  return kernels::Embedding(
      context.stream, context.kernels,
      {.table = table_.data,
       .out = context.x.residual,
       .token_id = context.plan.token_id,
       .token_position = context.plan.token_position,
       .num_tokens = &context.plan.counts->num_tokens,
       .inverse_frequency = inverse_frequency_,
       .rope = context.x.rope,
       .hidden = static_cast<int32_t>(spec_.hidden_size),
       .half_dim = static_cast<int32_t>(spec_.head_dim / 2 * spec_.NumRopeTables()),
       .packed = kernels::IsPacked(table_.layout) ? 1 : 0,
       .multiplier = MultiplierOf(spec_, context.kernels.dtype),
       .rope_multiplier = static_cast<float>(spec_.rope.attention_factor)},
      context.shape.max_tokens);
}

void EmbeddingLayer::AddBytes(const StepTraffic& traffic, StepBytes* bytes) const {
  const uint64_t line = static_cast<uint64_t>(spec_.hidden_size) * traffic.element_bytes;
  bytes->weights += traffic.rows * line;
  const auto rope = static_cast<uint64_t>(spec_.head_dim * spec_.NumRopeTables());
  bytes->activations += traffic.rows * (line + rope * sizeof(float));
}

}  // namespace reprise::models
