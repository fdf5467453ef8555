// SPDX-License-Identifier: Apache-2.0
// The table of architectures; see architectures.h. Sources: the configuration classes and modelling
// code of these models in transformers 4 and 5, and published config.json files.
#include "models/config/architectures.h"

#include <algorithm>

namespace reprise::models {
namespace {

using enum FieldRole;

// Llama's table is the shared one; these are Granite's fields in configs converted from it.
constexpr FieldRule kLlamaFields[] = {
    {"embedding_multiplier", kNeutral, "[1]"},
    {"residual_multiplier", kNeutral, "[1]"},
    {"logits_scaling", kNeutral, "[1]"},
};

constexpr FieldRule kGraniteFields[] = {
    {"embedding_multiplier", kConsumed},
    {"attention_multiplier", kConsumed},
    {"residual_multiplier", kConsumed},
    {"logits_scaling", kConsumed},
};

// There are no biases, whatever a config says.
constexpr FieldRule kMistralFields[] = {
    {"sliding_window", kConsumed},
    {"attention_bias", kNeutral, "[false]"},
    {"mlp_bias", kNeutral, "[false]"},
};

// Mistral's, in layers of two kinds.
constexpr FieldRule kMinistralFields[] = {
    {"sliding_window", kConsumed},
    {"layer_types", kConsumed},
    {"attention_bias", kNeutral, "[false]"},
    {"mlp_bias", kNeutral, "[false]"},
};

constexpr FieldRule kQwen2Fields[] = {
    {"use_sliding_window", kConsumed},
    {"sliding_window", kConsumed},     // inert unless use_sliding_window
    {"max_window_layers", kConsumed},  // the same
    {"layer_types", kConsumed},
    {"attention_bias", kNeutral, "[true]"},
    {"mlp_bias", kNeutral, "[false]"},
    {"use_mrope", kNeutral, "[false]"},
};

constexpr FieldRule kQwen3Fields[] = {
    {"use_sliding_window", kConsumed},
    {"sliding_window", kConsumed},     // inert unless use_sliding_window
    {"max_window_layers", kConsumed},  // the same
    {"layer_types", kConsumed},
    {"mlp_bias", kNeutral, "[false]"},
};

// What a config of Gemma's says of attention, beside the window.
constexpr FieldRule kGemma2Fields[] = {
    {"sliding_window", kConsumed},
    {"layer_types", kConsumed},
    {"attn_logit_softcapping", kConsumed},
    {"final_logit_softcapping", kConsumed},
    {"query_pre_attn_scalar", kConsumed},
    {"hidden_activation", kNeutral, R"(["gelu_pytorch_tanh"])"},
    {"hidden_act", kNeutral, R"(["gelu_pytorch_tanh"])"},  // hidden_activation alone counts
    {"mlp_bias", kNeutral, "[false]"},
    {"cache_implementation", kInert},
};

// Gemma 2's, with a pattern and a rope of the layers that slide.
constexpr FieldRule kGemma3Fields[] = {
    {"sliding_window", kConsumed},
    {"layer_types", kConsumed},
    {"sliding_window_pattern", kConsumed},
    {"rope_local_base_freq", kConsumed},
    {"attn_logit_softcapping", kConsumed},
    {"final_logit_softcapping", kConsumed},
    {"query_pre_attn_scalar", kConsumed},
    {"hidden_activation", kNeutral, R"(["gelu_pytorch_tanh"])"},
    {"hidden_act", kNeutral, R"(["gelu_pytorch_tanh"])"},  // hidden_activation alone counts
    {"mlp_bias", kNeutral, "[false]"},
    {"cache_implementation", kInert},
    {"_sliding_window_pattern", kInert},  // a note of transformers 5 beside layer_types
};

// There are no biases. The code that auto_map names is that of transformers' own class.
constexpr FieldRule kPhi3Fields[] = {
    {"sliding_window", kConsumed},
    {"attention_bias", kNeutral, "[false]"},
    {"mlp_bias", kNeutral, "[false]"},
    {"embd_pdrop", kInert},
    {"resid_pdrop", kInert},
    {"original_max_position_embeddings", kInert},  // counts beside longrope, which is refused
    {"auto_map", kNeutral,
     R"([{}, {"AutoConfig": "configuration_phi3.Phi3Config",
              "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"}])"},
};

constexpr FieldRule kOlmo2Fields[] = {
    {"mlp_bias", kNeutral, "[false]"},
};

// The block of most: norm, attention, norm, MLP, each branch added to the residual stream.
constexpr LayerEntry kPreNormBlock[] = {
    {LayerKind::kNorm, "input_layernorm"},
    {LayerKind::kAttention, "self_attn"},
    {LayerKind::kNorm, "post_attention_layernorm"},
    {LayerKind::kMlp, "mlp"},
};
constexpr Block kPreNormBlocks[] = {kPreNormBlock};

// Norms before a layer and behind it.
constexpr LayerEntry kFourNormBlock[] = {
    {LayerKind::kNorm, "input_layernorm"},
    {LayerKind::kAttention, "self_attn"},
    {LayerKind::kPostNorm, "post_attention_layernorm"},
    {LayerKind::kNorm, "pre_feedforward_layernorm"},
    {LayerKind::kMlp, "mlp"},
    {LayerKind::kPostNorm, "post_feedforward_layernorm"},
};
constexpr Block kFourNormBlocks[] = {kFourNormBlock};

// Norms behind a layer alone.
constexpr LayerEntry kPostNormBlock[] = {
    {LayerKind::kAttention, "self_attn"},
    {LayerKind::kPostNorm, "post_attention_layernorm"},
    {LayerKind::kMlp, "mlp"},
    {LayerKind::kPostNorm, "post_feedforward_layernorm"},
};
constexpr Block kPostNormBlocks[] = {kPostNormBlock};

constexpr Architecture kArchitectures[] = {
    {.name = "llama",
     .class_name = "LlamaForCausalLM",
     .model_type = "llama",
     .own = kLlamaFields,
     .blocks = kPreNormBlocks},
    {.name = "granite",
     .class_name = "GraniteForCausalLM",
     .model_type = "granite",
     .own = kGraniteFields,
     .numbers = NumberRule::kGranite,
     .blocks = kPreNormBlocks},
    {.name = "mistral",
     .class_name = "MistralForCausalLM",
     .model_type = "mistral",
     .own = kMistralFields,
     .default_kv_heads = 8,
     .default_sliding_window = 4096,
     .bias = BiasRule::kNever,
     .window = WindowRule::kAlways,
     .blocks = kPreNormBlocks},
    {.name = "ministral",
     .class_name = "MinistralForCausalLM",
     .model_type = "ministral",
     .own = kMinistralFields,
     .default_kv_heads = 8,
     .default_sliding_window = 4096,
     .bias = BiasRule::kNever,
     .window = WindowRule::kListed,
     .blocks = kPreNormBlocks},
    {.name = "qwen2",
     .class_name = "Qwen2ForCausalLM",
     .model_type = "qwen2",
     .own = kQwen2Fields,
     .default_kv_heads = 32,
     .default_sliding_window = 4096,
     .bias = BiasRule::kQkvOnly,
     .window = WindowRule::kSwitched,
     .blocks = kPreNormBlocks},
    {.name = "qwen3",
     .class_name = "Qwen3ForCausalLM",
     .model_type = "qwen3",
     .own = kQwen3Fields,
     .default_kv_heads = 32,
     .default_head_dim = 128,
     .default_sliding_window = 4096,
     .window = WindowRule::kSwitched,
     .qk_norm = QkNorm::kHeads,
     .blocks = kPreNormBlocks},
    {.name = "gemma2",
     .class_name = "Gemma2ForCausalLM",
     .model_type = "gemma2",
     .own = kGemma2Fields,
     .default_kv_heads = 4,
     .default_head_dim = 256,
     .default_sliding_window = 4096,
     .default_window_pattern = 2,
     .default_tied = true,
     .default_attention_softcap = 50.0,
     .default_logits_softcap = 30.0,
     .window = WindowRule::kPattern,
     .numbers = NumberRule::kGemma,
     .blocks = kFourNormBlocks},
    {.name = "gemma3",
     .class_name = "Gemma3ForCausalLM",
     .model_type = "gemma3_text",
     .own = kGemma3Fields,
     .default_kv_heads = 4,
     .default_head_dim = 256,
     .default_sliding_window = 4096,
     .default_window_pattern = 6,
     .default_rope_theta = 1000000.0,
     .default_tied = true,
     .window = WindowRule::kPattern,
     .numbers = NumberRule::kGemma,
     .qk_norm = QkNorm::kHeads,
     .local_rope = true,
     .blocks = kFourNormBlocks},
    {.name = "phi3",
     .class_name = "Phi3ForCausalLM",
     .model_type = "phi3",
     .own = kPhi3Fields,
     .default_rms_norm_eps = 1e-5,
     .bias = BiasRule::kNever,
     .window = WindowRule::kAlways,
     .fused_tensors = true,
     .blocks = kPreNormBlocks},
    {.name = "olmo2",
     .class_name = "Olmo2ForCausalLM",
     .model_type = "olmo2",
     .own = kOlmo2Fields,
     .default_rms_norm_eps = 1e-5,
     .qk_norm = QkNorm::kWhole,
     .blocks = kPostNormBlocks},
};

}  // namespace

std::span<const Architecture> KnownArchitectures() { return kArchitectures; }

const Architecture* FindArchitecture(std::string_view name) {
  const auto* found = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                   [name](const Architecture& a) { return a.name == name; });
  return found == std::end(kArchitectures) ? nullptr : found;
}

}  // namespace reprise::models
