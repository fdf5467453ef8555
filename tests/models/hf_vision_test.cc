// SPDX-License-Identifier: Apache-2.0
// Configs of models with a vision part: the text part's fields in text_config, what may stand at
// both places, and what is refused, by its path.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/config/config_report.h"
#include "models/config/hf_config.h"
#include "tests/models/hf_config_edits.h"
#include "tests/models/model_files.h"
#include "tests/testing/source_dir.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/tiny_model.h"

namespace reprise::models {
namespace {

using ::reprise::testing::ExpectError;
using ::reprise::testing::ExpectInvalid;
using Json = nlohmann::json;

// As published with gemma-3-4b-it, transformers 4.
constexpr char kGemma3[] = R"({
  "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999,
  "eoi_token_index": 256000, "eos_token_id": [1, 106], "image_token_index": 262144,
  "initializer_range": 0.02, "mm_tokens_per_image": 256, "model_type": "gemma3",
  "text_config": {
    "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
    "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    "sliding_window": 1024},
  "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0",
  "vision_config": {
    "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304,
    "model_type": "siglip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 27,
    "patch_size": 14, "vision_use_head": false}})";

// As published with Mistral-Small-3.1-24B-Instruct-2503, transformers 4.
constexpr char kMistral3[] = R"({
  "architectures": ["Mistral3ForConditionalGeneration"], "image_token_index": 10,
  "model_type": "mistral3", "multimodal_projector_bias": false, "projector_hidden_act": "gelu",
  "spatial_merge_size": 2,
  "text_config": {
    "attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120,
    "initializer_range": 0.02, "intermediate_size": 32768, "max_position_embeddings": 131072,
    "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 40,
    "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000000.0,
    "sliding_window": null, "use_cache": true, "vocab_size": 131072},
  "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0",
  "vision_config": {
    "attention_dropout": 0.0, "head_dim": 64, "hidden_act": "gelu", "hidden_size": 1024,
    "image_size": 1540, "initializer_range": 0.02, "intermediate_size": 4096,
    "model_type": "pixtral", "num_attention_heads": 16, "num_channels": 3,
    "num_hidden_layers": 24, "patch_size": 14, "rope_theta": 10000.0},
  "vision_feature_layer": -1})";

// With `changes` in text_config.
absl::StatusOr<ModelSpec> ParseText(const char* base, const Json& changes) {
  Json config = Json::parse(base);
  config["text_config"].update(changes);
  return ParseHfConfig(config.dump());
}

TEST(HfVision, ReadsThePublishedGemma3) {
  const auto spec = Parse(kGemma3);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->architecture, "gemma3");
  EXPECT_TRUE(spec->beside_vision);
  EXPECT_EQ(spec->hidden_size, 2560);
  EXPECT_EQ(spec->intermediate_size, 10240);
  EXPECT_EQ(spec->num_layers, 34);
  // What text_config leaves out.
  EXPECT_EQ(spec->vocab_size, 262208);
  EXPECT_EQ(spec->num_heads, 8);
  EXPECT_EQ(spec->num_kv_heads, 4);
  EXPECT_EQ(spec->head_dim, 256);
  EXPECT_EQ(spec->max_position_embeddings, 131072);
  EXPECT_EQ(spec->rms_norm_eps, 1e-6);
  EXPECT_EQ(spec->attention_multiplier, 1.0 / 16.0);
  EXPECT_EQ(spec->attention_softcap, 0.0);
  EXPECT_EQ(spec->logits_softcap, 0.0);
  EXPECT_TRUE(spec->tie_word_embeddings);
  EXPECT_EQ(spec->rope.theta, 1e6);
  EXPECT_EQ(spec->rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(spec->rope.factor, 8.0);
  EXPECT_EQ(spec->sliding_rope, RopeSpec{.theta = 10000.0});
  EXPECT_EQ(spec->sliding_window, 1024);
  ASSERT_EQ(spec->slides.size(), 34u);
  for (size_t layer = 0; layer < 34; ++layer) EXPECT_EQ(spec->slides[layer], layer % 6 != 5);
  EXPECT_EQ(spec->eos_token_ids, (std::vector<uint32_t>{1, 106}));
  EXPECT_EQ(spec->checkpoint_dtype, runtime::DType::kBf16);
}

// gemma-3-27b-it says more in text_config.
TEST(HfVision, ReadsTheLargestGemma3) {
  const auto spec = ParseText(kGemma3, {{"head_dim", 128},
                                        {"hidden_size", 5376},
                                        {"intermediate_size", 21504},
                                        {"num_attention_heads", 32},
                                        {"num_hidden_layers", 62},
                                        {"num_key_value_heads", 16},
                                        {"query_pre_attn_scalar", 168}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->q_size(), 32 * 128);
  EXPECT_EQ(spec->attention_multiplier, 1.0 / std::sqrt(168.0));
}

TEST(HfVision, ReadsThePublishedMistral3) {
  const auto spec = Parse(kMistral3);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->architecture, "mistral");
  EXPECT_TRUE(spec->beside_vision);
  EXPECT_EQ(spec->hidden_size, 5120);
  EXPECT_EQ(spec->num_layers, 40);
  EXPECT_EQ(spec->q_size(), 4096);
  EXPECT_EQ(spec->vocab_size, 131072);
  EXPECT_EQ(spec->rms_norm_eps, 1e-5);
  EXPECT_EQ(spec->rope.theta, 1e9);
  EXPECT_EQ(spec->sliding_window, 0);
  EXPECT_FALSE(spec->tie_word_embeddings);
  EXPECT_TRUE(spec->eos_token_ids.empty());
  EXPECT_EQ(spec->checkpoint_dtype, runtime::DType::kBf16);
}

// Gemma 3 of text alone has the same defaults, and no vision part.
TEST(HfVision, ATextModelOfItsOwnHasNone) {
  const auto spec = ParseHfConfig(R"({"architectures": ["Gemma3ForCausalLM"]})");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FALSE(spec->beside_vision);
  EXPECT_EQ(spec->vocab_size, 262208);
  EXPECT_EQ(spec->hidden_size, 2304);
  EXPECT_EQ(spec->intermediate_size, 9216);
  EXPECT_EQ(spec->num_layers, 26);
  EXPECT_EQ(spec->num_heads, 8);
  EXPECT_EQ(spec->max_position_embeddings, 131072);
  EXPECT_EQ(spec->sliding_window, 4096);
}

TEST(HfVision, TheModelTypeAloneNamesIt) {
  EXPECT_OK(ParseWithout(kGemma3, {"architectures"}));
  EXPECT_OK(ParseWithout(kMistral3, {"model_type"}));
  Json config = Json::parse(kMistral3);
  config["text_config"].erase("model_type");
  EXPECT_OK(ParseHfConfig(config.dump()));
}

TEST(HfVision, TheTypeAndTheEndOfAnswersAreThoseOfTheWhole) {
  EXPECT_EQ(ParseText(kGemma3, {{"torch_dtype", "float32"}, {"eos_token_id", 1}})->eos_token_ids,
            (std::vector<uint32_t>{1, 106}));
  EXPECT_EQ(ParseText(kGemma3, {{"torch_dtype", "float32"}})->checkpoint_dtype,
            runtime::DType::kBf16);
  EXPECT_EQ(ParseText(kGemma3, {{"dtype", "float16"}})->checkpoint_dtype, runtime::DType::kBf16);
  Json within = Json::parse(kGemma3);
  within.erase("torch_dtype");
  within.erase("eos_token_id");
  within["text_config"].update(Json{{"dtype", "float16"}, {"eos_token_id", 7}});
  const auto spec = ParseHfConfig(within.dump());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->checkpoint_dtype, runtime::DType::kF16);
  EXPECT_EQ(spec->eos_token_ids, std::vector<uint32_t>{7});
}

TEST(HfVision, WhetherEmbeddingsAreTiedIsTheTextParts) {
  EXPECT_TRUE(Parse(kMistral3, {{"tie_word_embeddings", true}})->tie_word_embeddings);
  EXPECT_FALSE(Parse(kGemma3, {{"tie_word_embeddings", false}})->tie_word_embeddings);
  // transformers 5 saves Mistral 3 so.
  Json both = Json::parse(kMistral3);
  both["tie_word_embeddings"] = true;
  both["text_config"]["tie_word_embeddings"] = false;
  EXPECT_FALSE(ParseHfConfig(both.dump())->tie_word_embeddings);
}

TEST(HfVision, RepeatsOfTheTextPartsFieldsMustAgree) {
  EXPECT_OK(Parse(kGemma3, {{"hidden_size", 2560}}));
  EXPECT_OK(Parse(kGemma3, {{"vocab_size", nullptr}}));
  ExpectInvalid(StatusOf(kGemma3, {{"hidden_size", 2304}}),
                {"config.json: hidden_size: got 2304", "text_config.hidden_size"});
  // Though it is what text_config means.
  ExpectInvalid(StatusOf(kGemma3, {{"vocab_size", 262208}}), {"vocab_size: got 262208"});
}

TEST(HfVision, RefusesUnknownFieldsByTheirPath) {
  ExpectInvalid(StatusOf(kGemma3, {{"audio_config", Json::object()}}),
                {"config.json: \"audio_config\": got {}"});
  ExpectInvalid(ParseText(kGemma3, {{"moe_layers", 3}}).status(),
                {"config.json: \"text_config.moe_layers\": got 3"});
  // What stands in one place means nothing in the other.
  ExpectInvalid(ParseText(kGemma3, {{"vision_config", Json::object()}}).status(),
                {"\"text_config.vision_config\""});
  ExpectInvalid(StatusOf(kGemma3, {{"query_pre_attn_scalar", 256}}), {"\"query_pre_attn_scalar\""});
  ExpectInvalid(StatusOf(kMistral3, {{"mm_tokens_per_image", 256}}), {"\"mm_tokens_per_image\""});
  ExpectInvalid(StatusOf(kGemma3, {{"spatial_merge_size", 2}}), {"\"spatial_merge_size\""});
}

TEST(HfVision, RefusesValuesOfTheTextPartByTheirPath) {
  ExpectInvalid(ParseText(kGemma3, {{"hidden_size", 0}}).status(),
                {"config.json: text_config.hidden_size: got 0"});
  ExpectInvalid(ParseText(kMistral3, {{"hidden_act", "gelu"}}).status(),
                {"config.json: text_config.hidden_act: got \"gelu\""});
  ExpectInvalid(ParseText(kMistral3, {{"num_key_value_heads", 7}}).status(),
                {"config.json: text_config.num_", "7"});
  ExpectInvalid(ParseText(kGemma3, {{"rope_scaling", {{"rope_type", "dynamic"}}}}).status(),
                {"config.json: text_config.rope_scaling.rope_type: got \"dynamic\""});
  ExpectInvalid(ParseText(kGemma3, {{"sliding_window_pattern", 0}}).status(),
                {"config.json: text_config.sliding_window_pattern: got 0"});
  ExpectInvalid(
      ParseText(kGemma3,
                {{"rope_parameters", {{"sliding_attention", {{"rope_type", "longrope"}}}}}})
          .status(),
      {"config.json: text_config.rope_parameters.sliding_attention.rope_type: got \"longrope\""});
  ExpectInvalid(ParseText(kGemma3, {{"final_logit_softcapping", 30.0}}).status(),
                {"config.json: text_config.final_logit_softcapping: got 30.0"});
  ExpectInvalid(StatusOf(kGemma3, {{"torch_dtype", "int8"}}),
                {"config.json: torch_dtype: got \"int8\""});
  ExpectInvalid(StatusOf(kGemma3, {{"eos_token_id", 262208}}),
                {"config.json: eos_token_id: got 262208"});
}

TEST(HfVision, NeedsATextPartOfItsArchitecture) {
  ExpectInvalid(ParseWithout(kGemma3, {"text_config"}).status(), {"text_config: got nothing"});
  ExpectInvalid(StatusOf(kGemma3, {{"text_config", 3}}), {"text_config: got 3", "an object"});
  // Ministral 3, whose text part is another.
  ExpectError(ParseText(kMistral3, {{"model_type", "ministral3"}}).status(),
              absl::StatusCode::kUnimplemented,
              {"config.json: text_config.model_type: got \"ministral3\"", "'mistral'",
               "Mistral3ForConditionalGeneration"});
  ExpectInvalid(StatusOf(kGemma3, {{"model_type", "gemma3_text"}}),
                {"model_type: got \"gemma3_text\"", "'gemma3'"});
  ExpectError(StatusOf(kGemma3, {{"architectures", {"Gemma3nForConditionalGeneration"}}}),
              absl::StatusCode::kUnimplemented,
              {"Gemma3nForConditionalGeneration", "'Gemma3ForConditionalGeneration'"});
}

// As llm-compressor quantises such models: the layers of the vision part are left alone.
Json Fp8(const std::vector<std::string>& ignored) {
  const Json scheme = {{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}};
  return {{"quant_method", "compressed-tensors"},
          {"format", "float-quantized"},
          {"ignore", ignored},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", scheme}}}}}};
}

TEST(HfVision, QuantisationLeavesTheVisionPartAlone) {
  const Json published = Fp8({"vision_tower.vision_model.encoder.layers.0.self_attn.k_proj",
                              "multi_modal_projector.linear_1", "language_model.lm_head"});
  const auto spec = Parse(kMistral3, {{"quantization_config", published}});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->weight_quantization->granularity, ScaleGranularity::kChannel);
  for (const char* name : {"re:vision_tower.*", "re:^model\\.vision_tower.*", "re:.*lm_head",
                           "model.multi_modal_projector", "re:.*multi_modal_projector.*"})
    EXPECT_OK(Parse(kMistral3, {{"quantization_config", Fp8({name})}})) << name;
  // Layers of the text part have its names in the whole model, in either naming.
  for (const char* name :
       {"language_model.model.layers.1.mlp.down_proj",
        "model.language_model.layers.1.mlp.down_proj", "model.layers.1.mlp.down_proj"}) {
    const auto left = Parse(kMistral3, {{"quantization_config", Fp8({name})}});
    ASSERT_TRUE(left.ok()) << left.status();
    std::vector<uint8_t> expected(static_cast<size_t>(left->num_layers), 0);
    expected[1] = WeightQuantization::BitOf(BlockLinear::kMlpOut);
    EXPECT_EQ(left->weight_quantization->left_out, expected) << name;
  }
  ExpectInvalid(StatusOf(kMistral3, {{"quantization_config",
                                      Fp8({"language_model.model.layers.0.self_attn.q_proj"})}}),
                {"quantization_config.ignore", "model.layers.0.self_attn.q_proj", "both or none"});
}

TEST(HfVision, QuantisationIsSaidOfTheWhole) {
  const Json fp8 = Fp8({"lm_head"});
  ExpectInvalid(ParseText(kMistral3, {{"quantization_config", fp8}}).status(),
                {"config.json: text_config.quantization_config: got", "the same as"});
  Json both = Json::parse(kMistral3);
  both["quantization_config"] = both["text_config"]["quantization_config"] = fp8;
  const auto spec = ParseHfConfig(both.dump());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_TRUE(spec->weight_quantization.has_value());
}

TEST(HfVision, EveryFieldIsReportedByItsPath) {
  const testing::TemporaryDirectory directory;
  Json config = Json::parse(kGemma3);
  config["text_config"].update(Json{
      {"moe_layers", 3}, {"sliding_window", -1}, {"rope_scaling", {{"rope_type", "dynamic"}}}});
  testing::WriteBytes(directory.path() + "/config.json", config.dump());
  ASSERT_OK_AND_ASSIGN(const ConfigReport report, ReportHfConfig(directory.path()));
  EXPECT_EQ(report.architecture, "Gemma3ForConditionalGeneration");
  std::map<std::string, FieldReport> fields;
  for (const FieldReport& field : report.fields) fields.emplace(field.name, field);
  EXPECT_EQ(fields.size(), config.size() + config["text_config"].size());
  EXPECT_EQ(fields.at("text_config").use, FieldUse::kRead);
  EXPECT_EQ(fields.at("vision_config").use, FieldUse::kIgnored);
  EXPECT_EQ(fields.at("mm_tokens_per_image").use, FieldUse::kIgnored);
  EXPECT_EQ(fields.at("text_config.hidden_size").use, FieldUse::kRead);
  EXPECT_EQ(fields.at("text_config.hidden_size").value, "2560");
  EXPECT_EQ(fields.at("text_config.moe_layers").use, FieldUse::kRefused);
  EXPECT_EQ(fields.at("text_config.rope_scaling").use, FieldUse::kRefused);
  EXPECT_EQ(fields.at("text_config.rope_scaling").why.find("text_config.rope_scaling.rope_type"),
            0u);
  // What loading answers.
  EXPECT_EQ(ReadHfConfig(directory.path()).status(), report.errors.front());
}

// What transformers 5 saved.
TEST(HfVision, FixturesParse) {
  const std::string fixtures = testing::SourceDir() + "/tests/fixtures/";
  for (const char* name : {"gemma3-vision-tiny", "mistral3-vision-tiny"}) {
    const auto spec = ReadHfConfig(fixtures + name);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_TRUE(spec->beside_vision);
    EXPECT_EQ(spec->eos_token_ids, std::vector<uint32_t>{2});
    EXPECT_EQ(spec->checkpoint_dtype, runtime::DType::kBf16);
  }
}

}  // namespace
}  // namespace reprise::models
