// SPDX-License-Identifier: Apache-2.0
// What a config.json says of layers with state space models beside attention: Granite 4.0's and
// Bamba's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/config/hf_config.h"
#include "models/config/model_spec.h"
#include "tests/models/hf_config_edits.h"
#include "tests/models/model_files.h"

namespace reprise::models {
namespace {

using ::reprise::testing::ExpectInvalid;
using Json = nlohmann::json;

// The numbers of granite-4.0-h-tiny's kind: experts beside an MLP, no rope.
constexpr char kGraniteHybrid[] = R"({
      "architectures": ["GraniteMoeHybridForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "attention_multiplier": 0.0078125, "bos_token_id": 100257,
      "embedding_multiplier": 12, "eos_token_id": 100257, "hidden_act": "silu",
      "hidden_size": 1536, "init_method": "mup", "initializer_range": 0.1,
      "intermediate_size": 512,
      "layer_types": ["mamba", "mamba", "attention", "mamba", "attention"], "logits_scaling": 6,
      "mamba_chunk_size": 256, "mamba_conv_bias": true, "mamba_d_conv": 4, "mamba_d_head": 64,
      "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 48,
      "mamba_proj_bias": false, "max_position_embeddings": 131072,
      "model_type": "granitemoehybrid", "normalization_function": "rmsnorm",
      "num_attention_heads": 12, "num_experts_per_tok": 6, "num_hidden_layers": 5,
      "num_key_value_heads": 4, "num_local_experts": 64, "output_router_logits": false,
      "pad_token_id": 100256, "position_embedding_type": "nope", "residual_multiplier": 0.22,
      "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000,
      "router_aux_loss_coef": 0.0, "shared_intermediate_size": 1024, "tie_word_embeddings": true,
      "torch_dtype": "bfloat16", "transformers_version": "4.56.0", "use_cache": true,
      "vocab_size": 100352})";

TEST(HfHybrid, ReadsStateSpaceModelsBesideAttention) {
  const auto spec = Parse(kGraniteHybrid);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->architecture, "granitemoehybrid");
  EXPECT_EQ(spec->mamba_layers, (std::vector<bool>{true, true, false, true, false}));
  EXPECT_EQ(
      spec->mamba,
      (MambaSpec{
          .num_heads = 48, .head_dim = 64, .num_groups = 1, .state_size = 128, .conv_width = 4}));
  EXPECT_EQ(spec->NumAttentionLayers(), 2);
  EXPECT_EQ(spec->KvLayerOf(2), 0);
  EXPECT_EQ(spec->KvLayerOf(4), 1);
  EXPECT_FALSE(spec->has_rope);
  EXPECT_EQ(spec->num_experts, 64);
  EXPECT_EQ(spec->expert_intermediate_size, 512);
  EXPECT_EQ(spec->intermediate_size, 1024);
  EXPECT_EQ(spec->attention_multiplier, 0.0078125);
  EXPECT_EQ(spec->logits_scaling, 6.0);
  // Three layers of 3 inputs of 3328 channels, and 48 x 64 x 128 numbers.
  EXPECT_EQ(spec->RowStateBytes(runtime::DType::kBf16), 3u * (3 * 3328 * 2 + 48 * 64 * 128 * 4));
  for (const float frequency : RopeInverseFrequencies(*spec)) EXPECT_EQ(frequency, 0.0f);
}

TEST(HfHybrid, WithoutExpertsTheMlpIsAlone) {
  const auto spec = Parse(kGraniteHybrid, {{"num_local_experts", 0}, {"num_experts_per_tok", 0}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FALSE(spec->HasExperts(0));
  EXPECT_EQ(spec->intermediate_size, 1024);
}

// As the dense models of the family are published.
TEST(HfHybrid, MayHaveAttentionAloneWithRope) {
  Json config = Json::parse(kGraniteHybrid);
  config["layer_types"] =
      Json::array({"attention", "attention", "attention", "attention", "attention"});
  config["position_embedding_type"] = "rope";
  const auto spec = ParseHfConfig(config.dump());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FALSE(spec->mamba.has_value());
  EXPECT_EQ(spec->RowStateBytes(runtime::DType::kBf16), 0u);
  EXPECT_TRUE(spec->has_rope);
}

// transformers 5.17 saves it so.
TEST(HfHybrid, ReadsTheNamesThatOtherModelsHaveForKindsOfLayers) {
  const std::string linear = "linear_attention", full = "full_attention";
  const auto named = Parse(kGraniteHybrid, {{"layer_types", {linear, full, linear, linear, full}}});
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_THAT(named->mamba_layers, ::testing::ElementsAre(true, false, true, true, false));
  EXPECT_EQ(named->mamba, Parse(kGraniteHybrid)->mamba);
}

TEST(HfHybrid, ReadsTheLimitsOfTimeSteps) {
  const Json infinity = {{"__float__", "Infinity"}};
  const auto open = Parse(kGraniteHybrid, {{"time_step_limit", Json::array({0.0, infinity})}});
  ASSERT_TRUE(open.ok()) << open.status();
  EXPECT_EQ(open->mamba, Parse(kGraniteHybrid)->mamba);
  const auto both = Parse(kGraniteHybrid, {{"time_step_limit", {0.001, 0.5}}});
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->mamba->min_dt, 0.001);
  EXPECT_EQ(both->mamba->max_dt, 0.5);
  for (const Json& bad :
       {Json(1.0), Json::array({0.5}), Json::array({-1.0, 1.0}), Json::array({0.5, 0.1}),
        Json::array({infinity, infinity}), Json::array({0.0, "Infinity"})})
    ExpectInvalid(StatusOf(kGraniteHybrid, {{"time_step_limit", bad}}), {"time_step_limit: got"});
}

TEST(HfHybrid, RefusesWhatItWouldNotCompute) {
  const auto refuses = [](const Json& changes, std::initializer_list<const char*> parts) {
    ExpectInvalid(StatusOf(kGraniteHybrid, changes), parts);
  };
  refuses({{"layer_types", {"mamba", "attention"}}}, {"layer_types: got", "each of 5 layers"});
  refuses({{"layer_types", {"mamba", "mamba", "mamba", "mamba", "moe"}}},
          {"layer_types: got", "'mamba' and 'attention'"});
  refuses({{"layer_types", {"mamba", "mamba", "mamba", "mamba", "mamba"}}},
          {"layer_types: got", "'attention' in one layer at least"});
  ExpectInvalid(ParseWithout(kGraniteHybrid, {"layer_types"}).status(),
                {"layer_types: got nothing", "'attention' in one layer at least"});
  refuses({{"layers_block_type", {"mamba", "mamba", "mamba", "mamba", "attention"}}},
          {"layers_block_type: got", "the same as layer_types"});
  refuses({{"mamba_n_heads", 47}}, {"mamba_n_heads: got 47", "(3072)"});
  refuses({{"mamba_d_head", 32}}, {"mamba_d_head: got 32", "(64)"});
  refuses({{"mamba_n_heads", 12}, {"mamba_d_head", "auto"}}, {"mamba_d_head: got 256", "1 to 128"});
  refuses({{"mamba_d_state", 260}}, {"config.json: mamba_d_state: got 260", "1 to 256"});
  refuses({{"mamba_d_state", 65}}, {"mamba_d_state: got 65", "1 to 64"});
  refuses({{"mamba_n_groups", 5}}, {"mamba_n_groups: got 5", "divide mamba_n_heads (48)"});
  refuses({{"mamba_d_conv", 1}}, {"mamba_d_conv: got 1", "2 to 64"});
  refuses({{"position_embedding_type", "alibi"}},
          {"position_embedding_type: got \"alibi\"", "null, 'nope' and 'rope'"});
  refuses({{"normalization_function", "layernorm"}}, {"normalization_function: got"});
  refuses({{"hidden_act", "gelu"}}, {"hidden_act: got \"gelu\""});
  refuses({{"num_local_experts", 4}}, {"num_experts_per_tok: got 6", "experts, 4"});
}

// As published with Bamba-9B, but for three layers and the type of its weights, which it leaves
// out.
constexpr char kBamba[] = R"({
      "architectures": ["BambaForCausalLM"], "attention_dropout": 0.0, "attn_layer_indices": [1],
      "attn_rotary_emb": 64, "bos_token_id": 128000, "eos_token_id": 128001, "hidden_act": "silu",
      "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
      "mamba_chunk_size": 256, "mamba_conv_bias": true, "mamba_d_conv": 4, "mamba_d_head": 64,
      "mamba_d_state": 128, "mamba_dt_rank": 256, "mamba_expand": 2, "mamba_n_groups": 1,
      "mamba_n_heads": 128, "mamba_proj_bias": false, "model_type": "bamba",
      "num_attention_heads": 32, "num_hidden_layers": 3, "num_key_value_heads": 8,
      "num_logits_to_keep": 1, "pad_token_id": 0, "rms_norm_eps": 1e-05,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16",
      "transformers_version": "4.47.0.dev0", "use_cache": true, "use_mamba_kernels": true,
      "vocab_size": 128256})";

TEST(HfBamba, ReadsAPublishedConfig) {
  const auto spec = Parse(kBamba);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->architecture, "bamba");
  EXPECT_EQ(spec->mamba_layers, (std::vector<bool>{true, false, true}));
  EXPECT_EQ(
      spec->mamba,
      (MambaSpec{
          .num_heads = 128, .head_dim = 64, .num_groups = 1, .state_size = 128, .conv_width = 4}));
  EXPECT_TRUE(spec->has_rope);
  EXPECT_EQ(spec->head_dim, 128);
  EXPECT_EQ(spec->rotary_dim, 64);
  EXPECT_EQ(spec->num_experts, 0);
  EXPECT_EQ(spec->rms_norm_eps, 1e-5);
  EXPECT_EQ(spec->max_position_embeddings, 262144);
  EXPECT_EQ(spec->attention_multiplier, 1.0 / std::sqrt(128.0));
  EXPECT_EQ(ParseWithout(kBamba, {"num_key_value_heads"})->num_kv_heads, 8);
}

// Frequencies of half a head; the rest is not turned.
TEST(HfBamba, TurnsHalfOfEachHead) {
  const std::vector<float> frequencies = RopeInverseFrequencies(*Parse(kBamba));
  ASSERT_EQ(frequencies.size(), 64u);
  for (size_t i = 0; i < 32; ++i)
    EXPECT_EQ(frequencies[i],
              static_cast<float>(std::pow(10000.0, -2.0 * static_cast<double>(i) / 64.0)));
  for (size_t i = 32; i < 64; ++i) EXPECT_EQ(frequencies[i], 0.0f);
}

TEST(HfBamba, RefusesWhatItWouldNotCompute) {
  const auto refuses = [](const Json& changes, std::initializer_list<const char*> parts) {
    ExpectInvalid(StatusOf(kBamba, changes), parts);
  };
  refuses({{"attn_layer_indices", {3}}}, {"attn_layer_indices: got [3]", "from 0 to 2"});
  refuses({{"attn_layer_indices", {-1}}}, {"attn_layer_indices: got [-1]"});
  refuses({{"attn_layer_indices", 1}}, {"attn_layer_indices: got 1", "a list of layers"});
  refuses({{"attn_layer_indices", nullptr}},
          {"attn_layer_indices: got nothing", "one layer at least"});
  refuses({{"attn_rotary_emb", 128}}, {"attn_rotary_emb: got 128", "(64)"});
  refuses({{"partial_rotary_factor", 1.0}}, {"partial_rotary_factor: got 1", "0.5 or absent"});
  refuses({{"rope_parameters",
            {{"rope_type", "default"}, {"rope_theta", 10000.0}, {"partial_rotary_factor", 0.25}}}},
          {"rope_parameters.partial_rotary_factor: got 0.25", "0.5 or absent"});
  refuses({{"head_dim", 6}, {"attn_rotary_emb", nullptr}}, {"rotary_dim: got 3", "even numbers"});
  refuses({{"attention_bias", true}}, {"attention_bias: got true"});
  refuses({{"layer_types", {"mamba", "attention", "mamba"}}}, {"\"layer_types\""});
}

}  // namespace
}  // namespace reprise::models
