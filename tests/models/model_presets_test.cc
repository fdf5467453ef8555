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
    {"olmo-2-7b", 7'298'617'344, R"({
      "architectures": ["Olmo2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "eos_token_id": 100257, "hidden_act": "silu", "hidden_size": 4096,
      "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 4096,
      "model_type": "olmo2", "num_attention_heads": 32, "num_hidden_layers": 32,
      "num_key_value_heads": 32, "pad_token_id": 100277, "rms_norm_eps": 1e-06,
      "rope_scaling": null, "rope_theta": 500000, "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "transformers_version": "4.47.0", "use_cache": true,
      "vocab_size": 100352})"},
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
    EXPECT_EQ(preset->activation, config->activation);
    EXPECT_EQ(preset->embedding_multiplier, config->embedding_multiplier);
    EXPECT_EQ(preset->rounds_embedding_multiplier, config->rounds_embedding_multiplier);
    EXPECT_EQ(preset->attention_softcap, config->attention_softcap);
    EXPECT_EQ(preset->logits_softcap, config->logits_softcap);
    EXPECT_EQ(preset->sliding_rope, config->sliding_rope);
    EXPECT_EQ(preset->sliding_window, config->sliding_window);
    EXPECT_EQ(preset->slides, config->slides);
    EXPECT_EQ(preset->mlp_bias, config->mlp_bias);
    EXPECT_EQ(preset->attention_multiplier, config->attention_multiplier);
    EXPECT_EQ(preset->eos_token_ids, config->eos_token_ids);
    EXPECT_EQ(preset->checkpoint_dtype, config->checkpoint_dtype);
    EXPECT_EQ(preset->weight_quantization, config->weight_quantization);
    EXPECT_EQ(preset->rope, config->rope);
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
               "qwen2.5-7b", "qwen3-8b", "llama-3.1-8b-fp8", "qwen3-8b-fp8"});
}

}  // namespace
}  // namespace reprise::models
