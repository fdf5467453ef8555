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

// There are no biases. The code that auto_map names is that of transformers' own class, and the
// tokenizer that it names is not ours to run.
constexpr FieldRule kPhi3Fields[] = {
    {"sliding_window", kConsumed},
    {"attention_bias", kNeutral, "[false]"},
    {"mlp_bias", kNeutral, "[false]"},
    {"embd_pdrop", kInert},
    {"resid_pdrop", kInert},
    {"lm_head_bias", kNeutral, "[false]"},  // as Phi-4-mini's config has it, and the next two
    {"full_attn_mod", kNeutral, "[1]"},
    {"interpolate_factor", kNeutral, "[1]"},
    {"auto_map", kNeutral,
     R"([{}, {"AutoConfig": "configuration_phi3.Phi3Config",
              "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"},
             {"AutoConfig": "configuration_phi3.Phi3Config",
              "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM",
              "AutoTokenizer": "Xenova/gpt-4o"}])"},
};

constexpr FieldRule kOlmo2Fields[] = {
    {"mlp_bias", kNeutral, "[false]"},
};

// Of a mixture of experts, what only training reads is inert.
constexpr FieldRule kMixtralFields[] = {
    {"sliding_window", kConsumed},      {"num_local_experts", kConsumed},
    {"num_experts_per_tok", kConsumed}, {"attention_bias", kNeutral, "[false]"},
    {"mlp_bias", kNeutral, "[false]"},  {"output_router_logits", kInert},
    {"router_aux_loss_coef", kInert},   {"router_jitter_noise", kInert},
};

constexpr FieldRule kQwen3MoeFields[] = {
    {"num_experts", kConsumed},        // transformers 4
    {"num_local_experts", kConsumed},  // transformers 5
    {"num_experts_per_tok", kConsumed},
    {"moe_intermediate_size", kConsumed},
    {"norm_topk_prob", kConsumed},
    {"decoder_sparse_step", kConsumed},
    {"mlp_only_layers", kConsumed},
    {"sliding_window", kInert},  // use_sliding_window must be false
    {"max_window_layers", kInert},
    {"qkv_bias", kNeutral, "[false]"},  // as Qwen3-Coder's config has it, and the next two
    {"use_qk_norm", kNeutral, "[true]"},
    {"shared_expert_intermediate_size", kNeutral, "[0]"},
    {"mlp_bias", kNeutral, "[false]"},
    {"output_router_logits", kInert},
    {"router_aux_loss_coef", kInert},
};

constexpr FieldRule kGraniteMoeFields[] = {
    {"embedding_multiplier", kConsumed}, {"attention_multiplier", kConsumed},
    {"residual_multiplier", kConsumed},  {"logits_scaling", kConsumed},
    {"num_local_experts", kConsumed},    {"num_experts_per_tok", kConsumed},
    {"mlp_bias", kNeutral, "[false]"},   {"output_router_logits", kInert},
    {"router_aux_loss_coef", kInert},
};

// What a config says twice is checked, and what only training reads is inert.
constexpr FieldRule kGptOssFields[] = {
    {"sliding_window", kConsumed},
    {"layer_types", kConsumed},
    {"num_local_experts", kConsumed},
    {"num_experts_per_tok", kConsumed},
    {"experts_per_token", kConsumed},  // the same
    {"swiglu_limit", kConsumed},
    {"swiglu_alpha", kConsumed},
    {"mlp_bias", kNeutral, "[false]"},
    {"initial_context_length", kInert},  // what rope_scaling counts from stands there
    {"output_router_logits", kInert},
    {"router_aux_loss_coef", kInert},
};

// What only training reads is inert, and so is how long a chunk transformers scans at a time.
constexpr FieldRule kGraniteMoeHybridFields[] = {
    {"embedding_multiplier", kConsumed},
    {"attention_multiplier", kConsumed},
    {"residual_multiplier", kConsumed},
    {"logits_scaling", kConsumed},
    {"num_local_experts", kConsumed},
    {"num_experts_per_tok", kConsumed},
    {"shared_intermediate_size", kConsumed},
    {"position_embedding_type", kConsumed},
    {"layer_types", kConsumed},
    {"layers_block_type", kConsumed},  // the same
    {"mamba_n_heads", kConsumed},
    {"mamba_d_head", kConsumed},
    {"mamba_n_groups", kConsumed},
    {"mamba_d_state", kConsumed},
    {"mamba_d_conv", kConsumed},
    {"mamba_expand", kConsumed},
    {"mamba_conv_bias", kConsumed},
    {"mamba_proj_bias", kConsumed},
    {"time_step_limit", kConsumed},
    {"mamba_chunk_size", kInert},
    {"time_step_min", kInert},
    {"time_step_max", kInert},
    {"init_method", kInert},
    {"normalization_function", kNeutral, R"(["rmsnorm"])"},
    {"mlp_bias", kNeutral, "[false]"},
    {"output_router_logits", kInert},
    {"router_aux_loss_coef", kInert},
};

// There are no biases. What only training reads is inert, and so is what only sizes a buffer of
// transformers.
constexpr FieldRule kBambaFields[] = {
    {"attn_layer_indices", kConsumed}, {"attn_rotary_emb", kConsumed},
    {"mamba_n_heads", kConsumed},      {"mamba_d_head", kConsumed},
    {"mamba_n_groups", kConsumed},     {"mamba_d_state", kConsumed},
    {"mamba_d_conv", kConsumed},       {"mamba_expand", kConsumed},
    {"mamba_conv_bias", kConsumed},    {"mamba_proj_bias", kConsumed},
    {"time_step_limit", kConsumed},    {"attention_bias", kNeutral, "[false]"},
    {"mlp_bias", kNeutral, "[false]"}, {"mamba_chunk_size", kInert},
    {"mamba_dt_rank", kInert},         {"use_mamba_kernels", kInert},
    {"num_logits_to_keep", kInert},    {"time_step_min", kInert},
    {"time_step_max", kInert},         {"z_loss_coefficient", kInert},
};

// ---- models with a vision part ----

// The text part's fields, and what says of which sizes images are and which tokens stand for them.
// transformers 5 names the tokens image_token_id and so on.
constexpr FieldRule kGemma3Beside[] = {
    {"text_config", kConsumed},    {"vision_config", kInert},   {"mm_tokens_per_image", kInert},
    {"image_token_index", kInert}, {"image_token_id", kInert},  {"boi_token_index", kInert},
    {"boi_token_id", kInert},      {"eoi_token_index", kInert}, {"eoi_token_id", kInert},
};

// The model as a whole has no cap of its logits, whatever its text part alone would have.
constexpr FieldRule kGemma3Within[] = {
    {"architectures", kInert},
    {"final_logit_softcapping", kNeutral, "[]"},
};

constexpr FieldRule kMistral3Beside[] = {
    {"text_config", kConsumed},       {"vision_config", kInert},
    {"image_token_index", kInert},    {"image_token_id", kInert},
    {"projector_hidden_act", kInert}, {"multimodal_projector_bias", kInert},
    {"spatial_merge_size", kInert},   {"vision_feature_layer", kInert},
};

constexpr FieldRule kMistral3Within[] = {
    {"architectures", kInert},
};

constexpr VisionModel kVisionModels[] = {
    {.class_name = "Gemma3ForConditionalGeneration",
     .model_type = "gemma3",
     .text = "gemma3",
     .beside = kGemma3Beside,
     .within = kGemma3Within},
    {.class_name = "Mistral3ForConditionalGeneration",
     .model_type = "mistral3",
     .text = "mistral",
     .beside = kMistral3Beside,
     .within = kMistral3Within},
};

// ---- layers ----

// The block of most: norm, attention, norm, MLP, each branch added to the residual stream.
constexpr LayerEntry kPreNormBlock[] = {
    {LayerKind::kNorm, "input_layernorm"},
    {LayerKind::kAttention, "self_attn"},
    {LayerKind::kNorm, "post_attention_layernorm"},
    {LayerKind::kMlp, "mlp"},
};
constexpr Block kPreNormBlocks[] = {kPreNormBlock};

// The same, with experts.
constexpr LayerEntry kExpertsBlock[] = {
    {LayerKind::kNorm, "input_layernorm"},
    {LayerKind::kAttention, "self_attn"},
    {LayerKind::kNorm, "post_attention_layernorm"},
    {LayerKind::kExperts, "block_sparse_moe"},
};
constexpr Block kExpertsBlocks[] = {kExpertsBlock};
constexpr LayerEntry kMlpOrExpertsBlock[] = {
    {LayerKind::kNorm, "input_layernorm"},
    {LayerKind::kAttention, "self_attn"},
    {LayerKind::kNorm, "post_attention_layernorm"},
    {LayerKind::kExperts, "mlp"},
};
constexpr Block kMlpOrExpertsBlocks[] = {kMlpOrExpertsBlock};

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

// Attention or a state space model, then an MLP, with experts beside it or without.
constexpr LayerEntry kHybridBlock[] = {
    {LayerKind::kNorm, "input_layernorm"},     {LayerKind::kMamba, "mamba"},
    {LayerKind::kAttention, "self_attn"},      {LayerKind::kNorm, "post_attention_layernorm"},
    {LayerKind::kExperts, "block_sparse_moe"},
};
constexpr Block kHybridBlocks[] = {kHybridBlock};

// The same with an MLP alone.
constexpr LayerEntry kBambaBlock[] = {
    {LayerKind::kNorm, "input_layernorm"}, {LayerKind::kMamba, "mamba"},
    {LayerKind::kAttention, "self_attn"},  {LayerKind::kNorm, "pre_ff_layernorm"},
    {LayerKind::kMlp, "feed_forward"},
};
constexpr Block kBambaBlocks[] = {kBambaBlock};

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
     .default_vocab = 262208,
     .default_hidden = 2304,
     .default_intermediate = 9216,
     .default_layers = 26,
     .default_heads = 8,
     .default_max_positions = 131072,
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
     .default_original_positions = 4096,
     .bias = BiasRule::kNever,
     .window = WindowRule::kAlways,
     .mlp_tensors = {.gate = "gate_up_proj", .up = nullptr},
     .fused_tensors = true,
     .chooses_rotary_factor = true,
     .blocks = kPreNormBlocks},
    {.name = "olmo2",
     .class_name = "Olmo2ForCausalLM",
     .model_type = "olmo2",
     .own = kOlmo2Fields,
     .default_rms_norm_eps = 1e-5,
     .qk_norm = QkNorm::kWhole,
     .blocks = kPostNormBlocks},
    {.name = "mixtral",
     .class_name = "MixtralForCausalLM",
     .model_type = "mixtral",
     .own = kMixtralFields,
     .default_kv_heads = 8,
     .default_experts = 8,
     .default_experts_per_token = 2,
     .default_rms_norm_eps = 1e-5,
     .default_rope_theta = 1000000.0,
     .bias = BiasRule::kNever,
     .window = WindowRule::kAlways,
     .experts = ExpertRule::kEveryLayer,
     .expert_tensors = {.router = "gate", .gate = "w1", .up = "w3", .down = "w2"},
     .blocks = kExpertsBlocks},
    {.name = "qwen3_moe",
     .class_name = "Qwen3MoeForCausalLM",
     .model_type = "qwen3_moe",
     .own = kQwen3MoeFields,
     .default_kv_heads = 4,
     .default_experts = 128,
     .default_experts_per_token = 8,
     .qk_norm = QkNorm::kHeads,
     .experts = ExpertRule::kSomeLayers,
     .expert_tensors =
         {.router = "gate", .gate = "gate_proj", .up = "up_proj", .down = "down_proj"},
     .blocks = kMlpOrExpertsBlocks},
    {.name = "granitemoe",
     .class_name = "GraniteMoeForCausalLM",
     .model_type = "granitemoe",
     .own = kGraniteMoeFields,
     .default_experts = 8,
     .default_experts_per_token = 2,
     .numbers = NumberRule::kGranite,
     .experts = ExpertRule::kEveryLayer,
     .expert_tensors = {.router = "router.layer", .gate = "input_linear", .down = "output_linear"},
     .blocks = kExpertsBlocks},
    {.name = "gpt_oss",
     .class_name = "GptOssForCausalLM",
     .model_type = "gpt_oss",
     .own = kGptOssFields,
     .default_kv_heads = 8,
     .default_head_dim = 64,
     .default_sliding_window = 128,
     .default_window_pattern = 2,
     .default_experts = 128,
     .default_experts_per_token = 4,
     .default_rms_norm_eps = 1e-5,
     .default_rope_theta = 150000.0,
     .default_attention_bias = true,
     .window = WindowRule::kPattern,
     .numbers = NumberRule::kGptOss,
     .experts = ExpertRule::kEveryLayer,
     .expert_tensors = {.router = "router",
                        .gate = "experts.gate_up_proj",
                        .down = "experts.down_proj",
                        .inputs_first = true,
                        .alternates = true,
                        .biased = true},
     .names_rope = true,
     .blocks = kMlpOrExpertsBlocks},
    {.name = "granitemoehybrid",
     .class_name = "GraniteMoeHybridForCausalLM",
     .model_type = "granitemoehybrid",
     .own = kGraniteMoeHybridFields,
     .default_experts = 8,
     .default_experts_per_token = 2,
     .numbers = NumberRule::kGranite,
     .experts = ExpertRule::kBesideMlp,
     .expert_tensors = {.router = "router.layer", .gate = "input_linear", .down = "output_linear"},
     .mlp_tensors = {.gate = "input_linear", .up = nullptr, .down = "output_linear"},
     .shared_mlp = "shared_mlp",
     .state = StateRule::kMamba,
     .optional_rope = true,
     .blocks = kHybridBlocks},
    {.name = "bamba",
     .class_name = "BambaForCausalLM",
     .model_type = "bamba",
     .own = kBambaFields,
     .default_kv_heads = 8,
     .default_rms_norm_eps = 1e-5,
     .default_max_positions = 262144,
     .bias = BiasRule::kNever,
     .state = StateRule::kMambaElsewhere,
     .partial_rotary_factor = 0.5,
     .final_norm = "model.final_layernorm.weight",
     .blocks = kBambaBlocks},
};

}  // namespace

std::span<const Architecture> KnownArchitectures() { return kArchitectures; }

std::span<const VisionModel> KnownVisionModels() { return kVisionModels; }

const Architecture* FindArchitecture(std::string_view name) {
  const auto* found = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                   [name](const Architecture& a) { return a.name == name; });
  return found == std::end(kArchitectures) ? nullptr : found;
}

}  // namespace reprise::models
