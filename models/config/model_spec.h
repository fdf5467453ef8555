// SPDX-License-Identifier: Apache-2.0
// ModelSpec: what a decoder-only transformer is, as numbers, whatever dialect its config.json was
// written in. It is plain data and knows no devices; parsing is in hf_config.h, presets are in
// model_presets.h.
#ifndef REPRISE_MODELS_CONFIG_MODEL_SPEC_H_
#define REPRISE_MODELS_CONFIG_MODEL_SPEC_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "models/config/weight_quantization.h"
#include "runtime/dtype.h"

namespace reprise::models {

enum class RopeScaling : uint8_t { kNone, kLlama3, kLinear, kYarn, kLongRope };

// Rotary embedding. Source: Su et al. 2021 (RoFormer); llama3 scaling as published with Llama 3.1;
// yarn: Peng et al. 2023; longrope: Ding et al. 2024.
struct RopeSpec {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;  // how much longer the context became; all scalings
  // llama3 only: turns over the original context below which a frequency is slowed, and above which
  // it is kept.
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position_embeddings = 8192;  // llama3, yarn and longrope
  // yarn and longrope: cos and sin of what is turned are multiplied by attention_factor.
  double attention_factor = 1.0;
  // yarn only: the betas are turns, as above, and `truncate` rounds the pairs that they name to
  // whole ones.
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;
  // longrope only: what divides the frequency of each pair that is turned. One list counts for all
  // positions, so that all keys of a KV cache are turned alike; FitContexts chooses it.
  std::vector<double> short_factors = {}, long_factors = {};
  bool takes_long_factors = false;

  // Chooses the long factors where contexts of an engine may be longer than the original one.
  void FitContexts(int64_t max_context_length) {
    takes_long_factors =
        scaling == RopeScaling::kLongRope && max_context_length > original_max_position_embeddings;
  }
  bool operator==(const RopeSpec&) const = default;
};

// What the gate of an MLP goes through.
enum class Activation : uint8_t {
  kSilu,
  kGeluTanh,
  kLimited,  // gate_limit and gate_slope, as kernels/silu_mul/silu_mul.h has them
};

// How token ids map to text, as far as Reprise itself can know.
enum class TokenEncoding : uint8_t {
  kOpaque,  // the scheduler brings its own tokenizer
  kBytes,   // id < 256 is that byte; ids from 256 on are special tokens
};

// Layers of Mamba-2, which carry state from token to token in place of attention's KV.
struct MambaSpec {
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  int64_t num_groups = 0;  // of heads that share B and C
  int64_t state_size = 0;  // of each element of a head
  int64_t conv_width = 0;  // inputs that the convolution sees, the token's own included
  bool conv_bias = true;
  bool proj_bias = false;  // of the projections in and out
  // Every step in time is brought into these bounds.
  double min_dt = 0.0;
  double max_dt = std::numeric_limits<double>::infinity();

  int64_t inner_size() const { return num_heads * head_dim; }
  // What is convolved: x, B and C.
  int64_t conv_size() const { return inner_size() + 2 * num_groups * state_size; }
  // Of the projection in: the gate, what is convolved, and dt.
  int64_t projected_size() const { return inner_size() + conv_size() + num_heads; }

  bool operator==(const MambaSpec&) const = default;
};

struct ModelSpec {
  std::string name;          // preset name, or the directory's base name
  std::string architecture;  // a name of the table in architectures.h, such as "llama"
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_position_embeddings = 0;  // context limit of the model, tokens
  double rms_norm_eps = 1e-5;
  RopeSpec rope;
  // Of layers that slide, where they turn otherwise than the rest; unset: all have `rope`.
  std::optional<RopeSpec> sliding_rope = std::nullopt;
  bool has_rope = true;  // false: q and k are not turned at all
  // Of a head, its first elements, which rope turns, pairs half of it apart; 0: all of them.
  int64_t rotary_dim = 0;
  // Of the layers that have it in place of attention; unset: none has.
  std::optional<MambaSpec> mamba = std::nullopt;
  std::vector<bool> mamba_layers = {};  // [num_layers] which layers do; empty without mamba
  // Experts in place of the MLP, 0: none. A token goes to experts_per_token of num_experts.
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;
  int64_t expert_intermediate_size = 0;
  bool normalises_expert_shares = true;  // those of a token's experts are together 1
  bool mxfp4_experts = false;            // their matrices are in MXFP4
  std::vector<bool> sparse = {};  // [num_layers] which layers have experts; empty: all of them
  bool tie_word_embeddings = false;
  bool qkv_bias = false;       // q, k and v projections carry a bias
  bool o_bias = false;         // the attention's output projection carries one
  bool mlp_bias = false;       // gate, up and down projections carry a bias
  bool qk_norm = false;        // RMSNorm over every head of q and k before rope
  bool whole_qk_norm = false;  // it is one over all heads of q, and one over all of k
  double norm_offset = 0.0;    // what norms add to their weights, in f32
  Activation activation = Activation::kSilu;
  double gate_limit = 0.0, gate_slope = 1.0;  // of kLimited
  bool attention_sinks = false;  // a number of each head joins the sum of every softmax
  // A layer that slides sees this many positions, the token's own included; 0: no layer slides.
  int64_t sliding_window = 0;
  // [num_layers] which layers do; empty: all of them. Where there is a sliding_rope it says which
  // layers have it, even if no window is in use.
  std::vector<bool> slides = {};
  // Granite's four multipliers; neutral values elsewhere.
  double embedding_multiplier = 1.0;         // embeddings are multiplied by this
  bool rounds_embedding_multiplier = false;  // to the compute dtype, before it multiplies
  // The softmax scale: 1/sqrt(head_dim), but 1 for a granite config that names none.
  double attention_multiplier = 0.0;
  // s becomes cap * tanh(s / cap), of attention's scores and of logits; 0: none.
  double attention_softcap = 0.0;
  double logits_softcap = 0.0;
  // Every residual branch is multiplied by this before it is added.
  double residual_multiplier = 1.0;
  double logits_scaling = 1.0;  // logits are divided by this
  // The model is the text part of one that takes images, too. The checkpoint has both parts, and
  // names its tensors so (models/weights/text_part.h); the vision part is not run.
  bool beside_vision = false;
  std::vector<uint32_t> eos_token_ids;
  runtime::DType checkpoint_dtype = runtime::DType::kBf16;
  // Of the linear layers of blocks that it covers; unset: they have checkpoint_dtype, too.
  std::optional<WeightQuantization> weight_quantization = std::nullopt;
  // That the checkpoint was calibrated for; unset: it says nothing of it.
  std::optional<runtime::DType> kv_cache_dtype = std::nullopt;
  TokenEncoding token_encoding = TokenEncoding::kOpaque;

  bool HasExperts(int64_t layer) const {
    return num_experts != 0 && (sparse.empty() || sparse[static_cast<size_t>(layer)]);
  }
  bool IsMamba(int64_t layer) const {
    return mamba.has_value() && mamba_layers[static_cast<size_t>(layer)];
  }
  bool IsQuantized(int64_t layer, BlockLinear linear) const {
    return weight_quantization.has_value() && weight_quantization->Covers(layer, linear);
  }
  // Linear layers of blocks, as they run, that weight_quantization does not cover; 0 without one.
  int64_t NumLeftOut() const;
  int64_t NumAttentionLayers() const { return KvLayerOf(num_layers); }
  // Which layer of the KV cache the layer's is: the number of layers with attention before it.
  int64_t KvLayerOf(int64_t layer) const;
  // Bytes of the state that a row carries beside its KV, of all layers, where the compute dtype is
  // `dtype`; 0: none.
  uint64_t RowStateBytes(runtime::DType dtype) const;
  int64_t TurnedDim() const { return rotary_dim == 0 ? head_dim : rotary_dim; }
  int64_t q_size() const { return num_heads * head_dim; }
  int64_t kv_size() const { return num_kv_heads * head_dim; }
  int64_t qkv_size() const { return q_size() + 2 * kv_size(); }
  // What the layer sees, in positions; 0: all of them.
  int64_t WindowOf(int64_t layer) const;
  // Tables of cosines and sines that its layers read, and which of them a layer does.
  int64_t NumRopeTables() const { return sliding_rope.has_value() ? 2 : 1; }
  int64_t RopeTableOf(int64_t layer) const;
  // The different ones of all layers, widest first: 0 where a layer sees all, then sliding_window.
  std::vector<int64_t> Windows() const;
  // KV tokens that the last `tokens` tokens of a context see together, in the mean of all layers.
  // `context` counts them, too.
  double MeanVisible(double context, double tokens = 1) const;
  // Experts of a layer that so many tokens go to, at least one of them each: in the mean, where
  // every choice of a token's experts is as likely as any other. 0 without experts.
  double MeanExperts(double tokens) const;
};

// Whether `spec` describes a model that can exist: a known architecture, positive sizes that divide
// as they must, an even head_dim, as many layers that slide or do not as there are layers, experts
// where the architecture has them and no more of a token than there are, state space models where
// it has them and attention in one layer at least, layers left out of a quantization that there
// are, finite multipliers, caps and offsets, eos ids
// inside the vocabulary. That its parameters can be addressed is Decoder::Create's to check.
// Errors: InvalidArgument with field, got, allowed; Unimplemented for quantised experts that are
// one tensor.
absl::Status ValidateModelSpec(const ModelSpec& spec);

// Wants a spec that ValidateModelSpec accepts. Inverse frequencies of rope, [NumRopeTables(),
// head_dim / 2] f32, that of sliding_rope last, scaling applied; computed in double and rounded
// once. Without rope all are 0, which turns nothing; with a rotary_dim those behind its half are
// (models/weights/published_matrix.h says how heads lie then).
std::vector<float> RopeInverseFrequencies(const ModelSpec& spec);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_CONFIG_MODEL_SPEC_H_
