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

// The block of all of them: norm, attention, norm, MLP, each branch added to the residual stream.
constexpr LayerEntry kPreNormBlock[] = {
    {LayerKind::kNorm, "input_layernorm"},
    {LayerKind::kAttention, "self_attn"},
    {LayerKind::kNorm, "post_attention_layernorm"},
    {LayerKind::kMlp, "mlp"},
};
constexpr Block kPreNormBlocks[] = {kPreNormBlock};

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
     .multipliers = true,
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
     .qk_norm = true,
     .blocks = kPreNormBlocks},
};

}  // namespace

std::span<const Architecture> KnownArchitectures() { return kArchitectures; }

const Architecture* FindArchitecture(std::string_view name) {
  const auto* found = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                   [name](const Architecture& a) { return a.name == name; });
  return found == std::end(kArchitectures) ? nullptr : found;
}

}  // namespace reprise::models
