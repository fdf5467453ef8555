// SPDX-License-Identifier: Apache-2.0
#include "engine/step_bytes.h"

#include <algorithm>
#include <cmath>

namespace reprise::engine {
namespace {

// Elements of the compute dtype that every step reads.
uint64_t WeightElements(const models::ModelSpec& s) {
  const int64_t h = s.hidden_size;
  const int64_t i = s.intermediate_size;
  int64_t layer = s.qkv_size() * h + h * s.q_size() + 3 * i * h + 2 * h;
  if (s.qkv_bias) layer += s.qkv_size();
  if (s.o_bias) layer += h;
  if (s.qk_norm) layer += 2 * s.head_dim;
  if (s.mlp_bias) layer += 2 * i + h;
  return static_cast<uint64_t>(s.num_layers * layer + h + s.vocab_size * h);
}

// Elements of the compute dtype that one row reads and writes, kernel by kernel.
uint64_t ActivationElements(const models::ModelSpec& s) {
  const int64_t h = s.hidden_size;
  const int64_t i = s.intermediate_size;
  const int64_t norm = 4 * h;            // residual and branch in, residual and normed out
  const int64_t qkv = h + s.qkv_size();  // linear
  const int64_t rope = s.qkv_size() + s.q_size();  // K and V go to the cache, counted there
  const int64_t attention = 2 * s.q_size();
  const int64_t o = s.q_size() + h;   // linear
  const int64_t gate_up = h + 2 * i;  // linear
  const int64_t silu = 2 * i + i;
  const int64_t down = i + h;  // linear
  const int64_t layer = 2 * norm + qkv + rope + attention + o + gate_up + silu + down;
  const int64_t embedding = h;  // out
  const int64_t first_norm_has_no_branch = h;
  const int64_t final_norm = 3 * h;  // nothing goes back to the residual
  const int64_t logits = h;          // in
  return static_cast<uint64_t>(embedding + s.num_layers * layer - first_norm_has_no_branch +
                               final_norm + logits);
}

// The f32 part of a row: cosines and sines, written by the embedding and read in every layer;
// logits, written once and read once.
uint64_t FloatElements(const models::ModelSpec& s) {
  return static_cast<uint64_t>(s.head_dim * (1 + s.num_layers) + 2 * s.vocab_size);
}

}  // namespace

StepBytes BytesOfDecodeStep(const models::ModelSpec& spec, runtime::DType dtype, uint64_t rows,
                            double context) {
  const uint64_t element = runtime::SizeOf(dtype);
  const uint64_t kv_per_token =
      2 * static_cast<uint64_t>(spec.num_layers * spec.kv_size()) * element;
  if (spec.sliding_window > 0)
    context = std::min(context, static_cast<double>(spec.sliding_window));
  const uint64_t embedding_lines = rows * static_cast<uint64_t>(spec.hidden_size);
  return {.weights = (WeightElements(spec) + embedding_lines) * element,
          .kv_read = static_cast<uint64_t>(
              std::llround(static_cast<double>(rows * kv_per_token) * context)),
          .kv_written = rows * kv_per_token,
          .activations =
              rows * (ActivationElements(spec) * element + FloatElements(spec) * sizeof(float))};
}

}  // namespace reprise::engine
