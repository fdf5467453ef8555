// SPDX-License-Identifier: Apache-2.0
// Presets against the published configs and the published numbers of parameters.
#include "models/config/model_presets.h"

#include <gtest/gtest.h>

#include "models/config/hf_config.h"
#include "models/config/json_input.h"
#include "models/decoder.h"
#include "tests/models/model_files.h"

namespace reprise::models {
namespace {

using ::reprise::testing::ExpectError;

struct Published {
  const char* name;
  int64_t num_parameters;
  const char* config;
  const char* quantization = "null";  // quantization_config
};

constexpr char kLlama31With8B[] = R"({
      "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "bos_token_id": 128000, "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 4096,
      "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 131072,
      "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
      "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
      "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                       "original_max_position_embeddings": 8192, "rope_type": "llama3"},
      "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
      "transformers_version": "4.43.0.dev0", "use_cache": true, "vocab_size": 128256})";
constexpr char kQwen3With8B[] = R"({
      "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
      "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 12288,
      "max_position_embeddings": 40960, "max_window_layers": 36, "model_type": "qwen3",
      "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8,
      "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
      "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})";

constexpr char kQwen3With30BA3B[] = R"({
      "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151645, "head_dim": 128,
      "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
      "intermediate_size": 6144, "max_position_embeddings": 40960, "max_window_layers": 48,
      "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 768,
      "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128,
      "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4,
      "output_router_logits": false, "rms_norm_eps": 1e-06, "rope_scaling": null,
      "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": null,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
      "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})";

constexpr Published kPublished[] = {
    {"llama-3.1-8b", 8'030'261'248, kLlama31With8B},
    {"llama-3.2-1b", 1'235'814'400, R"({
      "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu",
      "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
      "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
      "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
      "pretraining_tp": 1, "rms_norm_eps": 1e-05,
      "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                       "original_max_position_embeddings": 8192, "rope_type": "llama3"},
      "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
      "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256})"},
    {"granite-8b-code", 8'054'910'976, R"({
      "architectures": ["LlamaForCausalLM"], "attention_bias": true, "attention_dropout": 0.1,
      "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "silu", "hidden_size": 4096,
      "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 4096,
      "mlp_bias": true, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 36,
      "num_key_value_heads": 8, "pad_token_id": 0, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
      "rope_scaling": null, "rope_theta": 10000, "tie_word_embeddings": true,
      "torch_dtype": "bfloat16", "transformers_version": "4.41.0.dev0", "use_cache": true,
      "vocab_size": 49152})"},
    {"mistral-7b-v0.1", 7'241'732'096, R"({
      "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
      "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
      "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
      "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
      "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16",
      "transformers_version": "4.34.0.dev0", "use_cache": true, "vocab_size": 32000})"},
    {"qwen2.5-7b", 7'615'616'512, R"({
      "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
      "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 3584,
      "initializer_range": 0.02, "intermediate_size": 18944, "max_position_embeddings": 131072,
      "max_window_layers": 28, "model_type": "qwen2", "num_attention_heads": 28,
      "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
      "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "transformers_version": "4.40.1", "use_cache": true,
      "use_mrope": false, "use_sliding_window": false, "vocab_size": 152064})"},
    {"qwen3-8b", 8'190'735'360, kQwen3With8B},
    {"gemma-2-9b", 9'241'705'984, R"({
      "architectures": ["Gemma2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "attn_logit_softcapping": 50.0, "bos_token_id": 2, "cache_implementation": "hybrid",
      "eos_token_id": 1, "final_logit_softcapping": 30.0, "head_dim": 256,
      "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
      "hidden_size": 3584, "initializer_range": 0.02, "intermediate_size": 14336,
      "max_position_embeddings": 8192, "model_type": "gemma2", "num_attention_heads": 16,
      "num_hidden_layers": 42, "num_key_value_heads": 8, "pad_token_id": 0,
      "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
      "sliding_window": 4096, "torch_dtype": "bfloat16", "transformers_version": "4.42.0.dev0",
      "use_cache": true, "vocab_size": 256000})"},
    {"gemma-3-1b", 999'885'952, R"({
      "architectures": ["Gemma3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "attn_logit_softcapping": null, "bos_token_id": 2, "cache_implementation": "hybrid",
      "eos_token_id": 1, "final_logit_softcapping": null, "head_dim": 256,
      "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "initializer_range": 0.02,
      "intermediate_size": 6912, "max_position_embeddings": 32768, "model_type": "gemma3_text",
      "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1,
      "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
      "rope_local_base_freq": 10000, "rope_scaling": null, "rope_theta": 1000000,
      "sliding_window": 512, "sliding_window_pattern": 6, "torch_dtype": "bfloat16",
      "transformers_version": "4.50.0.dev0", "use_cache": true, "vocab_size": 262144})"},
    {"gemma-3-4b", 3'880'263'168, R"({
      "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999,
      "eoi_token_index": 256000, "eos_token_id": [1, 106], "image_token_index": 262144,
      "initializer_range": 0.02, "mm_tokens_per_image": 256, "model_type": "gemma3",
      "text_config": {"hidden_size": 2560, "intermediate_size": 10240,
        "model_type": "gemma3_text", "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
      "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0",
      "vision_config": {"hidden_size": 1152, "image_size": 896, "intermediate_size": 4304,
        "model_type": "siglip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 27,
        "patch_size": 14, "vision_use_head": false}})"},
    {"phi-4", 14'659'507'200, R"({
      "architectures": ["Phi3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "bos_token_id": 100257, "embd_pdrop": 0.0, "eos_token_id": 100265, "hidden_act": "silu",
      "hidden_size": 5120, "initializer_range": 0.02, "intermediate_size": 17920,
      "max_position_embeddings": 16384, "model_type": "phi3", "num_attention_heads": 40,
      "num_hidden_layers": 40, "num_key_value_heads": 10,
      "original_max_position_embeddings": 16384, "pad_token_id": 100349, "resid_pdrop": 0.0,
      "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 250000, "sliding_window": null,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.47.0",
      "use_cache": true, "vocab_size": 100352})"},
    {"phi-4-mini", 3'836'021'760, R"({
      "architectures": ["Phi3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config",
                   "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM",
                   "AutoTokenizer": "Xenova/gpt-4o"},
      "bos_token_id": 199999, "embd_pdrop": 0.0, "eos_token_id": 199999, "full_attn_mod": 1,
      "hidden_act": "silu", "hidden_size": 3072, "initializer_range": 0.02,
      "intermediate_size": 8192, "interpolate_factor": 1, "lm_head_bias": false,
      "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "phi3",
      "num_attention_heads": 24, "num_hidden_layers": 32, "num_key_value_heads": 8,
      "original_max_position_embeddings": 4096, "pad_token_id": 199999,
      "partial_rotary_factor": 0.75, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05,
      "rope_scaling": {"type": "longrope",
        "long_factor": [
          1, 1.118320672, 1.250641126, 1.398617824, 1.564103225, 1.74916897, 1.956131817,
          2.187582649, 2.446418898, 2.735880826, 3.059592084, 3.421605075, 3.826451687,
          4.279200023, 4.785517845, 5.351743533, 5.984965424, 6.693110555, 7.485043894,
          8.370679318, 9.36110372, 10.4687158, 11.70738129, 13.09260651, 14.64173252, 16.37415215,
          18.31155283, 20.47818807, 22.90118105, 25.61086418, 28.64115884, 32.03, 32.1, 32.13,
          32.23, 32.6, 32.61, 32.64, 32.66, 32.7, 32.71, 32.93, 32.97, 33.28, 33.49, 33.5, 44.16,
          47.77],
        "short_factor": [
          1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0,
          1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0,
          1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]},
      "rope_theta": 10000.0, "sliding_window": 262144, "tie_word_embeddings": true,
      "torch_dtype": "bfloat16", "transformers_version": "4.45.0", "use_cache": true,
      "vocab_size": 200064})"},
    {"olmo-2-7b", 7'298'617'344, R"({
      "architectures": ["Olmo2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "eos_token_id": 100257, "hidden_act": "silu", "hidden_size": 4096,
      "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 4096,
      "model_type": "olmo2", "num_attention_heads": 32, "num_hidden_layers": 32,
      "num_key_value_heads": 32, "pad_token_id": 100277, "rms_norm_eps": 1e-06,
      "rope_scaling": null, "rope_theta": 500000, "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "transformers_version": "4.47.0", "use_cache": true,
      "vocab_size": 100352})"},
    {"mixtral-8x7b", 46'702'792'704, R"({
      "architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
      "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
      "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mixtral",
      "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32,
      "num_key_value_heads": 8, "num_local_experts": 8, "output_router_logits": false,
      "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02,
      "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
      "transformers_version": "4.36.0.dev0", "use_cache": true, "vocab_size": 32000})"},
    {"qwen3-30b-a3b", 30'532'122'624, kQwen3With30BA3B},
    {"granite-3.1-3b-a800m", 3'298'793'472, R"({
      "architectures": ["GraniteMoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "attention_multiplier": 0.015625, "bos_token_id": 0, "embedding_multiplier": 12.0,
      "eos_token_id": 0, "hidden_act": "silu", "hidden_size": 1536, "initializer_range": 0.02,
      "intermediate_size": 512, "logits_scaling": 6.0, "max_position_embeddings": 131072,
      "model_type": "granitemoe", "num_attention_heads": 24, "num_experts_per_tok": 8,
      "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 40,
      "output_router_logits": false, "pad_token_id": 0, "residual_multiplier": 0.22,
      "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 10000000.0,
      "router_aux_loss_coef": 0.001, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
      "transformers_version": "4.47.0", "use_cache": true, "vocab_size": 49155})"},
    {"gpt-oss-20b", 20'914'757'184, R"({
      "architectures": ["GptOssForCausalLM"], "attention_bias": true, "attention_dropout": 0.0,
      "eos_token_id": 200002, "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu",
      "hidden_size": 2880, "initial_context_length": 4096, "initializer_range": 0.02,
      "intermediate_size": 2880, "max_position_embeddings": 131072, "model_type": "gpt_oss",
      "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 24,
      "num_key_value_heads": 8, "num_local_experts": 32, "output_router_logits": false,
      "pad_token_id": 199999, "rms_norm_eps": 1e-05, "rope_scaling": {"beta_fast": 32.0,
        "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
        "rope_type": "yarn", "truncate": false}, "rope_theta": 150000,
      "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0,
      "tie_word_embeddings": false, "transformers_version": "4.55.0.dev0", "use_cache": true,
      "vocab_size": 201088})",
     R"({
      "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                 "model.embed_tokens", "lm_head"],
      "quant_method": "mxfp4"})"},
    {"gpt-oss-120b", 116'829'156'672, R"({
      "architectures": ["GptOssForCausalLM"], "attention_bias": true, "attention_dropout": 0.0,
      "eos_token_id": 200002, "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu",
      "hidden_size": 2880, "initial_context_length": 4096, "initializer_range": 0.02,
      "intermediate_size": 2880, "max_position_embeddings": 131072, "model_type": "gpt_oss",
      "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 36,
      "num_key_value_heads": 8, "num_local_experts": 128, "output_router_logits": false,
      "pad_token_id": 199999, "rms_norm_eps": 1e-05, "rope_scaling": {"beta_fast": 32.0,
        "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
        "rope_type": "yarn", "truncate": false}, "rope_theta": 150000,
      "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0,
      "tie_word_embeddings": false, "transformers_version": "4.55.0.dev0", "use_cache": true,
      "vocab_size": 201088})",
     R"({
      "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                 "model.embed_tokens", "lm_head"],
      "quant_method": "mxfp4"})"},
    {"granite-4.0-h-micro", 3'191'396'096, R"({
      "architectures": ["GraniteMoeHybridForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "attention_multiplier": 0.015625, "bos_token_id": 100257,
      "embedding_multiplier": 12, "eos_token_id": 100257, "hidden_act": "silu",
      "hidden_size": 2048, "initializer_range": 0.1, "intermediate_size": 8192, "layer_types": [
        "mamba", "mamba", "mamba", "mamba", "mamba", "attention",
        "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba",
        "attention",
        "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba",
        "attention",
        "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba",
        "attention", "mamba", "mamba", "mamba", "mamba"], "logits_scaling": 8,
      "mamba_chunk_size": 256, "mamba_conv_bias": true, "mamba_d_conv": 4, "mamba_d_head": 64,
      "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 64,
      "mamba_proj_bias": false, "max_position_embeddings": 131072,
      "model_type": "granitemoehybrid", "normalization_function": "rmsnorm",
      "num_attention_heads": 32, "num_experts_per_tok": 0, "num_hidden_layers": 40,
      "num_key_value_heads": 8, "num_local_experts": 0, "output_router_logits": false,
      "pad_token_id": 100256, "position_embedding_type": "nope", "residual_multiplier": 0.22,
      "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000,
      "router_aux_loss_coef": 0.0, "shared_intermediate_size": 8192, "tie_word_embeddings": true,
      "torch_dtype": "bfloat16", "transformers_version": "4.56.0", "use_cache": true,
      "vocab_size": 100352})"},
    // As published, with the type that its weights have.
    {"bamba-9b", 9'780'235'392, R"({
      "architectures": ["BambaForCausalLM"], "attention_dropout": 0.0,
      "attn_layer_indices": [9, 18, 27], "attn_rotary_emb": 64, "bos_token_id": 128000,
      "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 4096,
      "initializer_range": 0.02, "intermediate_size": 14336, "mamba_chunk_size": 256,
      "mamba_conv_bias": true, "mamba_d_conv": 4, "mamba_d_head": 64, "mamba_d_state": 128,
      "mamba_dt_rank": 256, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 128,
      "mamba_proj_bias": false, "model_type": "bamba", "num_attention_heads": 32,
      "num_hidden_layers": 32, "num_key_value_heads": 8, "num_logits_to_keep": 1,
      "pad_token_id": 0, "rms_norm_eps": 1e-05, "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "transformers_version": "4.47.0.dev0", "use_cache": true,
      "use_mamba_kernels": true, "vocab_size": 128256})"},
    {"llama-3.1-8b-fp8", 8'030'261'248, kLlama31With8B, R"({
      "quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
      "quantization_status": "compressed", "kv_cache_scheme": null,
      "config_groups": {"group_0": {"targets": ["Linear"], "output_activations": null,
        "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "dynamic": false,
                    "symmetric": true},
        "input_activations": {"num_bits": 8, "type": "float", "strategy": "token",
                              "dynamic": true, "symmetric": true}}}})"},
    {"qwen3-8b-fp8", 8'190'735'360, kQwen3With8B, R"({
      "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
      "weight_block_size": [128, 128]})"},
    {"llama-3.1-8b-int4", 8'030'261'248, kLlama31With8B, R"({
      "quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
      "quantization_status": "compressed", "kv_cache_scheme": null,
      "config_groups": {"group_0": {"targets": ["Linear"], "output_activations": null,
        "input_activations": null,
        "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128,
                    "dynamic": false, "symmetric": true, "actorder": null}}}})"},
    {"llama-3.1-8b-act-order", 8'030'261'248, kLlama31With8B, R"({
      "bits": 4, "checkpoint_format": "gptq", "damp_percent": 0.1, "desc_act": true,
      "group_size": 128, "lm_head": false, "quant_method": "gptq", "static_groups": false,
      "sym": true, "true_sequential": true})"},
    {"qwen3-8b-awq", 8'190'735'360, kQwen3With8B, R"({
      "backend": "autoawq", "bits": 4, "do_fuse": false, "exllama_config": null,
      "fuse_max_seq_len": null, "group_size": 128, "modules_to_fuse": null,
      "modules_to_not_convert": null, "quant_method": "awq", "version": "gemm",
      "zero_point": true})"},
    {"qwen3-30b-a3b-fp8", 30'532'122'624, kQwen3With30BA3B, R"({
      "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
      "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head",
        "model.layers.0.input_layernorm", "model.layers.0.mlp.gate",
        "model.layers.0.post_attention_layernorm", "model.layers.1.mlp.gate"]})"},
    {"qwen3-30b-a3b-int4", 30'532'122'624, kQwen3With30BA3B, R"({
      "quant_method": "compressed-tensors", "format": "pack-quantized",
      "ignore": ["lm_head", "re:.*mlp.gate$"], "kv_cache_scheme": null,
      "config_groups": {"group_0": {"targets": ["Linear"], "output_activations": null,
        "input_activations": null,
        "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128,
                    "dynamic": false, "symmetric": true, "actorder": null}}}})"},
};

TEST(ModelPresets, HaveThePublishedNumbersOfParameters) {
  for (const Published& published : kPublished) {
    const auto spec = PresetSpec(published.name);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(NumParameters(*spec), published.num_parameters) << published.name;
  }
}

TEST(ModelPresets, EqualTheirPublishedConfigs) {
  for (const Published& published : kPublished) {
    const auto preset = PresetSpec(published.name);
    Json json = Json::parse(published.config);
    json["quantization_config"] = Json::parse(published.quantization);
    const auto config = ParseHfConfig(json.dump());
    ASSERT_TRUE(preset.ok()) << preset.status();
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(preset->name, published.name);
    EXPECT_EQ(preset->architecture, config->architecture);
    EXPECT_EQ(preset->vocab_size, config->vocab_size);
    EXPECT_EQ(preset->hidden_size, config->hidden_size);
    EXPECT_EQ(preset->intermediate_size, config->intermediate_size);
    EXPECT_EQ(preset->num_layers, config->num_layers);
    EXPECT_EQ(preset->num_heads, config->num_heads);
    EXPECT_EQ(preset->num_kv_heads, config->num_kv_heads);
    EXPECT_EQ(preset->head_dim, config->head_dim);
    EXPECT_EQ(preset->max_position_embeddings, config->max_position_embeddings);
    EXPECT_EQ(preset->rms_norm_eps, config->rms_norm_eps);
    EXPECT_EQ(preset->tie_word_embeddings, config->tie_word_embeddings);
    EXPECT_EQ(preset->qkv_bias, config->qkv_bias);
    EXPECT_EQ(preset->o_bias, config->o_bias);
    EXPECT_EQ(preset->qk_norm, config->qk_norm);
    EXPECT_EQ(preset->whole_qk_norm, config->whole_qk_norm);
    EXPECT_EQ(preset->norm_offset, config->norm_offset);
    EXPECT_EQ(preset->attention_sinks, config->attention_sinks);
    EXPECT_EQ(preset->gate_limit, config->gate_limit);
    EXPECT_EQ(preset->gate_slope, config->gate_slope);
    EXPECT_EQ(preset->activation, config->activation);
    EXPECT_EQ(preset->embedding_multiplier, config->embedding_multiplier);
    EXPECT_EQ(preset->rounds_embedding_multiplier, config->rounds_embedding_multiplier);
    EXPECT_EQ(preset->attention_softcap, config->attention_softcap);
    EXPECT_EQ(preset->logits_softcap, config->logits_softcap);
    EXPECT_EQ(preset->sliding_rope, config->sliding_rope);
    EXPECT_EQ(preset->sliding_window, config->sliding_window);
    EXPECT_EQ(preset->slides, config->slides);
    EXPECT_EQ(preset->mlp_bias, config->mlp_bias);
    EXPECT_EQ(preset->beside_vision, config->beside_vision);
    EXPECT_EQ(preset->num_experts, config->num_experts);
    EXPECT_EQ(preset->experts_per_token, config->experts_per_token);
    EXPECT_EQ(preset->expert_intermediate_size, config->expert_intermediate_size);
    EXPECT_EQ(preset->normalises_expert_shares, config->normalises_expert_shares);
    EXPECT_EQ(preset->sparse, config->sparse);
    EXPECT_EQ(preset->residual_multiplier, config->residual_multiplier);
    EXPECT_EQ(preset->logits_scaling, config->logits_scaling);
    EXPECT_EQ(preset->attention_multiplier, config->attention_multiplier);
    EXPECT_EQ(preset->eos_token_ids, config->eos_token_ids);
    EXPECT_EQ(preset->checkpoint_dtype, config->checkpoint_dtype);
    EXPECT_EQ(preset->weight_quantization, config->weight_quantization);
    EXPECT_EQ(preset->mxfp4_experts, config->mxfp4_experts);
    EXPECT_EQ(preset->rope, config->rope);
    EXPECT_EQ(preset->rotary_dim, config->rotary_dim);
    EXPECT_EQ(RopeInverseFrequencies(*preset), RopeInverseFrequencies(*config));
  }
}

TEST(ModelPresets, EveryNameGivesAValidSpec) {
  EXPECT_EQ(PresetNames().size(), std::size(kPublished));
  for (const std::string_view name : PresetNames()) {
    const auto spec = PresetSpec(name);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_TRUE(ValidateModelSpec(*spec).ok());
  }
}

TEST(ModelPresets, AnUnknownNameListsTheKnownOnes) {
  ExpectError(PresetSpec("llama-9").status(), absl::StatusCode::kNotFound,
              {"'llama-9'", "llama-3.1-8b", "granite-8b-code", "llama-3.2-1b", "mistral-7b-v0.1",
               "qwen2.5-7b", "qwen3-8b", "llama-3.1-8b-fp8", "qwen3-8b-fp8", "llama-3.1-8b-int4",
               "qwen3-8b-awq"});
}

}  // namespace
}  // namespace reprise::models
