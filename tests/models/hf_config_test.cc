// SPDX-License-Identifier: Apache-2.0
// Published configs of both dialects parse; what changes the computation, or is not known to leave
// it alone, is refused by name.
#include "models/config/hf_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/models/model_files.h"
#include "tests/testing/tiny_model.h"

namespace reprise::models {
namespace {

using ::reprise::testing::ExpectError;
using ::reprise::testing::ExpectInvalid;
using ::reprise::testing::TemporaryDirectory;
using ::reprise::testing::WriteBytes;
using Json = nlohmann::json;

// As published with Llama-3.2-3B-Instruct, transformers 4.
constexpr char kLlama[] = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "head_dim": 128,
  "hidden_act": "silu", "hidden_size": 3072, "initializer_range": 0.02, "intermediate_size": 8192,
  "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
  "num_attention_heads": 24, "num_hidden_layers": 28, "num_key_value_heads": 8, "pretraining_tp": 1,
  "rms_norm_eps": 1e-05,
  "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256})";

// As published with granite-3.2-2b-instruct (by way of unsloth), transformers 4.
constexpr char kGranite[] = R"({
  "_name_or_path": "ibm-granite/granite-3.2-2b-instruct", "architectures": ["GraniteForCausalLM"],
  "attention_bias": false, "attention_dropout": 0.1, "attention_multiplier": 0.015625,
  "bos_token_id": 0, "embedding_multiplier": 12.0, "eos_token_id": 0, "hidden_act": "silu",
  "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192, "logits_scaling": 8.0,
  "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "granite",
  "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8, "pad_token_id": 4,
  "residual_multiplier": 0.22, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 5000000.0,
  "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.49.0",
  "unsloth_fixed": true, "use_cache": true, "vocab_size": 49155})";

// kLlama with fields replaced; null in `changes` stays null, it does not erase.
std::string With(const char* base, const Json& changes) {
  Json config = Json::parse(base);
  config.update(changes);
  return config.dump();
}

std::string Without(const char* base, std::initializer_list<const char*> names) {
  Json config = Json::parse(base);
  for (const char* name : names) config.erase(name);
  return config.dump();
}

absl::Status StatusWith(const Json& changes) {
  return ParseHfConfig(With(kLlama, changes)).status();
}

TEST(HfConfig, ReadsAPublishedLlama) {
  const auto spec = ParseHfConfig(kLlama);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->architecture, "llama");
  EXPECT_EQ(spec->vocab_size, 128256);
  EXPECT_EQ(spec->hidden_size, 3072);
  EXPECT_EQ(spec->intermediate_size, 8192);
  EXPECT_EQ(spec->num_layers, 28);
  EXPECT_EQ(spec->num_heads, 24);
  EXPECT_EQ(spec->num_kv_heads, 8);
  EXPECT_EQ(spec->head_dim, 128);
  EXPECT_EQ(spec->max_position_embeddings, 131072);
  EXPECT_EQ(spec->rms_norm_eps, 1e-5);
  EXPECT_TRUE(spec->tie_word_embeddings);
  EXPECT_FALSE(spec->qkv_bias);
  EXPECT_FALSE(spec->o_bias);
  EXPECT_FALSE(spec->qk_norm);
  EXPECT_EQ(spec->sliding_window, 0);
  EXPECT_FALSE(spec->mlp_bias);
  EXPECT_EQ(spec->rope.theta, 500000.0);
  EXPECT_EQ(spec->rope.scaling, RopeScaling::kLlama3);
  EXPECT_EQ(spec->rope.factor, 32.0);
  EXPECT_EQ(spec->rope.low_freq_factor, 1.0);
  EXPECT_EQ(spec->rope.high_freq_factor, 4.0);
  EXPECT_EQ(spec->rope.original_max_position_embeddings, 8192);
  EXPECT_EQ(spec->eos_token_ids, (std::vector<uint32_t>{128001, 128008, 128009}));
  EXPECT_EQ(spec->checkpoint_dtype, runtime::DType::kBf16);
  EXPECT_EQ(spec->attention_multiplier, 1.0 / std::sqrt(128.0));
  EXPECT_EQ(spec->embedding_multiplier, 1.0);
  EXPECT_EQ(spec->residual_multiplier, 1.0);
  EXPECT_EQ(spec->logits_scaling, 1.0);
  EXPECT_EQ(spec->token_encoding, TokenEncoding::kOpaque);
}

TEST(HfConfig, ReadsAPublishedGranite) {
  const auto spec = ParseHfConfig(kGranite);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->architecture, "granite");
  EXPECT_EQ(spec->embedding_multiplier, 12.0);
  EXPECT_EQ(spec->attention_multiplier, 0.015625);
  EXPECT_EQ(spec->residual_multiplier, 0.22);
  EXPECT_EQ(spec->logits_scaling, 8.0);
  EXPECT_EQ(spec->head_dim, 64);
  EXPECT_EQ(spec->rope.theta, 5000000.0);
  EXPECT_EQ(spec->rope.scaling, RopeScaling::kNone);
  EXPECT_EQ(spec->eos_token_ids, std::vector<uint32_t>{0});
}

TEST(HfConfig, BothDialectsGiveTheSameSpec) {
  Json newer = Json::parse(kLlama);
  newer["dtype"] = newer["torch_dtype"];
  newer["rope_parameters"] = newer["rope_scaling"];
  newer["rope_parameters"]["rope_theta"] = newer["rope_theta"];
  for (const char* name : {"torch_dtype", "rope_scaling", "rope_theta"}) newer.erase(name);
  const auto five = ParseHfConfig(newer.dump());
  const auto four = ParseHfConfig(kLlama);
  ASSERT_TRUE(five.ok()) << five.status();
  ASSERT_TRUE(four.ok()) << four.status();
  EXPECT_EQ(five->checkpoint_dtype, four->checkpoint_dtype);
  EXPECT_EQ(five->rope.theta, four->rope.theta);
  EXPECT_EQ(five->rope.scaling, four->rope.scaling);
  EXPECT_EQ(RopeInverseFrequencies(*five), RopeInverseFrequencies(*four));

  const auto plain = ParseHfConfig(
      With(Without(kGranite, {"rope_theta", "rope_scaling", "torch_dtype"}).c_str(),
           {{"dtype", "bfloat16"},
            {"rope_parameters", {{"rope_theta", 5000000.0}, {"rope_type", "default"}}}}));
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->rope.theta, 5000000.0);
  EXPECT_EQ(plain->rope.scaling, RopeScaling::kNone);
}

TEST(HfConfig, AcceptsWhatOtherProgramsLeaveInConfigs) {
  EXPECT_TRUE(StatusWith({{"unsloth_version", "2024.9"},
                          {"_commit_hash", "abc"},
                          {"_attn_implementation_autoset", true},
                          {"transformers.js_config", {{"kv_cache_dtype", {{"fp16", "float16"}}}}},
                          {"is_llama_config", true},
                          {"rope_interleaved", false},
                          {"pad_token_id", 128004},
                          {"id2label", {{"0", "LABEL_0"}}},
                          {"label2id", {{"LABEL_0", 0}}},
                          {"temperature", 0.6},
                          {"top_p", 0.9},
                          {"do_sample", true},
                          {"max_length", 4096},
                          {"output_attentions", false},
                          {"sliding_window", nullptr},
                          {"quantization_config", nullptr},
                          {"partial_rotary_factor", 1.0},
                          {"pruned_heads", Json::object()},
                          {"embedding_multiplier", 1.0},
                          {"chunk_size_feed_forward", 0}})
                  .ok());
}

// As llm-compressor writes one that has calibrated the KV cache alone.
Json KvCacheQuantization() {
  return {{"quant_method", "compressed-tensors"},
          {"config_groups", Json::object()},
          {"format", "dense"},
          {"ignore", {"lm_head"}},
          {"quantization_status", "frozen"},
          {"global_compression_ratio", nullptr},
          {"kv_cache_scheme",
           {{"num_bits", 8},
            {"type", "float"},
            {"strategy", "tensor"},
            {"dynamic", false},
            {"symmetric", true},
            {"observer", "minmax"}}}};
}

TEST(HfConfig, AKvCacheSchemeAsksForEightBits) {
  const auto dtype_with = [](const Json& quantization) {
    return ParseHfConfig(With(kLlama, {{"quantization_config", quantization}}))->kv_cache_dtype;
  };
  EXPECT_EQ(dtype_with(nullptr), std::nullopt);
  Json config = KvCacheQuantization();
  EXPECT_EQ(dtype_with(config), runtime::DType::kE4m3);
  config["kv_cache_scheme"]["strategy"] = "attn_head";
  EXPECT_EQ(dtype_with(config), runtime::DType::kE4m3);
  config["kv_cache_scheme"] = nullptr;
  EXPECT_EQ(dtype_with(config), std::nullopt);
}

TEST(HfConfig, RefusesOtherQuantizationByField) {
  const auto refuse = [](const Json& config, std::initializer_list<const char*> parts) {
    ExpectInvalid(StatusWith({{"quantization_config", config}}), parts);
  };
  const auto changed = [](const char* field, const Json& value) {
    Json config = KvCacheQuantization();
    config[field] = value;
    return config;
  };
  const auto scheme = [](const char* field, const Json& value) {
    Json config = KvCacheQuantization();
    config["kv_cache_scheme"][field] = value;
    return config;
  };
  refuse("fp8", {"quantization_config", "got \"fp8\"", "allowed an object"});
  refuse(changed("quant_method", "bitsandbytes"),
         {"quantization_config.quant_method", "got \"bitsandbytes\"",
          "'compressed-tensors', 'fp8', 'modelopt', 'fbgemm_fp8', 'gptq', 'awq', 'mxfp4'"});
  refuse(changed("sparsity_config", {{"format", "sparse"}}),
         {"quantization_config.sparsity_config"});
  refuse(changed("surprise", 1), {"quantization_config.surprise", "got 1"});
  refuse(changed("kv_cache_scheme", "fp8"), {"kv_cache_scheme", "allowed an object, or null"});
  refuse(scheme("num_bits", 4), {"kv_cache_scheme.num_bits", "got 4"});
  refuse(scheme("type", "int"), {"kv_cache_scheme.type", "got \"int\"", "'float'"});
  refuse(scheme("symmetric", false), {"kv_cache_scheme.symmetric", "got false"});
  refuse(scheme("dynamic", true), {"kv_cache_scheme.dynamic", "got true"});
  refuse(scheme("strategy", "channel"), {"kv_cache_scheme.strategy", "'tensor' or 'attn_head'"});
  refuse(scheme("surprise", 1), {"kv_cache_scheme.surprise", "got 1"});
}

// As llm-compressor writes FP8 weights.
Json CompressedWeights(const char* strategy, bool dynamic_inputs) {
  return {{"quant_method", "compressed-tensors"},
          {"format", "float-quantized"},
          {"ignore", {"lm_head"}},
          {"quantization_status", "compressed"},
          {"kv_cache_scheme", nullptr},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"output_activations", nullptr},
              {"weights",
               {{"num_bits", 8},
                {"type", "float"},
                {"symmetric", true},
                {"dynamic", false},
                {"strategy", strategy},
                {"group_size", nullptr},
                {"block_structure", nullptr},
                {"observer", "minmax"}}},
              {"input_activations",
               {{"num_bits", 8},
                {"type", "float"},
                {"symmetric", true},
                {"dynamic", dynamic_inputs},
                {"strategy", dynamic_inputs ? "token" : "tensor"}}}}}}}};
}

std::optional<WeightQuantization> WeightsWith(const Json& quantization) {
  const auto spec = ParseHfConfig(With(kLlama, {{"quantization_config", quantization}}));
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec->weight_quantization;
}

TEST(HfConfig, ReadsHowWeightsAreQuantised) {
  EXPECT_EQ(WeightsWith(nullptr), std::nullopt);
  EXPECT_EQ(WeightsWith(KvCacheQuantization()), std::nullopt);
  EXPECT_EQ(WeightsWith(CompressedWeights("tensor", false)),
            (WeightQuantization{ScaleGranularity::kTensor, "weight_scale", true, true}));
  EXPECT_EQ(WeightsWith(CompressedWeights("channel", true)),
            (WeightQuantization{ScaleGranularity::kChannel, "weight_scale", false, true}));
  Json blocks = CompressedWeights("block", true);
  blocks["config_groups"]["group_0"]["weights"]["block_structure"] = {128, 128};
  EXPECT_EQ(WeightsWith(blocks),
            (WeightQuantization{ScaleGranularity::kBlock, "weight_scale", false, true}));
  EXPECT_EQ(WeightsWith({{"quant_method", "fp8"},
                         {"fmt", "e4m3"},
                         {"activation_scheme", "dynamic"},
                         {"modules_to_not_convert", {"lm_head"}},
                         {"weight_block_size", {128, 128}}}),
            (WeightQuantization{ScaleGranularity::kBlock, "weight_scale_inv", false, true}));
  EXPECT_EQ(WeightsWith({{"quant_method", "fp8"}, {"activation_scheme", "static"}}),
            (WeightQuantization{ScaleGranularity::kTensor, "weight_scale", true, true}));
  Json weights_alone = CompressedWeights("channel", true);
  weights_alone["config_groups"]["group_0"]["input_activations"] = nullptr;
  EXPECT_EQ(WeightsWith(weights_alone),
            (WeightQuantization{ScaleGranularity::kChannel, "weight_scale", false, false}));
  // Nothing said is dynamic.
  EXPECT_TRUE(WeightsWith({{"quant_method", "fp8"}})->means_rounding);
}

TEST(HfConfig, RefusesWeightsThatNothingReadsByField) {
  const auto refuse = [](const Json& config, std::initializer_list<const char*> parts) {
    ExpectInvalid(StatusWith({{"quantization_config", config}}), parts);
  };
  const auto group = [](const char* field, const Json& value) {
    Json config = CompressedWeights("channel", true);
    config["config_groups"]["group_0"][field] = value;
    return config;
  };
  const auto weights = [](const char* field, const Json& value) {
    Json config = CompressedWeights("channel", true);
    config["config_groups"]["group_0"]["weights"][field] = value;
    return config;
  };
  refuse(weights("num_bits", 4), {"config_groups.group_0.weights.num_bits", "got 4"});
  refuse(weights("type", "int"), {"group_0.weights.type", "'float'"});
  refuse(weights("strategy", "group"), {"group_0.weights.strategy", "'channel' or 'block'"});
  refuse(weights("strategy", "block"), {"group_0.weights.block_structure", "[128, 128]"});
  refuse(weights("dynamic", true), {"group_0.weights.dynamic", "got true"});
  refuse(weights("surprise", 1), {"group_0.weights.surprise", "got 1"});
  refuse(group("weights", nullptr), {"group_0.weights", "allowed an object"});
  refuse(group("targets", {"re:.*q_proj"}), {"group_0.targets", "['Linear']"});
  refuse(group("output_activations", {{"num_bits", 8}}), {"group_0.output_activations", "null"});
  refuse(group("input_activations", {{"num_bits", 4}}), {"input_activations.num_bits", "got 4"});
  refuse(group("surprise", 1), {"group_0.surprise"});
  Json config = CompressedWeights("channel", true);
  config["format"] = "marlin-24";
  refuse(config, {"quantization_config.format", "'float-quantized'"});
  config = CompressedWeights("channel", true);
  config["config_groups"]["group_1"] = config["config_groups"]["group_0"];
  refuse(config, {"quantization_config.config_groups", "one group"});
  refuse({{"quant_method", "fp8"}, {"fmt", "e5m2"}}, {"quantization_config.fmt", "'e4m3'"});
  refuse({{"quant_method", "fp8"}, {"weight_block_size", {64, 128}}},
         {"quantization_config.weight_block_size", "[128, 128]"});
  refuse({{"quant_method", "fp8"}, {"activation_scheme", "none"}},
         {"quantization_config.activation_scheme"});
  refuse({{"quant_method", "fp8"}, {"surprise", 1}}, {"quantization_config.surprise"});
}

// As llm-compressor writes weights of 4 bits.
Json PackedWeights(const Json& changes = Json::object()) {
  Json weights = {{"num_bits", 4},      {"type", "int"},       {"symmetric", true},
                  {"dynamic", false},   {"strategy", "group"}, {"group_size", 128},
                  {"actorder", nullptr}};
  weights.update(changes);
  return {{"quant_method", "compressed-tensors"},
          {"format", "pack-quantized"},
          {"ignore", {"lm_head"}},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}}, {"input_activations", nullptr}, {"weights", weights}}}}}};
}
Json Gptq(const Json& changes = Json::object()) {
  Json config = {{"quant_method", "gptq"},      {"bits", 4},       {"group_size", 128},
                 {"desc_act", false},           {"sym", true},     {"damp_percent", 0.1},
                 {"checkpoint_format", "gptq"}, {"lm_head", false}};
  config.update(changes);
  return config;
}
Json Awq(const Json& changes = Json::object()) {
  Json config = {{"quant_method", "awq"}, {"bits", 4},         {"group_size", 64},
                 {"zero_point", true},    {"version", "gemm"}, {"modules_to_not_convert", nullptr}};
  config.update(changes);
  return config;
}

TEST(HfConfig, ReadsHowWeightsOfFourBitsAreStored) {
  WeightQuantization packed{.storage = WeightStorage::kPackedInt4, .group_size = 128};
  packed.symmetric = true;
  EXPECT_EQ(WeightsWith(PackedWeights()), packed);
  for (const Json& order : {Json("static"), Json("weight"), Json(false)})
    EXPECT_EQ(WeightsWith(PackedWeights({{"actorder", order}})), packed);
  packed.reorders_inputs = true;
  for (const Json& order : {Json("group"), Json("dynamic"), Json(true)})
    EXPECT_EQ(WeightsWith(PackedWeights({{"actorder", order}})), packed);
  packed.reorders_inputs = false;
  packed.symmetric = false;
  packed.group_size = 32;
  EXPECT_EQ(WeightsWith(PackedWeights({{"symmetric", false}, {"group_size", 32}})), packed);
  packed.group_size = 0;
  EXPECT_EQ(WeightsWith(PackedWeights(
                {{"symmetric", false}, {"strategy", "channel"}, {"group_size", nullptr}})),
            packed);
  WeightQuantization gptq{.scale_name = "scales", .storage = WeightStorage::kGptq};
  gptq.group_size = 128;
  gptq.symmetric = true;
  gptq.zero_point_offset = 1;
  EXPECT_EQ(WeightsWith(Gptq()), gptq);
  // Groups that were set before inputs were sorted are of neighbours.
  EXPECT_EQ(WeightsWith(Gptq({{"desc_act", true}, {"static_groups", true}})), gptq);
  EXPECT_EQ(WeightsWith(Gptq({{"desc_act", true}, {"meta", {{"static_groups", true}}}})), gptq);
  gptq.reorders_inputs = true;
  EXPECT_EQ(WeightsWith(Gptq({{"desc_act", true}})), gptq);
  EXPECT_EQ(WeightsWith(Gptq({{"desc_act", true}, {"static_groups", false}})), gptq);
  EXPECT_EQ(WeightsWith(Gptq({{"desc_act", true}, {"meta", {{"damp_percent", 0.1}}}})), gptq);
  gptq.reorders_inputs = false;
  gptq.symmetric = false;
  gptq.zero_point_offset = 0;
  gptq.group_size = 0;
  // Of one group the order of inputs does not matter.
  for (const bool reordered : {false, true})
    EXPECT_EQ(WeightsWith(Gptq({{"sym", false},
                                {"group_size", -1},
                                {"desc_act", reordered},
                                {"checkpoint_format", "gptq_v2"}})),
              gptq);
  EXPECT_EQ(WeightsWith(Awq()),
            (WeightQuantization{
                .scale_name = "scales", .storage = WeightStorage::kAwq, .group_size = 64}));
}

TEST(HfConfig, RefusesWeightsOfFourBitsThatNothingReadsByField) {
  const auto refuse = [](const Json& config, std::initializer_list<const char*> parts) {
    ExpectInvalid(StatusWith({{"quantization_config", config}}), parts);
  };
  refuse(PackedWeights({{"num_bits", 8}}), {"group_0.weights.num_bits", "got 8"});
  refuse(PackedWeights({{"type", "float"}}), {"group_0.weights.type", "got \"float\"", "'int'"});
  refuse(PackedWeights({{"group_size", 96}}),
         {"group_0.weights.group_size", "got 96", "32, 64 or 128"});
  refuse(PackedWeights({{"group_size", nullptr}}), {"group_0.weights.group_size"});
  refuse(PackedWeights({{"strategy", "channel"}}), {"group_size", "got 128", "null"});
  refuse(PackedWeights({{"strategy", "tensor"}}), {"strategy", "'group' or 'channel'"});
  refuse(PackedWeights({{"actorder", "descending"}}),
         {"actorder", "got \"descending\"", "'group'"});
  refuse(PackedWeights({{"actorder", "group"}, {"strategy", "channel"}, {"group_size", nullptr}}),
         {"actorder", "got \"group\"", "without the strategy 'group'"});
  refuse(PackedWeights({{"dynamic", true}}), {"group_0.weights.dynamic", "got true"});
  Json activations = PackedWeights();
  activations["config_groups"]["group_0"]["input_activations"] = {{"num_bits", 8}};
  refuse(activations, {"group_0.input_activations", "null with weights of 4 bits"});
  refuse(Gptq({{"bits", 3}}), {"quantization_config.bits", "got 3"});
  refuse(Gptq({{"group_size", 1024}}), {"group_size", "got 1024", "or -1 for all inputs"});
  refuse(Gptq({{"desc_act", 1}}), {"desc_act", "got 1"});
  refuse(Gptq({{"static_groups", "yes"}}), {"static_groups", "got \"yes\""});
  refuse(Gptq({{"meta", {{"static_groups", 2}}}}), {"meta.static_groups", "got 2"});
  refuse(Gptq({{"checkpoint_format", "marlin"}}), {"checkpoint_format", "'gptq' or 'gptq_v2'"});
  refuse(Gptq({{"pack_dtype", "int8"}}), {"pack_dtype", "'int32'"});
  refuse(Gptq({{"lm_head", true}}), {"lm_head", "got true"});
  refuse(Gptq({{"dynamic", {{"-:.*down.*", Json::object()}}}}), {"quantization_config.dynamic"});
  refuse(Gptq({{"surprise", 1}}), {"quantization_config.surprise"});
  refuse(Awq({{"bits", 8}}), {"quantization_config.bits", "got 8"});
  refuse(Awq({{"version", "gemv"}}), {"version", "got \"gemv\"", "'gemm'"});
  refuse(Awq({{"zero_point", false}}), {"zero_point", "got false", "true"});
  refuse(Awq({{"modules_to_not_convert", "mlp"}}), {"modules_to_not_convert", "a list of names"});
  refuse(Awq({{"surprise", 1}}), {"quantization_config.surprise"});
}

TEST(HfConfig, RefusesAnUnknownFieldByName) {
  ExpectInvalid(StatusWith({{"use_flux_capacitor", 88}}), {"\"use_flux_capacitor\"", "got 88"});
  ExpectInvalid(StatusWith({{"attention_multiplier", 0.5}}), {"\"attention_multiplier\""});
}

TEST(HfConfig, RefusesFieldsThatWouldChangeTheComputation) {
  const std::pair<const char*, Json> changes[] = {
      {"pretraining_tp", 2},
      {"hidden_act", "gelu"},
      {"sliding_window", 4096},
      {"use_sliding_window", true},
      {"rope_interleaved", true},
      {"partial_rotary_factor", 0.5},
      {"is_encoder_decoder", true},
      {"quantization_config", {{"quant_method", "awq"}}},
      {"auto_map", {{"AutoModelForCausalLM", "modeling.Custom"}}},
      {"pruned_heads", {{"0", {1, 2}}}},
      {"embedding_multiplier", 12.0},
      {"pretraining_tp", true},  // not the number 1
  };
  for (const auto& [name, value] : changes) {
    ExpectInvalid(StatusWith({{name, value}}), {name, "got", "allowed"});
  }
}

TEST(HfConfig, OptionalFieldsMeanWhatTransformersMeansByTheirAbsence) {
  const auto spec = ParseHfConfig(
      Without(kLlama, {"head_dim", "num_key_value_heads", "rope_theta", "rope_scaling",
                       "tie_word_embeddings", "attention_bias", "mlp_bias", "eos_token_id",
                       "torch_dtype", "rms_norm_eps", "hidden_act", "pretraining_tp"}));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->head_dim, 128);
  EXPECT_EQ(spec->num_kv_heads, 24);
  EXPECT_EQ(spec->rope.theta, 10000.0);
  EXPECT_EQ(spec->rope.scaling, RopeScaling::kNone);
  EXPECT_FALSE(spec->tie_word_embeddings);
  EXPECT_TRUE(spec->eos_token_ids.empty());
  EXPECT_EQ(spec->checkpoint_dtype, runtime::DType::kF32);
  EXPECT_EQ(spec->rms_norm_eps, 1e-6);
  const auto nulls = ParseHfConfig(With(kLlama, {{"head_dim", nullptr},
                                                 {"num_key_value_heads", nullptr},
                                                 {"eos_token_id", nullptr},
                                                 {"rope_scaling", nullptr}}));
  ASSERT_TRUE(nulls.ok()) << nulls.status();
  EXPECT_EQ(nulls->head_dim, 128);
  EXPECT_EQ(nulls->num_kv_heads, 24);
  EXPECT_TRUE(nulls->eos_token_ids.empty());
}

TEST(HfConfig, RequiredSizesMustBeThere) {
  for (const char* name : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                           "num_attention_heads", "max_position_embeddings"}) {
    ExpectInvalid(ParseHfConfig(Without(kLlama, {name})).status(), {name, "got nothing"});
  }
}

TEST(HfConfig, SizesMustBePositiveIntegers) {
  const Json bad[] = {0,
                      -1,
                      1.5,
                      4096.0,
                      "4096",
                      true,
                      Json::array({1}),
                      Json::object(),
                      18446744073709551615u,
                      9223372036854775807};
  for (const char* name :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings"}) {
    for (const Json& value : bad) {
      ExpectInvalid(StatusWith({{name, value}}), {name, value.dump().c_str(), "an integer from 1"});
    }
  }
}

TEST(HfConfig, AbsurdCombinationsAreRefused) {
  ExpectInvalid(StatusWith({{"num_key_value_heads", 7}}),
                {"config.json: num_attention_heads: got 24", "num_key_value_heads (7)"});
  ExpectInvalid(StatusWith({{"head_dim", 63}}), {"head_dim: got 63", "even"});
  ExpectInvalid(
      StatusWith({{"head_dim", nullptr}, {"num_attention_heads", 7}, {"num_key_value_heads", 7}}),
      {"hidden_size: got 3072", "num_attention_heads (7)"});
  ExpectInvalid(StatusWith({{"num_hidden_layers", 2147483647}}), {"num_hidden_layers"});
}

TEST(HfConfig, NumbersMustBeFiniteAndPositive) {
  for (const Json& bad : {Json(0), Json(-1e-5), Json("1e-5"), Json(true)}) {
    ExpectInvalid(StatusWith({{"rms_norm_eps", bad}}), {"rms_norm_eps", "finite number > 0"});
    ExpectInvalid(StatusWith({{"rope_theta", bad}}), {"rope_theta", "finite number > 0"});
    for (const char* name : {"embedding_multiplier", "attention_multiplier", "residual_multiplier",
                             "logits_scaling"}) {
      ExpectInvalid(ParseHfConfig(With(kGranite, {{name, bad}})).status(),
                    {name, "finite number > 0"});
    }
  }
  for (const char* name : {"tie_word_embeddings", "attention_bias", "mlp_bias"}) {
    ExpectInvalid(StatusWith({{name, 1}}), {name, "true or false"});
  }
}

TEST(HfConfig, RopeTypesWeLackAreRefusedByTheirName) {
  ExpectInvalid(StatusWith({{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}}),
                {"rope_scaling.type: got \"dynamic\"",
                 "'default', 'linear', 'llama3', 'yarn' or 'longrope'"});
  ExpectInvalid(StatusWith({{"rope_scaling", {{"rope_type", "proportional"}, {"factor", 2.0}}}}),
                {"rope_scaling.rope_type: got \"proportional\""});
  ExpectInvalid(StatusWith({{"rope_scaling", "llama3"}}), {"rope_scaling: got \"llama3\""});
}

TEST(HfConfig, RopeParametersAreChecked) {
  const Json good = Json::parse(kLlama)["rope_scaling"];
  for (const char* name :
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    Json rope = good;
    rope.erase(name);
    ExpectInvalid(StatusWith({{"rope_scaling", rope}}),
                  {(std::string("rope_scaling.") + name).c_str(), "got nothing"});
    rope[name] = -1;
    ExpectInvalid(StatusWith({{"rope_scaling", rope}}), {name, "got -1"});
    ExpectInvalid(StatusWith({{"rope_scaling", {{"rope_type", "default"}, {name, good[name]}}}}),
                  {name, "only beside rope_type '"});
  }
  Json rope = good;
  rope["beta_fast"] = 32;
  ExpectInvalid(StatusWith({{"rope_scaling", rope}}),
                {"rope_scaling.beta_fast: got 32", "only beside rope_type 'yarn'"});
  rope = good;
  rope["attention_factor"] = 1.2;
  ExpectInvalid(StatusWith({{"rope_scaling", rope}}),
                {"rope_scaling.attention_factor: got 1.2", "beside rope_type 'yarn'"});
  rope["attention_factor"] = 1.0;
  EXPECT_TRUE(StatusWith({{"rope_scaling", rope}}).ok());
  rope = good;
  rope["short_mscale"] = 32;
  ExpectInvalid(StatusWith({{"rope_scaling", rope}}), {"rope_scaling.\"short_mscale\"", "got 32"});
  rope = good;
  rope["high_freq_factor"] = 0.5;
  ExpectInvalid(StatusWith({{"rope_scaling", rope}}), {"rope_scaling.high_freq_factor: got 0.5"});
  rope = good;
  rope["type"] = "default";
  ExpectInvalid(StatusWith({{"rope_scaling", rope}}),
                {"rope_scaling.type", "the same as rope_type"});
}

TEST(HfConfig, WhatIsSaidTwiceMustAgree) {
  Json parameters = Json::parse(kLlama)["rope_scaling"];
  parameters["rope_theta"] = 500000.0;
  EXPECT_TRUE(StatusWith({{"rope_parameters", parameters}}).ok());
  parameters["rope_theta"] = 10000.0;
  ExpectInvalid(StatusWith({{"rope_parameters", parameters}}),
                {"rope_parameters.rope_theta: got 10000", "500000"});
  parameters["rope_theta"] = 500000.0;
  parameters["factor"] = 8.0;
  ExpectInvalid(StatusWith({{"rope_parameters", parameters}}),
                {"rope_parameters: got", "the same scaling"});
  EXPECT_TRUE(StatusWith({{"dtype", "bfloat16"}}).ok());
  ExpectInvalid(StatusWith({{"dtype", "float16"}}), {"torch_dtype: got \"bfloat16\"", "float16"});
}

TEST(HfConfig, ReadsTheThreeTypes) {
  const std::pair<const char*, runtime::DType> types[] = {{"float32", runtime::DType::kF32},
                                                          {"bfloat16", runtime::DType::kBf16},
                                                          {"float16", runtime::DType::kF16}};
  for (const auto& [name, dtype] : types) {
    const auto spec = ParseHfConfig(With(kLlama, {{"torch_dtype", name}}));
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->checkpoint_dtype, dtype);
  }
  ExpectInvalid(StatusWith({{"torch_dtype", "float8_e4m3fn"}}), {"torch_dtype", "float8_e4m3fn"});
}

TEST(HfConfig, ArchitecturesWeLackAreUnimplemented) {
  for (const char* name : {"DbrxForCausalLM", "LlamaModel", "LlamaForSequenceClassification"}) {
    ExpectError(StatusWith({{"architectures", {name}}}), absl::StatusCode::kUnimplemented,
                {name, "LlamaForCausalLM", "GraniteForCausalLM", "MistralForCausalLM",
                 "Qwen2ForCausalLM", "Qwen3ForCausalLM"});
  }
  ExpectError(ParseHfConfig(R"({"model_type":"gpt2"})").status(), absl::StatusCode::kUnimplemented,
              {"gpt2"});
}

TEST(HfConfig, ArchitectureMustBeClear) {
  ExpectInvalid(StatusWith({{"model_type", "granite"}}),
                {"model_type: got \"granite\"", "'llama'"});
  ExpectInvalid(StatusWith({{"architectures", {"LlamaForCausalLM", "LlamaModel"}}}),
                {"architectures", "one name"});
  ExpectInvalid(StatusWith({{"architectures", {3}}}), {"architectures", "one name"});
  ExpectInvalid(ParseHfConfig("{}").status(), {"architectures: got nothing"});
  EXPECT_TRUE(ParseHfConfig(Without(kLlama, {"architectures"})).ok());
  EXPECT_TRUE(ParseHfConfig(Without(kGranite, {"model_type"})).ok());
}

TEST(HfConfig, EosIdsMustLieInTheVocabulary) {
  for (const Json& bad : {Json(-1), Json(128256), Json(1.0), Json("2"), Json(true),
                          Json::array({1, 128256}), Json::array({nullptr}), Json::object()}) {
    ExpectInvalid(StatusWith({{"eos_token_id", bad}}), {"eos_token_id", "from 0 to 128255"});
  }
  const auto spec = ParseHfConfig(With(kLlama, {{"eos_token_id", 128255}}));
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->eos_token_ids, std::vector<uint32_t>{128255});
}

TEST(HfConfig, TextThatIsNotOneJsonObjectIsRefused) {
  for (const char* text : {"", "{", "nonsense", "{}{}", "{\"a\":1,}", "{\"vocab_size\":1e999}",
                           "{\"rms_norm_eps\":NaN}", "{\"a\":\"\xff\"}"}) {
    ExpectInvalid(ParseHfConfig(text).status(), {"config.json", "not JSON"});
  }
  ExpectInvalid(ParseHfConfig("[]").status(), {"got array"});
  ExpectInvalid(ParseHfConfig(R"({"vocab_size":1,"vocab_size":2})").status(),
                {"\"vocab_size\" twice"});
  ExpectInvalid(ParseHfConfig("{\"a\":" + std::string(5'000'000, '[')).status(), {"nests deeper"});
}

class HfDirectoryTest : public ::testing::Test {
 protected:
  HfDirectoryTest() { std::filesystem::create_directory(path()); }
  std::string path() const { return directory_.path() + "/my-model"; }
  void Write(const char* name, const std::string& text) { WriteBytes(path() + "/" + name, text); }

 private:
  TemporaryDirectory directory_;
};

TEST_F(HfDirectoryTest, NameIsTheBaseNameOfTheDirectory) {
  Write("config.json", kLlama);
  for (const char* suffix : {"", "/", "/.", "/../my-model//"}) {
    const auto spec = ReadHfConfig(path() + suffix);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->name, "my-model") << suffix;
  }
}

TEST_F(HfDirectoryTest, GenerationConfigOverridesEos) {
  Write("config.json", kLlama);
  Write("generation_config.json", R"({"_from_model_config":true,"eos_token_id":[5,7]})");
  EXPECT_EQ(ReadHfConfig(path())->eos_token_ids, (std::vector<uint32_t>{5, 7}));
  Write("generation_config.json", R"({"eos_token_id":9,"temperature":0.6})");
  EXPECT_EQ(ReadHfConfig(path())->eos_token_ids, std::vector<uint32_t>{9});
  for (const char* silent : {"{}", R"({"eos_token_id":null})"}) {
    Write("generation_config.json", silent);
    EXPECT_EQ(ReadHfConfig(path())->eos_token_ids, (std::vector<uint32_t>{128001, 128008, 128009}));
  }
  Write("generation_config.json", R"({"eos_token_id":-3})");
  ExpectInvalid(ReadHfConfig(path()).status(), {"generation_config.json: eos_token_id", "-3"});
  Write("generation_config.json", "{");
  ExpectInvalid(ReadHfConfig(path()).status(), {"generation_config.json", "not JSON"});
}

TEST_F(HfDirectoryTest, AByteTokenizerMeansBytes) {
  Write("config.json", kLlama);
  EXPECT_EQ(ReadHfConfig(path())->token_encoding, TokenEncoding::kOpaque);
  Write("tokenizer_config.json", R"({"tokenizer_class":"PreTrainedTokenizerFast"})");
  EXPECT_EQ(ReadHfConfig(path())->token_encoding, TokenEncoding::kOpaque);
  Write("tokenizer_config.json", R"({"tokenizer_class":"ByteTokenizer"})");
  EXPECT_EQ(ReadHfConfig(path())->token_encoding, TokenEncoding::kBytes);
  Write("tokenizer_config.json", R"({"tokenizer_class":3})");
  ExpectInvalid(ReadHfConfig(path()).status(), {"tokenizer_class: got 3"});
}

TEST_F(HfDirectoryTest, MissingConfigNamesThePath) {
  ExpectError(ReadHfConfig(path()).status(), absl::StatusCode::kNotFound,
              {(path() + "/config.json").c_str()});
  Write("file", "");
  ExpectError(ReadHfConfig(path() + "/file").status(), absl::StatusCode::kNotFound,
              {"file/config.json"});
}

TEST_F(HfDirectoryTest, AConfigOfAbsurdSizeIsNotRead) {
  Write("config.json", "{}");
  std::filesystem::resize_file(path() + "/config.json", uintmax_t{1} << 40);  // sparse
  ExpectInvalid(ReadHfConfig(path()).status(), {"1099511627776 bytes", "at most"});
}

}  // namespace
}  // namespace reprise::models
