// SPDX-License-Identifier: Apache-2.0
// Quantized checkpoints that leave single linear layers as they were, in the dialects in which they
// are published: which layers a config's lists mean, how weights are planned then, and what is
// refused.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "models/config/block_linears.h"
#include "models/config/config_report.h"
#include "models/config/hf_config.h"
#include "models/decoder.h"
#include "models/weights/checkpoint.h"
#include "models/weights/model_weights.h"
#include "tests/models/model_files.h"
#include "tests/testing/source_dir.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/tiny_model.h"

namespace reprise::models {
namespace {

using ::reprise::testing::ExpectInvalid;
using ::reprise::testing::TemporaryDirectory;
using Json = nlohmann::json;
using enum BlockLinear;

std::string FixturePath(const std::string& name) {
  return testing::SourceDir() + "/tests/fixtures/" + name;
}

std::string TextOf(const std::string& path) {
  std::ifstream stream(path);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

// A llama of two layers with such a quantization_config.
absl::StatusOr<ModelSpec> ParseQuantized(const Json& quantization, std::string_view beside = {}) {
  Json config = Json::parse(TextOf(FixturePath("fp8-modelopt-tiny/config.json")));
  config["quantization_config"] = quantization;
  return ParseHfConfig(config.dump(), beside);
}

// Each layer that is left out, as "0 2": of layer 0 the third.
std::vector<std::string> LeftOutOf(const absl::StatusOr<ModelSpec>& spec) {
  EXPECT_OK(spec.status());
  std::vector<std::string> all;
  if (!spec.ok()) return all;
  for (int64_t layer = 0; layer < spec->num_layers; ++layer)
    for (int linear = 0; linear < kNumBlockLinears; ++linear)
      if (!spec->IsQuantized(layer, static_cast<BlockLinear>(linear)))
        all.push_back(absl::StrCat(layer, " ", linear));
  return all;
}
using Layers = std::vector<std::string>;

Json Compressed(const Json& ignore) {
  Json config =
      Json::parse(TextOf(FixturePath("fp8-channel-tiny/config.json")))["quantization_config"];
  config["ignore"] = ignore;
  return config;
}
Json Fp8(const Json& layers, const char* field = "modules_to_not_convert") {
  return {{"quant_method", "fp8"}, {field, layers}};
}
Json Awq(const Json& layers) {
  return {{"quant_method", "awq"}, {"bits", 4},         {"group_size", 64},
          {"zero_point", true},    {"version", "gemm"}, {"modules_to_not_convert", layers}};
}
Json Modelopt(const Json& layers, const char* field = "ignore") {
  return {{"quant_method", "modelopt"}, {"quant_algo", "FP8"}, {field, layers}};
}

TEST(LeftOut, CompressedTensorsNamesLayersAndHasExpressions) {
  EXPECT_EQ(LeftOutOf(ParseQuantized(Compressed({"lm_head"}))), Layers());
  EXPECT_EQ(LeftOutOf(ParseQuantized(Compressed({"model.layers.1.mlp.down_proj", "lm_head"}))),
            Layers({"1 3"}));
  EXPECT_EQ(LeftOutOf(ParseQuantized(Compressed({"re:.*layers\\.0\\.self_attn\\..*"}))),
            Layers({"0 0", "0 1"}));
  EXPECT_EQ(LeftOutOf(ParseQuantized(Compressed({"re:model.layers.0.*"}))),
            Layers({"0 0", "0 1", "0 2", "0 3"}));
  // Of one launch in several entries.
  EXPECT_EQ(LeftOutOf(ParseQuantized(
                Compressed({"model.layers.1.mlp.up_proj", "re:.*1\\.mlp\\.gate_proj"}))),
            Layers({"1 2"}));
  // Parts of names are none.
  for (const char* entry : {"model.layers.0.self_attn", "down_proj", "Linear", "re:vision_tower.*",
                            "re:multi_modal_projector.*", "re:self_attn.*",
                            "model.layers.7.mlp.down_proj", "model.layers.0.input_layernorm"})
    EXPECT_EQ(LeftOutOf(ParseQuantized(Compressed({entry}))), Layers()) << entry;
}

TEST(LeftOut, Fp8NamesPartsOfPaths) {
  for (const char* field : {"modules_to_not_convert", "ignored_layers"}) {
    EXPECT_EQ(LeftOutOf(ParseQuantized(Fp8({"model.layers.1.mlp.down_proj"}, field))),
              Layers({"1 3"}));
    EXPECT_EQ(LeftOutOf(ParseQuantized(Fp8({"o_proj"}, field))), Layers({"0 1", "1 1"}));
    EXPECT_EQ(LeftOutOf(ParseQuantized(Fp8({"layers.1", "lm_head"}, field))),
              Layers({"1 0", "1 1", "1 2", "1 3"}));
    EXPECT_EQ(LeftOutOf(ParseQuantized(Fp8({"model.layers.0."}, field))).size(), 4u);
    EXPECT_EQ(LeftOutOf(ParseQuantized(Fp8({"re:.*mlp.*"}, field))),
              Layers({"0 2", "0 3", "1 2", "1 3"}));
    for (const char* entry :
         {"proj", "attn", "yers.1", "", ".", "model.layers.10", "gate", "visual"})
      EXPECT_EQ(LeftOutOf(ParseQuantized(Fp8({entry}, field))), Layers()) << entry;
  }
}

TEST(LeftOut, AwqNamesAnyPart) {
  EXPECT_EQ(LeftOutOf(ParseQuantized(Awq({"mlp"}))), Layers({"0 2", "0 3", "1 2", "1 3"}));
  EXPECT_EQ(LeftOutOf(ParseQuantized(Awq({"own_pr"}))), Layers({"0 3", "1 3"}));
  EXPECT_EQ(LeftOutOf(ParseQuantized(Awq({"visual", "layers.0.self_attn"}))),
            Layers({"0 0", "0 1"}));
  EXPECT_EQ(LeftOutOf(ParseQuantized(Awq(nullptr))), Layers());
}

TEST(LeftOut, ModeloptHasWildcards) {
  for (const char* field : {"exclude_modules", "ignore"}) {
    EXPECT_EQ(LeftOutOf(ParseQuantized(Modelopt({"lm_head", "model.layers.0.self_attn*"}, field))),
              Layers({"0 0", "0 1"}));
    EXPECT_EQ(LeftOutOf(ParseQuantized(Modelopt({"*.down_proj"}, field))), Layers({"0 3", "1 3"}));
    EXPECT_EQ(LeftOutOf(ParseQuantized(Modelopt({"model.layers.1.mlp"}, field))),
              Layers({"1 2", "1 3"}));
    EXPECT_EQ(LeftOutOf(ParseQuantized(Modelopt({"self_attn*", "model.layers.1*.x"}, field))),
              Layers());
  }
}

TEST(LeftOut, OfAllLayersLeavesNoQuantization) {
  for (const Json& config :
       {Compressed({"re:.*"}), Fp8({"model"}), Awq({"proj"}), Modelopt({"*"})}) {
    const auto spec = ParseQuantized(config);
    ASSERT_OK(spec.status());
    EXPECT_FALSE(spec->weight_quantization.has_value()) << config;
    EXPECT_EQ(spec->NumLeftOut(), 0);
  }
}

TEST(LeftOut, IsRefusedByFieldAndLayers) {
  ExpectInvalid(ParseQuantized(Compressed({"model.layers.1.self_attn.k_proj"})).status(),
                {"config.json: quantization_config.ignore: got 'model.layers.1.self_attn.k_proj'",
                 "and 'model.layers.1.self_attn.v_proj' not", "both or none", "run as one"});
  ExpectInvalid(
      ParseQuantized(Fp8({"gate_proj"}, "ignored_layers")).status(),
      {"ignored_layers: got 'model.layers.0.mlp.gate_proj'", "'model.layers.0.mlp.up_proj' not"});
  ExpectInvalid(ParseQuantized(Awq({"up_proj"})).status(),
                {"modules_to_not_convert: got 'model.layers.0.mlp.up_proj'"});
  ExpectInvalid(ParseQuantized(Modelopt({"*q_proj", "*k_proj"}, "exclude_modules")).status(),
                {"exclude_modules: got 'model.layers.0.self_attn.k_proj'",
                 "'model.layers.0.self_attn.v_proj' not"});
  ExpectInvalid(ParseQuantized(Compressed({"re:(?!lm_head).*"})).status(),
                {"quantization_config.ignore: got [\"re:(?!lm_head).*\"]", "regular expressions",
                 "'(?' of another kind"});
  for (const Json& list : {Json("lm_head"), Json::array({1}), Json::array({"lm_head", nullptr})})
    ExpectInvalid(ParseQuantized(Compressed(list)).status(),
                  {"quantization_config.ignore: got", "a list of names of layers"});
}

// ---- dialects ----

TEST(ModeloptConfig, HasScalesOfWeightsAndActivations) {
  const WeightQuantization tensor{.input_scales = true, .means_rounding = true};
  EXPECT_EQ(ParseQuantized(Modelopt({"lm_head"}))->weight_quantization, tensor);
  Json config = Json::parse(TextOf(FixturePath("fp8-modelopt-tiny/config.json")));
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseHfConfig(config.dump()));
  EXPECT_EQ(LeftOutOf(spec), Layers({"0 0", "0 1"}));
  WeightQuantization of_fixture = *spec.weight_quantization;
  of_fixture.left_out.clear();
  EXPECT_EQ(of_fixture, tensor);
  EXPECT_EQ(spec.kv_cache_dtype, std::nullopt);
  Json cached = Modelopt({"lm_head"});
  cached["kv_cache_quant_algo"] = "FP8";
  EXPECT_EQ(ParseQuantized(cached)->kv_cache_dtype, runtime::DType::kE4m3);
  cached["kv_cache_quant_algo"] = nullptr;
  cached["kv_cache_scheme"] = {{"dynamic", false}, {"num_bits", 8}, {"type", "float"}};
  EXPECT_EQ(ParseQuantized(cached)->kv_cache_dtype, runtime::DType::kE4m3);
}

TEST(ModeloptConfig, IsRefusedByField) {
  const auto refuse = [](const char* field, const Json& value,
                         std::initializer_list<const char*> parts) {
    Json config = Modelopt({"lm_head"});
    config[field] = value;
    ExpectInvalid(ParseQuantized(config).status(), parts);
  };
  refuse("quant_algo", "NVFP4", {"quantization_config.quant_algo: got \"NVFP4\"", "'FP8'"});
  refuse("quant_algo", nullptr, {"quantization_config.quant_algo: got nothing"});
  refuse("kv_cache_quant_algo", "NVFP4", {"kv_cache_quant_algo: got \"NVFP4\"", "'FP8', or null"});
  refuse("surprise", 1, {"quantization_config.surprise: got 1"});
  refuse(
      "config_groups",
      {{"group_0", {{"targets", {"Linear"}}, {"weights", {{"num_bits", 4}, {"type", "float"}}}}}},
      {"config_groups.group_0.weights.num_bits: got 4"});
}

constexpr char kBeside[] = R"({"producer": {"name": "modelopt", "version": "0.23.0"},
  "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8",
                   "exclude_modules": ["lm_head", "model.layers.1.mlp*"]}})";

TEST(HfQuantConfig, SaysWhatTheConfigDoesNot) {
  const auto spec = ParseQuantized(nullptr, kBeside);
  EXPECT_EQ(LeftOutOf(spec), Layers({"1 2", "1 3"}));
  EXPECT_TRUE(spec->weight_quantization->input_scales);
  EXPECT_EQ(spec->kv_cache_dtype, runtime::DType::kE4m3);
  // The config's own word counts.
  EXPECT_EQ(LeftOutOf(ParseQuantized(Modelopt({"lm_head"}), kBeside)), Layers());
  Json cache = Json::parse(kBeside);
  cache["quantization"]["quant_algo"] = nullptr;
  const auto plain = ParseQuantized(nullptr, cache.dump());
  ASSERT_OK(plain.status());
  EXPECT_FALSE(plain->weight_quantization.has_value());
  EXPECT_EQ(plain->kv_cache_dtype, runtime::DType::kE4m3);
}

TEST(HfQuantConfig, IsRefusedByItsName) {
  const auto refuse = [](const Json& changes, std::initializer_list<const char*> parts) {
    Json beside = Json::parse(kBeside);
    beside.merge_patch(changes);
    ExpectInvalid(ParseQuantized(nullptr, beside.dump()).status(), parts);
  };
  refuse({{"quantization", {{"quant_algo", "W4A8_AWQ"}}}},
         {"hf_quant_config.json: quantization.quant_algo: got \"W4A8_AWQ\""});
  refuse({{"quantization", {{"group_size", 16}}}},
         {"hf_quant_config.json: quantization.group_size: got 16"});
  refuse({{"quantization", {{"exclude_modules", {"*.q_proj"}}}}},
         {"hf_quant_config.json: quantization.exclude_modules: got", "'model.layers.0.self_attn"});
  refuse({{"quantization", "FP8"}}, {"hf_quant_config.json: quantization: got \"FP8\"", "object"});
  refuse({{"surprise", 1}}, {"hf_quant_config.json: surprise: got 1"});
  ExpectInvalid(ParseQuantized(nullptr, "[]").status(), {"hf_quant_config.json: got array"});
}

TEST(HfQuantConfig, IsReadBesideTheConfig) {
  const TemporaryDirectory directory;
  Json config = Json::parse(TextOf(FixturePath("fp8-modelopt-tiny/config.json")));
  config.erase("quantization_config");
  testing::WriteBytes(directory.path() + "/config.json", config.dump());
  ASSERT_OK_AND_ASSIGN(const ModelSpec plain, ReadHfConfig(directory.path()));
  EXPECT_FALSE(plain.weight_quantization.has_value());
  testing::WriteBytes(directory.path() + "/hf_quant_config.json", kBeside);
  EXPECT_EQ(LeftOutOf(ReadHfConfig(directory.path())), Layers({"1 2", "1 3"}));
  ASSERT_OK_AND_ASSIGN(const ConfigReport report, ReportHfConfig(directory.path()));
  EXPECT_TRUE(report.errors.empty());
  EXPECT_EQ(report.spec.NumLeftOut(), 2);
  testing::WriteBytes(directory.path() + "/hf_quant_config.json", "");
  ExpectInvalid(ReadHfConfig(directory.path()).status(), {"hf_quant_config.json: "});
}

TEST(FbgemmConfig, HasAScaleForEachOutput) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ReadHfConfig(FixturePath("fp8-fbgemm-tiny")));
  EXPECT_EQ(LeftOutOf(spec), Layers({"1 3"}));
  WeightQuantization weights = *spec.weight_quantization;
  weights.left_out.clear();
  EXPECT_EQ(weights, (WeightQuantization{.granularity = ScaleGranularity::kChannel,
                                         .input_scales = true,
                                         .means_rounding = true,
                                         .input_scale_name = "input_scale_ub"}));
  const auto status = [](const Json& changes) {
    Json config = {{"quant_method", "fbgemm_fp8"}, {"activation_scale_ub", 1200.0}};
    config.update(changes);
    return ParseQuantized(config).status();
  };
  EXPECT_OK(status(Json::object()));
  EXPECT_OK(status({{"modules_to_not_convert", {"model.layers.0.self_attn", "lm_head"}}}));
  ExpectInvalid(status({{"activation_scale_ub", -1}}), {"activation_scale_ub: got -1"});
  ExpectInvalid(status({{"surprise", 1}}), {"quantization_config.surprise"});
}

// ---- weights ----

kernels::WeightFormat FormatOf(const WeightPlan& plan, const std::string& tensor) {
  for (const WeightSlot& slot : plan.slots())
    if (slot.name == tensor) return plan.regions()[slot.region].format;
  ADD_FAILURE() << tensor << " is not declared";
  return kernels::WeightFormat::kNone;
}

TEST(LeftOutWeights, ArePlannedInTheDtypeAndTheRestInItsFormat) {
  const struct {
    const char* fixture;
    kernels::WeightFormat format;
    const char* plain;
    const char* quantized;
  } cases[] = {
      {"fp8-modelopt-tiny", kernels::WeightFormat::kE4m3, "model.layers.0.self_attn.k_proj.weight",
       "model.layers.1.self_attn.k_proj.weight"},
      {"fp8-fbgemm-tiny", kernels::WeightFormat::kE4m3, "model.layers.1.mlp.down_proj.weight",
       "model.layers.0.mlp.down_proj.weight"},
      {"int4-ignore-tiny", kernels::WeightFormat::kInt4, "model.layers.1.self_attn.o_proj.weight",
       "model.layers.0.self_attn.o_proj.weight_packed"}};
  for (const auto& of : cases) {
    SCOPED_TRACE(of.fixture);
    ASSERT_OK_AND_ASSIGN(ModelSpec spec, ReadHfConfig(FixturePath(of.fixture)));
    ASSERT_OK_AND_ASSIGN(const auto decoder, Decoder::Create(spec));
    const WeightPlan plan = decoder->PlanWeights(runtime::DType::kF16, std::nullopt,
                                                 kernels::WeightLayout::kPackedPairs);
    EXPECT_EQ(FormatOf(plan, of.plain), kernels::WeightFormat::kF16);
    EXPECT_EQ(FormatOf(plan, of.quantized), of.format);
    ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(FixturePath(of.fixture)));
    EXPECT_TRUE(ModelWeights::Check(plan, *checkpoint).empty());
    // By another config the same file is refused.
    spec.weight_quantization->left_out.clear();
    ASSERT_OK_AND_ASSIGN(const auto all, Decoder::Create(spec));
    EXPECT_FALSE(ModelWeights::Check(all->PlanWeights(runtime::DType::kF16), *checkpoint).empty());
  }
}

// The names that lists are held against are those that layers declare.
TEST(BlockLinears, HaveTheNamesOfTheTensorsThatLayersDeclare) {
  for (const auto& entry :
       std::filesystem::directory_iterator(testing::SourceDir() + "/tests/fixtures")) {
    SCOPED_TRACE(entry.path());
    ASSERT_OK_AND_ASSIGN(ModelSpec spec, ReadHfConfig(entry.path().string()));
    spec.weight_quantization.reset();  // all are "<layer>.weight"
    ASSERT_OK_AND_ASSIGN(const auto decoder, Decoder::Create(spec));
    const WeightPlan plan = decoder->PlanWeights(runtime::DType::kBf16);
    std::set<std::string> declared, named;
    for (const WeightSlot& slot : plan.slots()) {
      const bool matrix = slot.shape.size() == 2 && absl::EndsWith(slot.name, ".weight");
      const bool router =
          absl::EndsWith(slot.name, ".gate.weight") || absl::StrContains(slot.name, ".router.");
      if (matrix && !router && absl::StartsWith(slot.name, "model.layers."))
        declared.insert(std::string(absl::StripSuffix(slot.name, ".weight")));
    }
    for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
      for (const NamedLinear& linear : LinearsOfBlock(spec, layer))
        named.insert(linear.names.begin(), linear.names.end());
      for (const std::string& name : ExpertNamesOfBlock(spec, layer)) named.insert(name);
    }
    EXPECT_EQ(named, declared);
  }
}

}  // namespace
}  // namespace reprise::models
