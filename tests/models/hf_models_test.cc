// SPDX-License-Identifier: Apache-2.0
// What is each architecture's own in a config.json: Mistral's window, Ministral's layers of two
// kinds, the biases and the inert or switched window of Qwen2, the head norms of Qwen3, the numbers
// and patterns of Gemma 2 and 3, what Phi-3 and OLMo 2 leave out, the experts of Mixtral, Qwen3-MoE
// and Granite-MoE, in both dialects; and the scaled rope types, which all of them may have. What
// all configs share is hf_config_test.cc's, a text part beside a vision part hf_vision_test.cc's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/config/hf_config.h"
#include "models/decoder.h"
#include "tests/models/hf_config_edits.h"
#include "tests/models/model_files.h"
#include "tests/testing/source_dir.h"

namespace reprise::models {
namespace {

using ::reprise::testing::ExpectError;
using ::reprise::testing::ExpectInvalid;
using Json = nlohmann::json;

// As published with Mistral-7B-v0.1, transformers 4.
constexpr char kMistral[] = R"({
  "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
  "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
  "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32,
  "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
  "sliding_window": 4096, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "transformers_version": "4.34.0.dev0", "use_cache": true, "vocab_size": 32000})";

// As published with Qwen2.5-7B-Instruct, transformers 4.
constexpr char kQwen2[] = R"({
  "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
  "eos_token_id": 151645, "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02,
  "intermediate_size": 18944, "max_position_embeddings": 32768, "max_window_layers": 28,
  "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28,
  "num_key_value_heads": 4, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 131072,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.43.1",
  "use_cache": true, "use_sliding_window": false, "vocab_size": 152064})";

// As published with Qwen3-0.6B, transformers 4.
constexpr char kQwen3[] = R"({
  "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
  "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3072,
  "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
  "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
  "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
  "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
  "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})";

// As published with gemma-2-9b, transformers 4.
constexpr char kGemma2[] = R"({
  "architectures": ["Gemma2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "attn_logit_softcapping": 50.0, "bos_token_id": 2, "cache_implementation": "hybrid",
  "eos_token_id": 1, "final_logit_softcapping": 30.0, "head_dim": 256,
  "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
  "hidden_size": 3584, "initializer_range": 0.02, "intermediate_size": 14336,
  "max_position_embeddings": 8192, "model_type": "gemma2", "num_attention_heads": 16,
  "num_hidden_layers": 42, "num_key_value_heads": 8, "pad_token_id": 0,
  "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
  "sliding_window": 4096, "torch_dtype": "bfloat16", "transformers_version": "4.42.0.dev0",
  "use_cache": true, "vocab_size": 256000})";

// As published with gemma-3-1b-pt, transformers 4.
constexpr char kGemma3[] = R"({
  "architectures": ["Gemma3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "attn_logit_softcapping": null, "bos_token_id": 2, "cache_implementation": "hybrid",
  "eos_token_id": 1, "final_logit_softcapping": null, "head_dim": 256,
  "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "initializer_range": 0.02,
  "intermediate_size": 6912, "max_position_embeddings": 32768, "model_type": "gemma3_text",
  "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1,
  "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
  "rope_local_base_freq": 10000, "rope_scaling": null, "rope_theta": 1000000,
  "sliding_window": 512, "sliding_window_pattern": 6, "torch_dtype": "bfloat16",
  "transformers_version": "4.50.0.dev0", "use_cache": true, "vocab_size": 262144})";

// As published with phi-4, transformers 4.
constexpr char kPhi3[] = R"({
  "architectures": ["Phi3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 100257, "embd_pdrop": 0.0, "eos_token_id": 100265, "hidden_act": "silu",
  "hidden_size": 5120, "initializer_range": 0.02, "intermediate_size": 17920,
  "max_position_embeddings": 16384, "model_type": "phi3", "num_attention_heads": 40,
  "num_hidden_layers": 40, "num_key_value_heads": 10,
  "original_max_position_embeddings": 16384, "pad_token_id": 100349, "resid_pdrop": 0.0,
  "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 250000, "sliding_window": null,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.47.0",
  "use_cache": true, "vocab_size": 100352})";

// As published with OLMo-2-1124-7B-Instruct, transformers 4.
constexpr char kOlmo2[] = R"({
  "architectures": ["Olmo2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "eos_token_id": 100257, "hidden_act": "silu", "hidden_size": 4096,
  "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 4096,
  "model_type": "olmo2", "num_attention_heads": 32, "num_hidden_layers": 32,
  "num_key_value_heads": 32, "pad_token_id": 100277, "rms_norm_eps": 1e-06,
  "rope_scaling": null, "rope_theta": 500000, "tie_word_embeddings": false,
  "torch_dtype": "bfloat16", "transformers_version": "4.47.0", "use_cache": true,
  "vocab_size": 100352})";

// As published with Mixtral-8x7B-v0.1, transformers 4.
constexpr char kMixtral[] = R"({
      "architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
      "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
      "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mixtral",
      "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32,
      "num_key_value_heads": 8, "num_local_experts": 8, "output_router_logits": false,
      "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02,
      "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
      "transformers_version": "4.36.0.dev0", "use_cache": true, "vocab_size": 32000})";

// As published with Qwen3-30B-A3B, transformers 4.
constexpr char kQwen3Moe[] = R"({
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

// As published with granite-3.1-3b-a800m-instruct, transformers 4.
constexpr char kGptOss[] = R"({
      "architectures": ["GptOssForCausalLM"], "attention_bias": true, "attention_dropout": 0.0,
      "eos_token_id": 200002, "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu",
      "hidden_size": 2880, "initial_context_length": 4096, "initializer_range": 0.02,
      "intermediate_size": 2880, "layer_types": ["sliding_attention", "full_attention",
        "sliding_attention", "full_attention"], "max_position_embeddings": 131072,
      "model_type": "gpt_oss", "num_attention_heads": 64, "num_experts_per_tok": 4,
      "num_hidden_layers": 4, "num_key_value_heads": 8, "num_local_experts": 32,
      "output_router_logits": false, "pad_token_id": 199999, "quantization_config": {
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                   "model.embed_tokens", "lm_head"],
        "quant_method": "mxfp4"},
      "rms_norm_eps": 1e-05, "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
        "original_max_position_embeddings": 4096, "rope_type": "yarn", "truncate": false},
      "rope_theta": 150000, "router_aux_loss_coef": 0.9, "sliding_window": 128,
      "swiglu_limit": 7.0, "tie_word_embeddings": false,
      "transformers_version": "4.55.0.dev0", "use_cache": true, "vocab_size": 201088})";
constexpr char kGraniteMoe[] = R"({
      "architectures": ["GraniteMoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "attention_multiplier": 0.015625, "bos_token_id": 0, "embedding_multiplier": 12.0,
      "eos_token_id": 0, "hidden_act": "silu", "hidden_size": 1536, "initializer_range": 0.02,
      "intermediate_size": 512, "logits_scaling": 6.0, "max_position_embeddings": 131072,
      "model_type": "granitemoe", "num_attention_heads": 24, "num_experts_per_tok": 8,
      "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 40,
      "output_router_logits": false, "pad_token_id": 0, "residual_multiplier": 0.22,
      "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 10000000.0,
      "router_aux_loss_coef": 0.001, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
      "transformers_version": "4.47.0", "use_cache": true, "vocab_size": 49155})";

// The same config as transformers 5 saves it.
std::string Dialect5(const char* base) {
  Json config = Json::parse(base);
  config["dtype"] = config["torch_dtype"];
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", config["rope_theta"]}};
  for (const char* name : {"torch_dtype", "rope_scaling", "rope_theta"}) config.erase(name);
  if (config["model_type"] == "mistral") {
    config["head_dim"] = nullptr;
  } else {
    const bool slides = config["use_sliding_window"].get<bool>();
    for (int i = 0; i < config["num_hidden_layers"].get<int>(); ++i)
      config["layer_types"].push_back(slides && i >= config["max_window_layers"].get<int>()
                                          ? "sliding_attention"
                                          : "full_attention");
    if (!slides) config["sliding_window"] = nullptr;
  }
  return config.dump();
}

TEST(HfMistral, ReadsAPublishedConfig) {
  const auto spec = Parse(kMistral);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->architecture, "mistral");
  EXPECT_EQ(spec->sliding_window, 4096);
  EXPECT_EQ(spec->head_dim, 128);
  EXPECT_EQ(spec->num_kv_heads, 8);
  EXPECT_EQ(spec->rope.theta, 10000.0);
  EXPECT_EQ(spec->attention_multiplier, 1.0 / std::sqrt(128.0));
  EXPECT_FALSE(spec->qkv_bias || spec->o_bias || spec->mlp_bias || spec->qk_norm);
}

// v0.2 and later have null; Nemo a head_dim that is not hidden_size / heads.
TEST(HfMistral, NullIsNoWindow) {
  const auto spec = Parse(kMistral, {{"sliding_window", nullptr},
                                     {"rope_theta", 1000000.0},
                                     {"head_dim", 160},
                                     {"max_position_embeddings", 1024000}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->sliding_window, 0);
  EXPECT_EQ(spec->head_dim, 160);
}

TEST(HfMistral, AbsenceMeansWhatTransformersMeansByIt) {
  const auto spec = ParseWithout(kMistral, {"sliding_window", "num_key_value_heads"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->sliding_window, 4096);
  EXPECT_EQ(spec->num_kv_heads, 8);
  EXPECT_EQ(Parse(kMistral, {{"num_key_value_heads", nullptr}})->num_kv_heads, 32);
}

TEST(HfMistral, AWindowThatNoPositionOutgrowsIsNone) {
  EXPECT_EQ(Parse(kMistral, {{"sliding_window", 32768}})->sliding_window, 0);
  EXPECT_EQ(Parse(kMistral, {{"sliding_window", 32767}})->sliding_window, 32767);
}

TEST(HfMistral, RefusesWhatItWouldNotCompute) {
  for (const Json& bad : {Json(0), Json(-1), Json(4096.0), Json("4096")}) {
    ExpectInvalid(StatusOf(kMistral, {{"sliding_window", bad}}),
                  {"sliding_window: got", "an integer from 1"});
  }
  ExpectInvalid(StatusOf(kMistral, {{"attention_bias", true}}), {"attention_bias: got true"});
  ExpectInvalid(StatusOf(kMistral, {{"mlp_bias", true}}), {"mlp_bias: got true"});
  ExpectInvalid(StatusOf(kMistral, {{"use_sliding_window", true}}), {"use_sliding_window"});
  ExpectInvalid(StatusOf(kMistral, {{"layer_types", {"full_attention"}}}), {"\"layer_types\""});
  EXPECT_TRUE(StatusOf(kMistral, {{"attention_bias", false}, {"mlp_bias", false}}).ok());
}

// Mistral's config under its own names, in the pattern of Ministral-8B-Instruct-2410.
Json Ministral() {
  Json config = Json::parse(kMistral);
  config["architectures"] = {"MinistralForCausalLM"};
  config["model_type"] = "ministral";
  for (int i = 0; i < 32; ++i)
    config["layer_types"].push_back(i % 4 == 0 ? "full_attention" : "sliding_attention");
  return config;
}

TEST(HfMinistral, ReadsWhichLayersSlide) {
  const auto spec = ParseHfConfig(Ministral().dump());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->architecture, "ministral");
  EXPECT_EQ(spec->sliding_window, 4096);
  EXPECT_FALSE(spec->qkv_bias);
  ASSERT_EQ(spec->slides.size(), 32u);
  for (int64_t i = 0; i < 32; ++i) EXPECT_EQ(spec->WindowOf(i), i % 4 == 0 ? 0 : 4096);
}

TEST(HfMinistral, WithoutAListAllLayersSlideWhereThereIsAWindow) {
  Json config = Ministral();
  config.erase("layer_types");
  EXPECT_EQ(ParseHfConfig(config.dump())->Windows(), std::vector<int64_t>{4096});
  config.erase("sliding_window");
  EXPECT_EQ(ParseHfConfig(config.dump())->Windows(), std::vector<int64_t>{4096});
  config["sliding_window"] = nullptr;
  EXPECT_EQ(ParseHfConfig(config.dump())->Windows(), std::vector<int64_t>{0});
}

TEST(HfMinistral, RefusesListsThatDoNotFit) {
  Json config = Ministral();
  config["sliding_window"] = nullptr;
  ExpectInvalid(ParseHfConfig(config.dump()).status(),
                {"layer_types: got", "'full_attention' alone"});
  config = Ministral();
  config["layer_types"].erase(31);
  ExpectInvalid(ParseHfConfig(config.dump()).status(), {"layer_types", "each of 32 layers"});
  config = Ministral();
  config["use_sliding_window"] = true;
  ExpectInvalid(ParseHfConfig(config.dump()).status(), {"use_sliding_window: got true"});
}

TEST(HfQwen2, ReadsAPublishedConfigWithItsInertWindow) {
  const auto spec = Parse(kQwen2, {{"sliding_window", 4096}, {"max_window_layers", 21}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->architecture, "qwen2");
  EXPECT_EQ(spec->sliding_window, 0);
  EXPECT_TRUE(spec->qkv_bias);
  EXPECT_FALSE(spec->o_bias || spec->mlp_bias || spec->qk_norm);
  EXPECT_EQ(spec->head_dim, 128);
  EXPECT_EQ(spec->num_kv_heads, 4);
  EXPECT_EQ(spec->rope.theta, 1000000.0);
}

TEST(HfQwen2, AbsenceMeansWhatTransformersMeansByIt) {
  const auto spec = ParseWithout(
      kQwen2, {"use_sliding_window", "sliding_window", "max_window_layers", "rope_theta"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->sliding_window, 0);
  EXPECT_EQ(spec->rope.theta, 10000.0);
  EXPECT_EQ(ParseWithout(kQwen3, {"head_dim"})->head_dim, 128);
  EXPECT_EQ(
      Parse(kQwen3, {{"num_attention_heads", 64}, {"num_key_value_heads", nullptr}})->num_kv_heads,
      64);
  ExpectInvalid(ParseWithout(kQwen2, {"num_key_value_heads"}).status(),
                {"num_key_value_heads (32)"});
}

int64_t NumSliding(const ModelSpec& spec) {
  return std::count(spec.slides.begin(), spec.slides.end(), true);
}

TEST(HfQwen2, LayersSlideFromMaxWindowLayersOn) {
  const Json on = {
      {"use_sliding_window", true}, {"sliding_window", 1024}, {"max_window_layers", 21}};
  const auto spec = Parse(kQwen2, on);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->sliding_window, 1024);
  ASSERT_EQ(spec->slides.size(), 28u);
  EXPECT_EQ(NumSliding(*spec), 7);
  EXPECT_FALSE(spec->slides[20]);
  EXPECT_TRUE(spec->slides[21]);
  EXPECT_EQ(spec->Windows(), (std::vector<int64_t>{0, 1024}));
}

TEST(HfQwen2, AWindowInUseIsReadWhereAllLayersSlide) {
  const Json on = {{"use_sliding_window", true}, {"sliding_window", 1024}};
  const auto window = [&](const Json& more) {
    Json changes = on;
    changes.update(more);
    return Parse(kQwen2, changes);
  };
  EXPECT_EQ(window({{"max_window_layers", 0}})->sliding_window, 1024);
  EXPECT_TRUE(window({{"max_window_layers", 0}})->slides.empty());
  EXPECT_EQ(window({{"max_window_layers", 28}})->sliding_window, 0);
  EXPECT_EQ(window({{"max_window_layers", 99}})->sliding_window, 0);
  EXPECT_EQ(window({{"max_window_layers", 0}, {"sliding_window", 32768}})->sliding_window, 0);
  EXPECT_EQ(window({{"max_window_layers", 0}, {"sliding_window", nullptr}})->sliding_window, 0);
  // transformers' own defaults: 4096, from layer 28 on.
  Json defaults = Json::parse(kQwen2);
  defaults["use_sliding_window"] = true;
  defaults.erase("sliding_window");
  defaults["max_window_layers"] = 0;
  EXPECT_EQ(ParseHfConfig(defaults.dump())->sliding_window, 4096);
  defaults.erase("max_window_layers");
  EXPECT_EQ(ParseHfConfig(defaults.dump())->sliding_window, 0);
  defaults["num_hidden_layers"] = 36;
  EXPECT_EQ(NumSliding(*ParseHfConfig(defaults.dump())), 8);
  ExpectInvalid(window({{"sliding_window", 0}}).status(), {"sliding_window: got 0"});
  ExpectInvalid(window({{"max_window_layers", -1}}).status(), {"max_window_layers: got -1"});
}

TEST(HfQwen2, LayerTypesDecideWhereTheyAreListed) {
  const std::vector<std::string> full(28, "full_attention"), sliding(28, "sliding_attention");
  std::vector<std::string> mixed = full;
  mixed[27] = "sliding_attention";
  Json on = {{"use_sliding_window", true}, {"sliding_window", 1024}, {"max_window_layers", 21}};
  on["layer_types"] = sliding;
  EXPECT_EQ(Parse(kQwen2, on)->sliding_window, 1024);
  EXPECT_TRUE(Parse(kQwen2, on)->slides.empty());
  on["layer_types"] = full;
  EXPECT_EQ(Parse(kQwen2, on)->sliding_window, 0);
  EXPECT_TRUE(Parse(kQwen2, on)->slides.empty());
  on["layer_types"] = mixed;
  EXPECT_EQ(Parse(kQwen2, on)->sliding_window, 1024);
  EXPECT_EQ(NumSliding(*Parse(kQwen2, on)), 1);
  EXPECT_TRUE(Parse(kQwen2, on)->slides[27]);
  // No position outgrows it.
  on["sliding_window"] = 32768;
  EXPECT_EQ(Parse(kQwen2, on)->sliding_window, 0);
  EXPECT_TRUE(Parse(kQwen2, on)->slides.empty());
  // No window is in use.
  EXPECT_TRUE(Parse(kQwen2, {{"layer_types", full}}).ok());
  ExpectInvalid(StatusOf(kQwen2, {{"layer_types", mixed}}), {"layer_types", "'full_attention'"});
  for (const Json& bad :
       {Json("full_attention"), Json::array({"full_attention"}), Json(std::vector<int>(28, 1)),
        Json(std::vector<std::string>(28, "chunked_attention"))}) {
    ExpectInvalid(StatusOf(kQwen2, {{"layer_types", bad}}), {"layer_types: got"});
  }
}

TEST(HfQwen2, RefusesWhatItWouldNotCompute) {
  ExpectInvalid(StatusOf(kQwen2, {{"attention_bias", false}}), {"attention_bias: got false"});
  ExpectInvalid(StatusOf(kQwen2, {{"use_mrope", true}}), {"use_mrope: got true"});
  ExpectInvalid(StatusOf(kQwen2, {{"mlp_bias", true}}), {"mlp_bias: got true"});
  ExpectInvalid(StatusOf(kQwen2, {{"use_sliding_window", 1}}), {"use_sliding_window: got 1"});
  ExpectInvalid(StatusOf(kQwen2, {{"dual_chunk_attention_config", {{"chunk_size", 262144}}}}),
                {"\"dual_chunk_attention_config\""});
  EXPECT_TRUE(StatusOf(kQwen2, {{"use_mrope", false}, {"attention_bias", true}}).ok());
}

TEST(HfQwen3, ReadsAPublishedConfig) {
  const auto spec = Parse(kQwen3);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->architecture, "qwen3");
  EXPECT_TRUE(spec->qk_norm);
  EXPECT_FALSE(spec->qkv_bias || spec->o_bias || spec->mlp_bias);
  EXPECT_TRUE(spec->tie_word_embeddings);
  EXPECT_EQ(spec->head_dim, 128);
  EXPECT_EQ(spec->q_size(), 2048);
  EXPECT_EQ(spec->sliding_window, 0);
  const auto biased = Parse(kQwen3, {{"attention_bias", true}});
  EXPECT_TRUE(biased->qkv_bias && biased->o_bias);
}

TEST(HfGemma2, ReadsAPublishedConfig) {
  const auto spec = Parse(kGemma2);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->architecture, "gemma2");
  EXPECT_TRUE(spec->tie_word_embeddings);  // which the config does not say
  EXPECT_EQ(spec->norm_offset, 1.0);
  EXPECT_EQ(spec->activation, Activation::kGeluTanh);
  EXPECT_EQ(spec->embedding_multiplier, std::sqrt(3584.0));
  EXPECT_TRUE(spec->rounds_embedding_multiplier);
  EXPECT_EQ(spec->attention_multiplier, 1.0 / 16);
  EXPECT_EQ(spec->attention_softcap, 50.0);
  EXPECT_EQ(spec->logits_softcap, 30.0);
  EXPECT_FALSE(spec->qk_norm || spec->sliding_rope.has_value());
  for (int64_t i = 0; i < 42; ++i) EXPECT_EQ(spec->WindowOf(i), i % 2 == 0 ? 4096 : 0) << i;
  // The scale is not that of head_dim.
  EXPECT_EQ(Parse(kGemma2, {{"query_pre_attn_scalar", 144}})->attention_multiplier, 1.0 / 12);
}

TEST(HfGemma2, AbsenceMeansWhatTransformersMeansByIt) {
  const auto spec =
      ParseWithout(kGemma2, {"attn_logit_softcapping", "final_logit_softcapping", "head_dim",
                             "hidden_act", "hidden_activation", "num_key_value_heads",
                             "query_pre_attn_scalar", "rms_norm_eps", "sliding_window"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->attention_softcap, 50.0);
  EXPECT_EQ(spec->logits_softcap, 30.0);
  EXPECT_EQ(spec->head_dim, 256);
  EXPECT_EQ(spec->num_kv_heads, 4);
  EXPECT_EQ(spec->attention_multiplier, 1.0 / 16);
  EXPECT_EQ(spec->rms_norm_eps, 1e-6);
  EXPECT_EQ(spec->sliding_window, 4096);
  const auto uncapped =
      Parse(kGemma2, {{"attn_logit_softcapping", nullptr}, {"final_logit_softcapping", nullptr}});
  ASSERT_TRUE(uncapped.ok()) << uncapped.status();
  EXPECT_EQ(uncapped->attention_softcap, 0.0);
  EXPECT_EQ(uncapped->logits_softcap, 0.0);
}

TEST(HfGemma2, AListOfLayerTypesDecidesOverThePattern) {
  Json config = Json::parse(kGemma2);
  for (int i = 0; i < 42; ++i)
    config["layer_types"].push_back(i % 3 == 0 ? "full_attention" : "sliding_attention");
  const auto spec = ParseHfConfig(config.dump());
  ASSERT_TRUE(spec.ok()) << spec.status();
  for (int64_t i = 0; i < 42; ++i) EXPECT_EQ(spec->WindowOf(i), i % 3 == 0 ? 0 : 4096) << i;
}

TEST(HfGemma2, RefusesWhatItWouldNotCompute) {
  for (const char* field : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    for (const Json& bad : {Json(0), Json(-30.0), Json("30"), Json(true)})
      ExpectInvalid(StatusOf(kGemma2, {{field, bad}}), {field, "a finite number > 0"});
  }
  ExpectInvalid(StatusOf(kGemma2, {{"query_pre_attn_scalar", 0}}),
                {"query_pre_attn_scalar: got 0"});
  ExpectInvalid(StatusOf(kGemma2, {{"hidden_activation", "gelu"}}),
                {"hidden_activation: got \"gelu\"", "gelu_pytorch_tanh"});
  ExpectInvalid(StatusOf(kGemma2, {{"hidden_act", "silu"}}), {"hidden_act: got \"silu\""});
  ExpectInvalid(StatusOf(kGemma2, {{"use_bidirectional_attention", true}}),
                {"use_bidirectional_attention: got true"});
  ExpectInvalid(StatusOf(kGemma2, {{"rope_local_base_freq", 10000.0}}),
                {"\"rope_local_base_freq\""});
  ExpectInvalid(StatusOf(kGemma2, {{"sliding_window_pattern", 2}}), {"\"sliding_window_pattern\""});
  Json config = Json::parse(kGemma2);
  config["sliding_window"] = nullptr;
  EXPECT_EQ(ParseHfConfig(config.dump())->Windows(), std::vector<int64_t>{0});
}

TEST(HfGemma3, ReadsAPublishedConfig) {
  const auto spec = Parse(kGemma3);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->architecture, "gemma3");
  EXPECT_TRUE(spec->tie_word_embeddings);
  EXPECT_TRUE(spec->qk_norm);
  EXPECT_FALSE(spec->whole_qk_norm);
  EXPECT_EQ(spec->attention_softcap, 0.0);
  EXPECT_EQ(spec->logits_softcap, 0.0);
  EXPECT_EQ(spec->rope, RopeSpec{.theta = 1000000.0});
  EXPECT_EQ(spec->sliding_rope, RopeSpec{.theta = 10000.0});
  for (int64_t i = 0; i < 26; ++i) {
    EXPECT_EQ(spec->WindowOf(i), i % 6 == 5 ? 0 : 512) << i;
    EXPECT_EQ(spec->RopeTableOf(i), i % 6 == 5 ? 0 : 1) << i;
  }
}

// As its larger siblings have it.
TEST(HfGemma3, ScalingIsOfTheLayersThatSeeAll) {
  const Json linear = {{"rope_type", "linear"}, {"factor", 8.0}};
  const auto spec = Parse(kGemma3, {{"rope_scaling", linear}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->rope.factor, 8.0);
  EXPECT_EQ(spec->sliding_rope, RopeSpec{.theta = 10000.0});
  const std::vector<float> frequencies = RopeInverseFrequencies(*spec);
  ASSERT_EQ(frequencies.size(), 256u);
  EXPECT_EQ(frequencies[0], 0.125f);
  EXPECT_EQ(frequencies[128], 1.0f);
  EXPECT_FLOAT_EQ(frequencies[1], std::pow(1e6f, -1.0f / 128) / 8);
  EXPECT_FLOAT_EQ(frequencies[129], std::pow(1e4f, -1.0f / 128));
}

TEST(HfGemma3, AbsenceMeansWhatTransformersMeansByIt) {
  const auto spec =
      ParseWithout(kGemma3, {"rope_theta", "rope_local_base_freq", "sliding_window_pattern",
                             "attn_logit_softcapping", "final_logit_softcapping"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->rope.theta, 1000000.0);
  EXPECT_EQ(spec->sliding_rope->theta, 10000.0);
  EXPECT_EQ(spec->WindowOf(5), 0);
  EXPECT_EQ(spec->WindowOf(4), 512);
  EXPECT_EQ(spec->attention_softcap + spec->logits_softcap, 0.0);
}

// What turns a layer's rope is its kind, even where no position outgrows the window.
TEST(HfGemma3, LayersKeepTheirRopeWithoutAWindowInUse) {
  const auto spec = Parse(kGemma3, {{"sliding_window", 40000}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->Windows(), std::vector<int64_t>{0});
  EXPECT_EQ(spec->RopeTableOf(0), 1);
  EXPECT_EQ(spec->RopeTableOf(5), 0);
  Json config = Json::parse(kGemma3);
  config["layer_types"] = std::vector<std::string>(26, "full_attention");
  const auto full = ParseHfConfig(config.dump());
  ASSERT_TRUE(full.ok()) << full.status();
  for (int64_t i = 0; i < 26; ++i) EXPECT_EQ(full->RopeTableOf(i), 0);
}

TEST(HfGemma3, ReadsTheRopesOfBothKindsOfLayersInTheDialectOfTransformers5) {
  Json config = Json::parse(kGemma3);
  for (const char* name : {"rope_theta", "rope_scaling", "rope_local_base_freq"})
    config.erase(name);
  config["_sliding_window_pattern"] = 6;
  config["rope_parameters"] = {
      {"full_attention", {{"rope_type", "linear"}, {"rope_theta", 1e6}, {"factor", 8.0}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 20000.0}}}};
  const auto spec = ParseHfConfig(config.dump());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->rope.theta, 1e6);
  EXPECT_EQ(spec->rope.factor, 8.0);
  EXPECT_EQ(spec->sliding_rope, RopeSpec{.theta = 20000.0});
  Json flat = config;
  flat["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e6}};
  ExpectInvalid(ParseHfConfig(flat.dump()).status(),
                {"rope_parameters: got", "'full_attention' and 'sliding_attention'"});
  Json twice = config;
  twice["rope_local_base_freq"] = 10000.0;
  ExpectInvalid(ParseHfConfig(twice.dump()).status(),
                {"rope_parameters.sliding_attention.rope_theta: got 20000", "10000"});
  Json unknown = config;
  unknown["rope_parameters"]["sliding_attention"]["rope_type"] = "longrope";
  ExpectInvalid(ParseHfConfig(unknown.dump()).status(),
                {"rope_parameters.sliding_attention.rope_type: got \"longrope\"",
                 "where layers that slide have a rope of their own"});
}

TEST(HfGemma3, RefusesWhatItWouldNotCompute) {
  ExpectInvalid(StatusOf(kGemma3, {{"sliding_window", nullptr}}),
                {"sliding_window: got nothing", "for the layers that slide"});
  ExpectInvalid(StatusOf(kGemma3, {{"sliding_window_pattern", 0}}),
                {"sliding_window_pattern: got 0"});
  ExpectInvalid(StatusOf(kGemma3, {{"rope_local_base_freq", -1}}),
                {"rope_local_base_freq: got -1"});
  // One factor of cosines and sines for both tables.
  ExpectInvalid(StatusOf(kGemma3, {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}}),
                {"rope_scaling.attention_factor", "that of layers that slide (1)"});
}

TEST(HfPhi3, ReadsAPublishedConfig) {
  const auto spec = Parse(kPhi3);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->architecture, "phi3");
  EXPECT_EQ(spec->head_dim, 128);
  EXPECT_EQ(spec->num_kv_heads, 10);
  EXPECT_EQ(spec->sliding_window, 0);
  EXPECT_EQ(spec->rope.theta, 250000.0);
  EXPECT_FALSE(spec->qkv_bias || spec->o_bias || spec->mlp_bias || spec->qk_norm);
  EXPECT_EQ(ParseWithout(kPhi3, {"sliding_window"})->sliding_window, 0);
  EXPECT_EQ(ParseWithout(kPhi3, {"rms_norm_eps"})->rms_norm_eps, 1e-5);
  EXPECT_EQ(ParseWithout(kPhi3, {"num_key_value_heads"})->num_kv_heads, 40);
}

// Phi-3-mini-4k has a window in every layer, and names code that is transformers' own by now.
TEST(HfPhi3, ReadsTheFieldsOfItsOlderSiblings) {
  const auto spec = Parse(kPhi3, {{"sliding_window", 2047},
                                  {"auto_map",
                                   {{"AutoConfig", "configuration_phi3.Phi3Config"},
                                    {"AutoModelForCausalLM", "modeling_phi3.Phi3ForCausalLM"}}}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->Windows(), std::vector<int64_t>{2047});
}

TEST(HfPhi3, RefusesWhatItWouldNotCompute) {
  ExpectInvalid(
      StatusOf(kPhi3, {{"rope_scaling",
                        {{"type", "longrope"}, {"short_factor", {1.0}}, {"long_factor", {1.0}}}}}),
      {"rope_scaling.short_factor: got [1.0]", "a list of 64"});
  ExpectInvalid(StatusOf(kPhi3, {{"auto_map", {{"AutoModelForCausalLM", "other.Model"}}}}),
                {"auto_map"});
  ExpectInvalid(StatusOf(kPhi3, {{"attention_bias", true}}), {"attention_bias: got true"});
}

TEST(HfOlmo2, ReadsAPublishedConfig) {
  const auto spec = Parse(kOlmo2);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->architecture, "olmo2");
  EXPECT_TRUE(spec->qk_norm && spec->whole_qk_norm);
  EXPECT_EQ(spec->norm_offset, 0.0);
  EXPECT_EQ(spec->num_kv_heads, 32);
  EXPECT_EQ(spec->sliding_window, 0);
  EXPECT_EQ(ParseWithout(kOlmo2, {"rms_norm_eps"})->rms_norm_eps, 1e-5);
  const auto biased = Parse(kOlmo2, {{"attention_bias", true}});
  EXPECT_TRUE(biased->qkv_bias && biased->o_bias);
  ExpectInvalid(StatusOf(kOlmo2, {{"mlp_bias", true}}), {"mlp_bias: got true"});
  ExpectInvalid(StatusOf(kOlmo2, {{"sliding_window", 4096}}), {"sliding_window: got 4096"});
}

// What transformers 5 saved is what was made of it for transformers 4.
TEST(HfModels, FixturesReadTheSameInBothDialects) {
  for (const char* name :
       {"gemma2-tiny", "gemma3-tiny", "phi3-tiny", "olmo2-tiny", "gemma3-vision-tiny"}) {
    SCOPED_TRACE(name);
    const std::string directory = testing::SourceDir() + "/tests/fixtures/" + name;
    const auto read = [&](const char* file) {
      std::ifstream stream(directory + file);
      return ParseHfConfig(
          std::string(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()));
    };
    const auto four = read("/config.json"), five = read("/config_transformers5.json");
    ASSERT_TRUE(four.ok()) << four.status();
    ASSERT_TRUE(five.ok()) << five.status();
    EXPECT_EQ(five->rope, four->rope);
    EXPECT_EQ(five->sliding_rope, four->sliding_rope);
    EXPECT_EQ(five->slides, four->slides);
    EXPECT_EQ(five->sliding_window, four->sliding_window);
    EXPECT_EQ(five->attention_multiplier, four->attention_multiplier);
    EXPECT_EQ(five->attention_softcap, four->attention_softcap);
    EXPECT_EQ(five->logits_softcap, four->logits_softcap);
    EXPECT_EQ(NumParameters(*five), NumParameters(*four));
  }
}

void ExpectSameModel(const ModelSpec& a, const ModelSpec& b) {
  EXPECT_EQ(a.architecture, b.architecture);
  EXPECT_EQ(a.rope, b.rope);
  EXPECT_EQ(a.sliding_window, b.sliding_window);
  EXPECT_EQ(a.slides, b.slides);
  EXPECT_EQ(a.num_kv_heads, b.num_kv_heads);
  EXPECT_EQ(a.head_dim, b.head_dim);
  EXPECT_EQ(a.qkv_bias, b.qkv_bias);
  EXPECT_EQ(a.o_bias, b.o_bias);
  EXPECT_EQ(a.qk_norm, b.qk_norm);
  EXPECT_EQ(a.checkpoint_dtype, b.checkpoint_dtype);
  EXPECT_EQ(NumParameters(a), NumParameters(b));
}

TEST(HfModels, BothDialectsGiveTheSameSpec) {
  Json in_turn = Json::parse(kQwen2);
  in_turn.update(
      {{"use_sliding_window", true}, {"sliding_window", 4096}, {"max_window_layers", 9}});
  const std::string windows_in_turn = in_turn.dump();
  for (const char* base : {kMistral, kQwen2, kQwen3, windows_in_turn.c_str()}) {
    const auto four = ParseHfConfig(base), five = ParseHfConfig(Dialect5(base));
    ASSERT_TRUE(four.ok()) << four.status();
    ASSERT_TRUE(five.ok()) << five.status();
    ExpectSameModel(*five, *four);
  }
}

TEST(HfModels, NoArchitectureTakesAnothersOwnFields) {
  ExpectInvalid(StatusOf(kQwen3, {{"embedding_multiplier", 2.0}}), {"\"embedding_multiplier\""});
  ExpectInvalid(StatusOf(kQwen3, {{"use_mrope", false}}), {"\"use_mrope\""});
  ExpectInvalid(StatusOf(kMistral, {{"max_window_layers", 0}}), {"\"max_window_layers\""});
}

// rope_scaling of transformers 4.
absl::StatusOr<ModelSpec> WithRope(const Json& scaling) {
  return Parse(kQwen2, {{"rope_scaling", scaling}});
}

TEST(HfRope, ReadsLinearScalingUnderBothNamesOfItsType) {
  for (const char* name : {"type", "rope_type"}) {
    const auto spec = WithRope({{name, "linear"}, {"factor", 2.5}});
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->rope.scaling, RopeScaling::kLinear);
    EXPECT_EQ(spec->rope.factor, 2.5);
    EXPECT_EQ(spec->rope.theta, 1000000.0);
    EXPECT_EQ(spec->rope.attention_factor, 1.0);
  }
  ExpectInvalid(WithRope({{"type", "linear"}}).status(), {"rope_scaling.factor: got nothing"});
  ExpectInvalid(WithRope({{"type", "linear"}, {"factor", 0.5}}).status(),
                {"rope_scaling.factor: got 0.5"});
  ExpectInvalid(WithRope({{"type", "linear"}, {"factor", 2}, {"beta_slow", 1}}).status(),
                {"rope_scaling.beta_slow: got 1", "only beside rope_type 'yarn'"});
}

// As the model cards of Qwen2.5 say it.
TEST(HfRope, ReadsYarnWithItsDefaults) {
  const auto spec =
      WithRope({{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(spec->rope.factor, 4.0);
  EXPECT_EQ(spec->rope.original_max_position_embeddings, 32768);
  EXPECT_EQ(spec->rope.beta_fast, 32.0);
  EXPECT_EQ(spec->rope.beta_slow, 1.0);
  EXPECT_TRUE(spec->rope.truncate);
  EXPECT_DOUBLE_EQ(spec->rope.attention_factor, 1.1386294361119891);
  EXPECT_EQ(WithRope({{"type", "yarn"}, {"factor", 4.0}})->rope.original_max_position_embeddings,
            32768)
      << "of max_position_embeddings, where the config does not say";
}

TEST(HfRope, ReadsYarnWithAllItsParameters) {
  const Json all = {
      {"rope_type", "yarn"}, {"factor", 40.0},    {"beta_fast", 16},
      {"beta_slow", 2},      {"mscale", 0.707},   {"mscale_all_dim", 0.5},
      {"truncate", false},   {"rope_theta", 1e6}, {"original_max_position_embeddings", 4096}};
  const auto spec = WithRope(all);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->rope.beta_fast, 16.0);
  EXPECT_EQ(spec->rope.beta_slow, 2.0);
  EXPECT_FALSE(spec->rope.truncate);
  EXPECT_DOUBLE_EQ(spec->rope.attention_factor,
                   (0.0707 * std::log(40.0) + 1) / (0.05 * std::log(40.0) + 1));
  Json named = all;
  named["attention_factor"] = 1.25;
  EXPECT_EQ(WithRope(named)->rope.attention_factor, 1.25);
  // One of the two scales alone is nothing.
  Json one = all;
  one.erase("mscale_all_dim");
  EXPECT_DOUBLE_EQ(WithRope(one)->rope.attention_factor, 0.1 * std::log(40.0) + 1);
  Json same_length = all;
  same_length["factor"] = 1.0;
  EXPECT_EQ(WithRope(same_length)->rope.attention_factor, 1.0);
  const auto five = Parse(kQwen2, {{"rope_scaling", nullptr}, {"rope_parameters", all}});
  ASSERT_TRUE(five.ok()) << five.status();
  EXPECT_EQ(five->rope, spec->rope);
}

TEST(HfRope, RefusesYarnParametersThatMeanNothing) {
  const Json good = {{"rope_type", "yarn"}, {"factor", 4.0}};
  for (const char* name : {"factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
                           "attention_factor", "original_max_position_embeddings"}) {
    for (const Json& bad : {Json(0), Json(-1.0), Json("1"), Json(true)}) {
      Json rope = good;
      rope[name] = bad;
      ExpectInvalid(WithRope(rope).status(), {"rope_scaling.", name, "got"});
    }
  }
  Json rope = good;
  rope["truncate"] = 1;
  ExpectInvalid(WithRope(rope).status(), {"rope_scaling.truncate: got 1"});
  rope = good;
  rope["beta_fast"] = 0.5;
  ExpectInvalid(WithRope(rope).status(), {"rope_scaling.beta_fast: got 0.5", "beta_slow (1)"});
  rope = good;
  rope["low_freq_factor"] = 1.0;
  ExpectInvalid(WithRope(rope).status(), {"low_freq_factor", "only beside rope_type 'llama3'"});
}

// The fixtures' configs were saved by transformers itself.
TEST(HfFixtures, AllParse) {
  const std::string fixtures = testing::SourceDir() + "/tests/fixtures/";
  for (const char* name : {"llama-tiny", "granite-tiny", "llama3-rope-bias-tiny", "mistral-tiny",
                           "qwen2-tiny", "qwen3-tiny", "linear-rope-tiny", "yarn-rope-tiny",
                           "phi3-longrope-tiny", "phi4-mini-tiny"}) {
    const auto spec = ReadHfConfig(fixtures + name);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->name, name);
    EXPECT_EQ(spec->eos_token_ids, std::vector<uint32_t>{2});
  }
}

TEST(HfFixtures, BothDialectsGiveTheSameSpec) {
  const std::string fixtures = testing::SourceDir() + "/tests/fixtures/";
  for (const char* name :
       {"llama3-rope-bias-tiny", "mistral-tiny", "qwen2-tiny", "qwen3-tiny", "yarn-rope-tiny"}) {
    SCOPED_TRACE(name);
    std::ifstream file(fixtures + name + "/config_transformers5.json");
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const auto four = ReadHfConfig(fixtures + name), five = ParseHfConfig(text);
    ASSERT_TRUE(four.ok()) << four.status();
    ASSERT_TRUE(five.ok()) << five.status();
    ExpectSameModel(*five, *four);
  }
}

TEST(HfExperts, ReadsPublishedConfigs) {
  const auto mixtral = Parse(kMixtral);
  ASSERT_TRUE(mixtral.ok()) << mixtral.status();
  EXPECT_EQ(mixtral->architecture, "mixtral");
  EXPECT_EQ(mixtral->num_experts, 8);
  EXPECT_EQ(mixtral->experts_per_token, 2);
  EXPECT_EQ(mixtral->expert_intermediate_size, 14336);
  EXPECT_TRUE(mixtral->normalises_expert_shares);
  EXPECT_TRUE(mixtral->HasExperts(0) && mixtral->HasExperts(31));
  EXPECT_EQ(mixtral->sliding_window, 0);

  const auto qwen = Parse(kQwen3Moe);
  ASSERT_TRUE(qwen.ok()) << qwen.status();
  EXPECT_EQ(qwen->num_experts, 128);
  EXPECT_EQ(qwen->experts_per_token, 8);
  EXPECT_EQ(qwen->expert_intermediate_size, 768);
  EXPECT_EQ(qwen->intermediate_size, 6144);
  EXPECT_TRUE(qwen->normalises_expert_shares && qwen->qk_norm);
  EXPECT_TRUE(qwen->sparse.empty());

  const auto granite = Parse(kGraniteMoe);
  ASSERT_TRUE(granite.ok()) << granite.status();
  EXPECT_EQ(granite->num_experts, 40);
  EXPECT_EQ(granite->experts_per_token, 8);
  EXPECT_EQ(granite->expert_intermediate_size, 512);
  EXPECT_EQ(granite->residual_multiplier, 0.22);
  EXPECT_EQ(granite->head_dim, 64);
}

TEST(HfExperts, ReadsGptOss) {
  const auto spec = Parse(kGptOss);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->architecture, "gpt_oss");
  EXPECT_EQ(spec->num_experts, 32);
  EXPECT_EQ(spec->experts_per_token, 4);
  EXPECT_EQ(spec->expert_intermediate_size, 2880);
  EXPECT_TRUE(spec->mxfp4_experts && spec->attention_sinks && spec->qkv_bias && spec->o_bias);
  EXPECT_FALSE(spec->mlp_bias || spec->weight_quantization.has_value());
  EXPECT_EQ(spec->activation, Activation::kLimited);
  EXPECT_EQ(spec->gate_limit, 7.0);
  EXPECT_EQ(spec->gate_slope, 1.702);
  EXPECT_EQ(spec->sliding_window, 128);
  EXPECT_EQ(spec->slides, (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(spec->attention_multiplier, 0.125);
  EXPECT_EQ(spec->rope.scaling, RopeScaling::kYarn);
  EXPECT_FALSE(spec->rope.truncate);

  const auto absent = ParseWithout(
      kGptOss, {"num_local_experts", "num_experts_per_tok", "experts_per_token", "attention_bias",
                "layer_types", "sliding_window", "swiglu_limit", "quantization_config", "head_dim",
                "rope_theta", "num_key_value_heads", "rms_norm_eps"});
  ASSERT_TRUE(absent.ok()) << absent.status();
  EXPECT_EQ(absent->num_experts, 128);
  EXPECT_EQ(absent->rope.theta, 150000.0);
  EXPECT_FALSE(absent->mxfp4_experts);
  ModelSpec same = *spec;
  same.num_experts = 128;
  same.mxfp4_experts = false;
  // Of MXFP4 the rest is bf16, where nothing is said of it.
  EXPECT_EQ(spec->checkpoint_dtype, runtime::DType::kBf16);
  same.checkpoint_dtype = runtime::DType::kF32;
  ExpectSameModel(*absent, same);
}

TEST(HfExperts, RefusesWhatGptOssDoesNotSay) {
  ExpectInvalid(ParseWithout(kGptOss, {"rope_scaling"}).status(),
                {"rope_parameters: got nothing", "an object, here or as rope_scaling"});
  ExpectInvalid(StatusOf(kGptOss, {{"experts_per_token", 2}}),
                {"experts_per_token: got 2", "the same as num_experts_per_tok (4)"});
  ExpectInvalid(StatusOf(kGptOss, {{"swiglu_limit", 0}}), {"swiglu_limit: got 0"});
  ExpectInvalid(StatusOf(kGptOss, {{"hidden_act", "gelu"}}), {"hidden_act: got \"gelu\""});
  Json quantization = Json::parse(kGptOss)["quantization_config"];
  ExpectInvalid(StatusOf(kMixtral, {{"quantization_config", quantization}}),
                {"quant_method: got \"mxfp4\"", "for gpt_oss alone"});
  quantization["surprise"] = 1;
  ExpectInvalid(StatusOf(kGptOss, {{"quantization_config", quantization}}),
                {"quantization_config.surprise"});
  quantization.erase("surprise");
  quantization["modules_to_not_convert"].erase(3);
  ExpectInvalid(StatusOf(kGptOss, {{"quantization_config", quantization}}),
                {"modules_to_not_convert: got", "'model.embed_tokens', 'lm_head'"});
  quantization.erase("modules_to_not_convert");
  ExpectInvalid(StatusOf(kGptOss, {{"quantization_config", quantization}}),
                {"modules_to_not_convert: got nothing"});
  ExpectInvalid(StatusOf(kGptOss, {{"hidden_size", 2896}}),
                {"hidden_size, intermediate_size: got 2896, 2880", "multiples of 32"});
}

TEST(HfExperts, AbsenceMeansWhatTransformersMeansByIt) {
  const auto mixtral = ParseWithout(kMixtral, {"num_local_experts", "num_experts_per_tok",
                                               "num_key_value_heads", "sliding_window"});
  ASSERT_TRUE(mixtral.ok()) << mixtral.status();
  EXPECT_EQ(mixtral->num_experts, 8);
  EXPECT_EQ(mixtral->experts_per_token, 2);
  EXPECT_EQ(mixtral->num_kv_heads, 8);
  EXPECT_EQ(mixtral->sliding_window, 0);
  const auto qwen = ParseWithout(
      kQwen3Moe, {"num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob",
                  "decoder_sparse_step", "mlp_only_layers", "head_dim"});
  ASSERT_TRUE(qwen.ok()) << qwen.status();
  EXPECT_EQ(qwen->num_experts, 128);
  EXPECT_EQ(qwen->experts_per_token, 8);
  EXPECT_EQ(qwen->expert_intermediate_size, 768);
  EXPECT_FALSE(qwen->normalises_expert_shares);
  EXPECT_EQ(qwen->head_dim, 64);
  EXPECT_TRUE(qwen->HasExperts(0));
}

TEST(HfExperts, LayersWithoutExpertsHaveAnMlp) {
  const auto listed = Parse(kQwen3Moe, {{"mlp_only_layers", {0, 47}}});
  ASSERT_TRUE(listed.ok()) << listed.status();
  for (int64_t i = 0; i < 48; ++i) EXPECT_EQ(listed->HasExperts(i), i != 0 && i != 47) << i;
  const auto stepped = Parse(kQwen3Moe, {{"decoder_sparse_step", 2}, {"mlp_only_layers", {3}}});
  ASSERT_TRUE(stepped.ok()) << stepped.status();
  for (int64_t i = 0; i < 48; ++i) EXPECT_EQ(stepped->HasExperts(i), i % 2 == 1 && i != 3) << i;
}

// transformers 5 saves the number of experts under one name in all architectures.
TEST(HfExperts, BothNamesOfTheNumberMustAgree) {
  Json config = Json::parse(kQwen3Moe);
  config["num_local_experts"] = 128;
  EXPECT_EQ(ParseHfConfig(config.dump())->num_experts, 128);
  config["num_local_experts"] = 64;
  ExpectInvalid(ParseHfConfig(config.dump()).status(),
                {"num_experts: got 128", "the same as num_local_experts (64)"});
  config.erase("num_experts");
  EXPECT_EQ(ParseHfConfig(config.dump())->num_experts, 64);
}

TEST(HfExperts, RefusesWhatItWouldNotCompute) {
  ExpectInvalid(StatusOf(kMixtral, {{"num_experts_per_tok", 9}}),
                {"num_experts_per_tok: got 9", "1 to the number of experts, 8"});
  ExpectInvalid(StatusOf(kMixtral, {{"num_experts_per_tok", 0}}), {"num_experts_per_tok: got 0"});
  ExpectInvalid(StatusOf(kMixtral, {{"num_local_experts", 0}}), {"num_local_experts: got 0"});
  ExpectInvalid(StatusOf(kMixtral, {{"num_local_experts", 1025}}),
                {"num_local_experts: got 1025", "1024"});
  ExpectInvalid(StatusOf(kMixtral, {{"num_experts", 8}}), {"\"num_experts\""});
  ExpectInvalid(StatusOf(kMixtral, {{"hidden_act", "gelu"}}), {"hidden_act: got \"gelu\""});
  ExpectInvalid(StatusOf(kQwen3Moe, {{"moe_intermediate_size", 0}}),
                {"moe_intermediate_size: got 0"});
  ExpectInvalid(StatusOf(kQwen3Moe, {{"norm_topk_prob", 1}}), {"norm_topk_prob: got 1"});
  ExpectInvalid(StatusOf(kQwen3Moe, {{"decoder_sparse_step", 0}}), {"decoder_sparse_step: got 0"});
  for (const Json& bad : {Json::array({48}), Json::array({-1}), Json::array({"0"}), Json(3)})
    ExpectInvalid(StatusOf(kQwen3Moe, {{"mlp_only_layers", bad}}),
                  {"mlp_only_layers: got", "a list of layers from 0 to 47"});
  ExpectInvalid(StatusOf(kQwen3Moe, {{"use_sliding_window", true}}), {"use_sliding_window"});
  ExpectInvalid(StatusOf(kQwen3Moe, {{"shared_expert_intermediate_size", 5632}}),
                {"shared_expert_intermediate_size: got 5632"});
  ExpectInvalid(StatusOf(kQwen3Moe, {{"use_qk_norm", false}}), {"use_qk_norm: got false"});
  EXPECT_TRUE(
      StatusOf(kQwen3Moe,
               {{"shared_expert_intermediate_size", 0}, {"use_qk_norm", true}, {"qkv_bias", false}})
          .ok());
  // Other architectures have none.
  ExpectInvalid(StatusOf(kMistral, {{"num_local_experts", 8}}), {"\"num_local_experts\""});
  const Json fp8 = {{"quant_method", "fp8"},
                    {"fmt", "e4m3"},
                    {"activation_scheme", "dynamic"},
                    {"weight_block_size", {128, 128}}};
  testing::ExpectError(StatusOf(kGraniteMoe, {{"quantization_config", fp8}}),
                       absl::StatusCode::kUnimplemented,
                       {"quantization_config: got quantised weights in a model whose experts are "
                        "one tensor ('granitemoe')",
                        "allowed none"});
}

// Only hybrid architectures have state space models.
TEST(HfExperts, HaveNoStateSpaceModelsBeside) {
  ExpectInvalid(StatusOf(kGraniteMoe, {{"mamba_n_heads", 48}}), {"\"mamba_n_heads\""});
}

TEST(HfExperts, ReadTheirInputsInNoOrderOfTheirOwn) {
  const auto status = [](const Json& quantization) {
    return StatusOf(kMixtral, {{"quantization_config", quantization}});
  };
  Json gptq = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}, {"desc_act", false}};
  EXPECT_TRUE(status(gptq).ok()) << status(gptq);
  gptq["desc_act"] = true;
  ExpectError(status(gptq), absl::StatusCode::kUnimplemented,
              {"quantization_config", "desc_act", "model with experts"});
  // Groups of neighbours all the same.
  gptq["static_groups"] = true;
  EXPECT_TRUE(status(gptq).ok()) << status(gptq);
  gptq["static_groups"] = false;
  gptq["group_size"] = -1;
  EXPECT_TRUE(status(gptq).ok()) << status(gptq);
  const Json packed = {{"quant_method", "compressed-tensors"},
                       {"format", "pack-quantized"},
                       {"config_groups",
                        {{"group_0",
                          {{"targets", {"Linear"}},
                           {"weights",
                            {{"num_bits", 4},
                             {"type", "int"},
                             {"strategy", "group"},
                             {"group_size", 128},
                             {"actorder", "group"}}}}}}}};
  ExpectError(status(packed), absl::StatusCode::kUnimplemented,
              {"quantization_config", "actorder", "model with experts"});
}

TEST(HfExperts, MayBeQuantisedBesideRoutersThatAreNot) {
  const auto with_ignored = [](const Json& layers) {
    return Json{
        {"quantization_config", {{"quant_method", "fp8"}, {"modules_to_not_convert", layers}}}};
  };
  for (const Json& layers :
       {Json::array(), Json::array({"lm_head", "model.layers.3.mlp.gate"}), Json::array({"gate"}),
        Json::array({"re:.*mlp.gate$", "re:.*mlp\\.gate$"}),
        Json::array({"model.layers.0.input_layernorm", "model.norm"})})
    EXPECT_TRUE(StatusOf(kQwen3Moe, with_ignored(layers)).ok()) << layers;
  // All experts are in one format, attention need not be in it.
  for (const char* layer :
       {"model.layers.0.mlp.experts.0.gate_proj", "model.layers.0", "re:.*gate_proj", "experts"})
    ExpectInvalid(StatusOf(kQwen3Moe, with_ignored(Json::array({layer}))),
                  {"modules_to_not_convert: got 'model.layers.0.mlp.experts.0.gate_proj' among the "
                   "layers left out, allowed none of experts"});
  ExpectInvalid(StatusOf(kQwen3Moe, with_ignored(Json::array({"re:.*experts.7.down_proj"}))),
                {"got 'model.layers.0.mlp.experts.7.down_proj' among"});
  const auto spec = Parse(kQwen3Moe, with_ignored(Json::array({"model.layers.2.self_attn"})));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->NumLeftOut(), 2);
  EXPECT_FALSE(spec->IsQuantized(2, BlockLinear::kAttentionIn));
  EXPECT_TRUE(spec->IsQuantized(1, BlockLinear::kAttentionIn));
  // With experts there is always something quantised.
  const auto all = Parse(kQwen3Moe, with_ignored(Json::array({"self_attn"})));
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_TRUE(all->weight_quantization.has_value());
}

}  // namespace
}  // namespace reprise::models
