// SPDX-License-Identifier: Apache-2.0
// longrope, and the part of each head that Phi-3 and Phi-4 turn, as both dialects say them: which
// factors a config chooses, what cos and sin are multiplied by, and what is refused.
#include <gtest/gtest.h>

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

using ::reprise::testing::ExpectInvalid;
using Json = nlohmann::json;

// As published with Phi-4-mini-instruct, transformers 4, but for the factors.
constexpr char kPhi4Mini[] = R"({
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
  "rope_scaling": null, "rope_theta": 10000.0, "sliding_window": 262144,
  "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.45.0",
  "use_cache": true, "vocab_size": 200064})";

std::vector<double> Factors(size_t count, double first, double step) {
  std::vector<double> factors;
  for (size_t i = 0; i < count; ++i) factors.push_back(first + step * static_cast<double>(i));
  return factors;
}

// rope_scaling of transformers 4.
Json LongRope(size_t pairs = 48) {
  return {{"type", "longrope"},
          {"short_factor", Factors(pairs, 1.0, 0.01)},
          {"long_factor", Factors(pairs, 1.0, 0.7)}};
}

absl::StatusOr<ModelSpec> WithRope(const Json& scaling, Json changes = Json::object()) {
  changes["rope_scaling"] = scaling;
  return Parse(kPhi4Mini, changes);
}

// LongRope with another value of one field; null: without it.
absl::Status StatusWith(const char* name, const Json& value) {
  Json rope = LongRope();
  rope[name] = value;
  return WithRope(rope).status();
}

TEST(HfLongRope, ReadsAPublishedConfig) {
  const auto spec = WithRope(LongRope());
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->rotary_dim, 96);
  EXPECT_EQ(spec->head_dim, 128);
  EXPECT_EQ(spec->sliding_window, 0);
  EXPECT_EQ(spec->rope.scaling, RopeScaling::kLongRope);
  EXPECT_EQ(spec->rope.theta, 10000.0);
  EXPECT_EQ(spec->rope.original_max_position_embeddings, 4096);
  EXPECT_EQ(spec->rope.factor, 32.0);
  // The square root of 1 + ln(32) / ln(4096).
  EXPECT_DOUBLE_EQ(spec->rope.attention_factor, std::sqrt(17.0 / 12.0));
  EXPECT_EQ(spec->rope.short_factors, Factors(48, 1.0, 0.01));
  EXPECT_EQ(spec->rope.long_factors, Factors(48, 1.0, 0.7));
  EXPECT_TRUE(spec->rope.takes_long_factors);
  const std::vector<float> frequencies = RopeInverseFrequencies(*spec);
  ASSERT_EQ(frequencies.size(), 64u);
  for (size_t i = 0; i < 48; ++i) {
    const double plain = std::pow(10000.0, -static_cast<double>(i) / 48.0);
    EXPECT_FLOAT_EQ(frequencies[i],
                    static_cast<float>(plain / (1.0 + 0.7 * static_cast<double>(i))));
  }
  for (size_t i = 48; i < 64; ++i) EXPECT_EQ(frequencies[i], 0.0f);
}

// Phi-3-mini-128k: whole heads, and the older name that its first release had.
TEST(HfLongRope, IsNamedSuInOlderConfigs) {
  Json rope = LongRope(64);
  const Json whole = {{"partial_rotary_factor", nullptr}};
  const auto spec = WithRope(rope, whole);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->rotary_dim, 0);
  for (const Json& names : {Json{{"type", "su"}}, Json{{"rope_type", "su"}},
                            Json{{"type", "su"}, {"rope_type", "longrope"}}}) {
    rope.erase("type");
    rope.update(names);
    const auto old = WithRope(rope, whole);
    ASSERT_TRUE(old.ok()) << old.status();
    EXPECT_EQ(old->rope, spec->rope);
  }
  rope["type"] = "yarn";
  ExpectInvalid(WithRope(rope, whole).status(), {"rope_scaling.type", "the same as rope_type"});
}

TEST(HfLongRope, BothDialectsGiveTheSameSpec) {
  const auto four = WithRope(LongRope());
  Json parameters = LongRope();
  parameters.erase("type");
  parameters.update({{"rope_type", "longrope"},
                     {"rope_theta", 10000.0},
                     {"partial_rotary_factor", 0.75},
                     {"original_max_position_embeddings", 4096}});
  Json five = Json::parse(kPhi4Mini);
  for (const char* name : {"rope_theta", "rope_scaling", "partial_rotary_factor"}) five.erase(name);
  five["rope_parameters"] = parameters;
  for (const bool twice : {true, false}) {
    if (!twice) five.erase("original_max_position_embeddings");
    const auto spec = ParseHfConfig(five.dump());
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->rope, four->rope);
    EXPECT_EQ(spec->rotary_dim, 96);
  }
}

TEST(HfLongRope, FixturesReadTheSameInBothDialects) {
  for (const char* name : {"phi3-longrope-tiny", "phi4-mini-tiny"}) {
    SCOPED_TRACE(name);
    const std::string directory = testing::SourceDir() + "/tests/fixtures/" + name;
    std::ifstream stream(directory + "/config_transformers5.json");
    const auto four = ReadHfConfig(directory);
    const auto five = ParseHfConfig(std::string(std::istreambuf_iterator<char>(stream), {}));
    ASSERT_TRUE(four.ok()) << four.status();
    ASSERT_TRUE(five.ok()) << five.status();
    EXPECT_EQ(five->rope, four->rope);
    EXPECT_EQ(five->rotary_dim, four->rotary_dim);
    EXPECT_EQ(NumParameters(*five), NumParameters(*four));
    const bool is_long = std::string(name) == "phi3-longrope-tiny";
    EXPECT_EQ(four->rope.takes_long_factors, is_long);
    EXPECT_EQ(four->rotary_dim, is_long ? 0 : 12);
    EXPECT_DOUBLE_EQ(four->rope.attention_factor, is_long ? std::sqrt(1.6) : 1.25);
  }
}

TEST(HfLongRope, ContextsThatAreNoLongerThanTheOriginalTakeShortFactors) {
  const auto same = WithRope(LongRope(), {{"max_position_embeddings", 4096}});
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_FALSE(same->rope.takes_long_factors);
  EXPECT_EQ(same->rope.attention_factor, 1.0);
  EXPECT_FLOAT_EQ(RopeInverseFrequencies(*same)[1],
                  static_cast<float>(std::pow(10000.0, -1.0 / 48.0) / 1.01));
  EXPECT_TRUE(WithRope(LongRope(), {{"max_position_embeddings", 4097}})->rope.takes_long_factors);
  const auto shorter = WithRope(LongRope(), {{"max_position_embeddings", 2048}});
  ASSERT_TRUE(shorter.ok()) << shorter.status();
  EXPECT_FALSE(shorter->rope.takes_long_factors);
  EXPECT_EQ(shorter->rope.attention_factor, 1.0);
}

TEST(HfLongRope, AConfigMayNameItsFactors) {
  Json rope = LongRope();
  rope["factor"] = 16.0;
  EXPECT_DOUBLE_EQ(WithRope(rope)->rope.attention_factor,
                   std::sqrt(1.0 + std::log(16.0) / std::log(4096.0)));
  rope["factor"] = 0.5;
  EXPECT_EQ(WithRope(rope)->rope.attention_factor, 1.0);
  rope["attention_factor"] = 1.75;
  EXPECT_EQ(WithRope(rope)->rope.attention_factor, 1.75);
}

TEST(HfLongRope, AbsenceMeansWhatTransformersMeansByIt) {
  Json config = Json::parse(kPhi4Mini);
  config.update({{"rope_scaling", LongRope(64)}, {"max_position_embeddings", 8192}});
  for (const char* name : {"original_max_position_embeddings", "partial_rotary_factor"})
    config.erase(name);
  const auto phi = ParseHfConfig(config.dump());
  ASSERT_TRUE(phi.ok()) << phi.status();
  EXPECT_EQ(phi->rope.original_max_position_embeddings, 4096);
  EXPECT_EQ(phi->rotary_dim, 0);
  // Others have no such number of their own.
  config.update({{"architectures", {"LlamaForCausalLM"}}, {"model_type", "llama"}});
  for (const char* name : {"embd_pdrop", "resid_pdrop", "auto_map", "full_attn_mod",
                           "interpolate_factor", "lm_head_bias", "sliding_window"})
    config.erase(name);
  const auto llama = ParseHfConfig(config.dump());
  ASSERT_TRUE(llama.ok()) << llama.status();
  EXPECT_EQ(llama->rope.original_max_position_embeddings, 8192);
  EXPECT_FALSE(llama->rope.takes_long_factors);
  config["original_max_position_embeddings"] = 1024;
  EXPECT_TRUE(ParseHfConfig(config.dump())->rope.takes_long_factors);
  // But what they turn is not theirs to say.
  config["partial_rotary_factor"] = 0.75;
  ExpectInvalid(ParseHfConfig(config.dump()).status(),
                {"partial_rotary_factor: got 0.75, allowed 1 or absent"});
}

TEST(HfLongRope, RefusesListsOfAnotherLengthOrOfNoNumbers) {
  for (const char* name : {"short_factor", "long_factor"}) {
    SCOPED_TRACE(name);
    const std::string field = std::string("rope_scaling.") + name + ": got ";
    ExpectInvalid(StatusWith(name, nullptr), {(field + "nothing").c_str(), "a list of 48"});
    ExpectInvalid(StatusWith(name, 2.0), {(field + "2.0").c_str(), "a list of 48"});
    for (const size_t count : {size_t{0}, size_t{47}, size_t{49}, size_t{64}})
      ExpectInvalid(StatusWith(name, Factors(count, 1.0, 0.1)),
                    {field.c_str(), ("these are " + std::to_string(count)).c_str()});
    for (const Json& bad : {Json(0), Json(-1.5), Json("1"), Json(true), Json(nullptr)}) {
      Json list = Factors(48, 1.0, 0.1);
      list[17] = bad;
      ExpectInvalid(StatusWith(name, list), {field.c_str(), ("one is " + bad.dump()).c_str()});
    }
  }
}

TEST(HfLongRope, RefusesWhatItWouldNotCompute) {
  for (const char* name : {"factor", "attention_factor", "original_max_position_embeddings"}) {
    for (const Json& bad : {Json(0), Json(-1.0), Json("1"), Json(true)})
      ExpectInvalid(StatusWith(name, bad), {"rope_scaling.", name, "got"});
  }
  // The logarithm of the original length divides.
  ExpectInvalid(WithRope(LongRope(), {{"original_max_position_embeddings", 1}}).status(),
                {"config.json: original_max_position_embeddings: got 1"});
  ExpectInvalid(StatusWith("original_max_position_embeddings", 8192),
                {"rope_scaling.original_max_position_embeddings: got 8192", "4096, as elsewhere"});
  ExpectInvalid(StatusWith("beta_fast", 32), {"beta_fast", "only beside rope_type 'yarn'"});
  // As Phi-3.5-MoE has it.
  ExpectInvalid(StatusWith("short_mscale", 1.2), {"short_mscale"});
  ExpectInvalid(WithRope({{"type", "linear"}, {"factor", 2.0}, {"short_factor", {1.0}}}).status(),
                {"rope_scaling.short_factor", "only beside rope_type 'longrope'"});
  // It counts for longrope, and what it would mean here depends on who reads it.
  ExpectInvalid(WithRope({{"type", "linear"}, {"factor", 2.0}}).status(),
                {"original_max_position_embeddings: got 4096", "only beside rope_type 'longrope'"});
  for (const char* name : {"full_attn_mod", "interpolate_factor"})
    ExpectInvalid(WithRope(LongRope(), {{name, 2}}).status(), {name, "got 2"});
  ExpectInvalid(WithRope(LongRope(), {{"lm_head_bias", true}}).status(), {"lm_head_bias"});
}

TEST(HfPartialRotaryFactor, LeavesPairsOfAHead) {
  const auto with = [](const Json& factor) {
    return Parse(kPhi4Mini, {{"partial_rotary_factor", factor}});
  };
  EXPECT_EQ(with(0.5)->rotary_dim, 64);
  EXPECT_EQ(with(0.02)->rotary_dim, 2);
  EXPECT_EQ(with(0.6)->rotary_dim, 76);  // 76.8, as transformers rounds it
  EXPECT_EQ(with(1)->rotary_dim, 0);
  EXPECT_EQ(with(nullptr)->rotary_dim, 0);
  for (const Json& bad : {Json(0), Json(-0.5), Json(1.5), Json("0.5"), Json(0.01), Json(0.4)})
    ExpectInvalid(with(bad).status(), {("partial_rotary_factor: got " + bad.dump()).c_str()});
  ExpectInvalid(with(0.4).status(), {"an even number, 2 at least, of head_dim (128)"});
}

TEST(HfPartialRotaryFactor, MustAgreeWhereItIsSaidTwice) {
  Json rope = {{"rope_type", "default"}, {"rope_theta", 10000.0}, {"partial_rotary_factor", 0.75}};
  EXPECT_EQ(Parse(kPhi4Mini, {{"rope_parameters", rope}})->rotary_dim, 96);
  const auto inside =
      Parse(kPhi4Mini, {{"rope_parameters", rope}, {"partial_rotary_factor", nullptr}});
  ASSERT_TRUE(inside.ok()) << inside.status();
  EXPECT_EQ(inside->rotary_dim, 96);
  rope["partial_rotary_factor"] = 0.5;
  ExpectInvalid(Parse(kPhi4Mini, {{"rope_parameters", rope}}).status(),
                {"rope_parameters.partial_rotary_factor: got 0.5", "0.75 or absent"});
}

}  // namespace
}  // namespace reprise::models
