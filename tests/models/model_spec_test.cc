// SPDX-License-Identifier: Apache-2.0
// What follows from a spec's numbers, and which specs are refused.
#include "models/config/model_spec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "tests/models/model_files.h"

namespace reprise::models {
namespace {

using ::reprise::testing::ExpectInvalid;

ModelSpec SmallSpec() {
  ModelSpec spec;
  spec.architecture = "llama";
  spec.vocab_size = 11;
  spec.hidden_size = 6;
  spec.intermediate_size = 10;
  spec.num_layers = 3;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 8;
  spec.max_position_embeddings = 32;
  spec.attention_multiplier = 0.5;
  return spec;
}

TEST(ModelSpec, AcceptsASmallModel) { EXPECT_TRUE(ValidateModelSpec(SmallSpec()).ok()); }

TEST(ModelSpec, RefusesSizesThatAreNotPositive) {
  for (const int64_t bad : {int64_t{0}, int64_t{-5}, std::numeric_limits<int64_t>::max()}) {
    int64_t ModelSpec::*const sizes[] = {
        &ModelSpec::vocab_size,        &ModelSpec::hidden_size,
        &ModelSpec::intermediate_size, &ModelSpec::num_layers,
        &ModelSpec::num_heads,         &ModelSpec::num_kv_heads,
        &ModelSpec::head_dim,          &ModelSpec::max_position_embeddings};
    for (const auto size : sizes) {
      ModelSpec spec = SmallSpec();
      spec.*size = bad;
      ExpectInvalid(ValidateModelSpec(spec), {"got", "allowed 1 to"});
    }
  }
}

TEST(ModelSpec, RefusesHeadsThatDoNotDivide) {
  ModelSpec spec = SmallSpec();
  spec.num_kv_heads = 3;
  ExpectInvalid(ValidateModelSpec(spec), {"num_heads: got 4", "a multiple of num_kv_heads (3)"});
}

TEST(ModelSpec, RefusesMxfp4OfExpertsThatAreNotPublishedInIt) {
  for (const char* architecture : {"llama", "mixtral", "granitemoe"}) {
    ModelSpec spec = SmallSpec();
    spec.architecture = architecture;
    spec.mxfp4_experts = true;
    ExpectInvalid(ValidateModelSpec(spec), {"mxfp4_experts: got true", architecture});
  }
}

TEST(ModelSpec, RefusesAnOddHeadDim) {
  ModelSpec spec = SmallSpec();
  spec.head_dim = 7;
  ExpectInvalid(ValidateModelSpec(spec), {"head_dim: got 7", "even"});
}

TEST(ModelSpec, RefusesProductsThatOverflow) {
  ModelSpec spec = SmallSpec();
  spec.num_heads = spec.num_kv_heads = 1 << 30;
  spec.head_dim = 1 << 30;
  ExpectInvalid(ValidateModelSpec(spec), {"head_dim", "int32"});
}

TEST(ModelSpec, RefusesNumbersThatAreNotFiniteAndPositive) {
  double ModelSpec::*const numbers[] = {
      &ModelSpec::rms_norm_eps, &ModelSpec::embedding_multiplier, &ModelSpec::attention_multiplier,
      &ModelSpec::residual_multiplier, &ModelSpec::logits_scaling};
  for (const double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    for (const auto number : numbers) {
      ModelSpec spec = SmallSpec();
      spec.*number = bad;
      ExpectInvalid(ValidateModelSpec(spec), {"a finite number > 0"});
    }
    ModelSpec spec = SmallSpec();
    spec.rope.theta = bad;
    ExpectInvalid(ValidateModelSpec(spec), {"rope.theta"});
  }
}

TEST(ModelSpec, RefusesCapsAndOffsetsThatAreNotFiniteOrBelowZero) {
  double ModelSpec::*const numbers[] = {&ModelSpec::attention_softcap, &ModelSpec::logits_softcap,
                                        &ModelSpec::norm_offset};
  for (const auto number : numbers) {
    for (const double bad : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
      ModelSpec spec = SmallSpec();
      spec.*number = bad;
      ExpectInvalid(ValidateModelSpec(spec), {"0 (none) or a finite number > 0"});
    }
    ModelSpec spec = SmallSpec();
    spec.*number = 2.5;
    EXPECT_TRUE(ValidateModelSpec(spec).ok());
  }
}

TEST(ModelSpec, RefusesANormOverAllHeadsWhereHeadsAreNotNormed) {
  ModelSpec spec = SmallSpec();
  spec.whole_qk_norm = true;
  ExpectInvalid(ValidateModelSpec(spec), {"whole_qk_norm: got true without qk_norm"});
  spec.qk_norm = true;
  EXPECT_TRUE(ValidateModelSpec(spec).ok());
}

TEST(ModelSpec, APartOfEachHeadMayBeTurned) {
  ModelSpec spec = SmallSpec();
  spec.head_dim = 8;
  spec.rotary_dim = 4;
  ASSERT_TRUE(ValidateModelSpec(spec).ok());
  ModelSpec narrow = spec;
  narrow.head_dim = 4;
  narrow.rotary_dim = 0;
  std::vector<float> wanted = RopeInverseFrequencies(narrow);
  wanted.resize(4, 0.0f);
  EXPECT_EQ(RopeInverseFrequencies(spec), wanted);
  for (const int64_t bad : {-2, 3, 10}) {
    spec.rotary_dim = bad;
    ExpectInvalid(ValidateModelSpec(spec), {"rotary_dim: got", "to head_dim (8)"});
  }
  spec.rotary_dim = 4;
  spec.qk_norm = true;
  ExpectInvalid(ValidateModelSpec(spec), {"rotary_dim: got 4", "biases or norms"});
  spec.qk_norm = false;
  spec.qkv_bias = true;
  ExpectInvalid(ValidateModelSpec(spec), {"rotary_dim: got 4", "biases or norms"});
  // Of a scaled rope, too: as of a head that has no more than that.
  spec.qkv_bias = false;
  spec.rope = narrow.rope = {
      .scaling = RopeScaling::kYarn, .factor = 4.0, .original_max_position_embeddings = 64};
  EXPECT_TRUE(ValidateModelSpec(spec).ok());
  wanted = RopeInverseFrequencies(narrow);
  wanted.resize(4, 0.0f);
  EXPECT_EQ(RopeInverseFrequencies(spec), wanted);
}

TEST(ModelSpec, ARopeOfLayersThatSlideIsASecondTable) {
  ModelSpec spec = SmallSpec();
  EXPECT_EQ(spec.NumRopeTables(), 1);
  const std::vector<float> one = RopeInverseFrequencies(spec);
  spec.sliding_rope = RopeSpec{.theta = 500.0};
  EXPECT_TRUE(ValidateModelSpec(spec).ok());
  EXPECT_EQ(spec.NumRopeTables(), 2);
  EXPECT_EQ(spec.RopeTableOf(0), 1);  // no list: all layers slide
  spec.slides.assign(static_cast<size_t>(spec.num_layers), false);
  spec.slides[1] = true;
  EXPECT_EQ(spec.RopeTableOf(0), 0);
  EXPECT_EQ(spec.RopeTableOf(1), 1);
  ModelSpec other = SmallSpec();
  other.rope.theta = 500.0;
  std::vector<float> both = one;
  for (const float frequency : RopeInverseFrequencies(other)) both.push_back(frequency);
  EXPECT_EQ(RopeInverseFrequencies(spec), both);
  spec.sliding_rope->theta = 0;
  ExpectInvalid(ValidateModelSpec(spec), {"sliding_rope.theta: got 0"});
  spec.sliding_rope = RopeSpec{.scaling = RopeScaling::kLinear, .factor = 0.5};
  ExpectInvalid(ValidateModelSpec(spec), {"rope.factor: got 0.5"});
}

TEST(ModelSpec, RefusesRopeBandsThatAreReversed) {
  ModelSpec spec = SmallSpec();
  spec.rope.scaling = RopeScaling::kLlama3;
  spec.rope.factor = 8;
  EXPECT_TRUE(ValidateModelSpec(spec).ok());
  spec.rope.low_freq_factor = 4;
  ExpectInvalid(ValidateModelSpec(spec), {"rope.high_freq_factor: got 4", "low_freq_factor (4)"});
  spec.rope.low_freq_factor = 1;
  spec.rope.factor = 0.5;
  ExpectInvalid(ValidateModelSpec(spec), {"rope.factor: got 0.5", ">= 1"});
}

TEST(ModelSpec, RefusesYarnNumbersThatMeanNothing) {
  ModelSpec good = SmallSpec();
  good.rope.scaling = RopeScaling::kYarn;
  good.rope.factor = 4;
  EXPECT_TRUE(ValidateModelSpec(good).ok());
  const struct {
    double RopeSpec::*field;
    double bad;
    const char* message;
  } cases[] = {
      {&RopeSpec::factor, 0.5, "rope.factor: got 0.5"},
      {&RopeSpec::theta, 1.0, "rope.theta: got 1"},
      {&RopeSpec::attention_factor, 0.0, "rope.attention_factor: got 0"},
      {&RopeSpec::attention_factor, std::nan(""), "rope.attention_factor: got nan"},
      {&RopeSpec::beta_slow, -1.0, "rope.beta_slow: got -1"},
      {&RopeSpec::beta_fast, 0.5, "rope.beta_fast: got 0.5"},
  };
  for (const auto& c : cases) {
    ModelSpec spec = good;
    spec.rope.*c.field = c.bad;
    ExpectInvalid(ValidateModelSpec(spec), {c.message});
  }
  good.rope.original_max_position_embeddings = 0;
  ExpectInvalid(ValidateModelSpec(good), {"rope.original_max_position_embeddings: got 0"});
}

RopeSpec LongRope(std::vector<double> short_factors, std::vector<double> long_factors) {
  return {.scaling = RopeScaling::kLongRope,
          .factor = 8.0,
          .original_max_position_embeddings = 32,
          .attention_factor = 1.25,
          .short_factors = std::move(short_factors),
          .long_factors = std::move(long_factors)};
}

TEST(ModelSpec, RefusesLongRopeNumbersThatMeanNothing) {
  ModelSpec good = SmallSpec();
  good.head_dim = 8;
  good.rope = LongRope({1, 2, 3, 4}, {5, 6, 7, 8});
  EXPECT_TRUE(ValidateModelSpec(good).ok());
  for (std::vector<double> RopeSpec::*const list :
       {&RopeSpec::short_factors, &RopeSpec::long_factors}) {
    const char* const name =
        list == &RopeSpec::short_factors ? "rope.short_factor: got" : "rope.long_factor: got";
    for (const double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
      ModelSpec spec = good;
      (spec.rope.*list)[2] = bad;
      ExpectInvalid(ValidateModelSpec(spec), {name, "finite numbers > 0"});
    }
    ModelSpec spec = good;
    (spec.rope.*list).pop_back();
    ExpectInvalid(ValidateModelSpec(spec), {name, "3 numbers", "4, one for each pair"});
  }
  // Of what is turned, not of the head.
  ModelSpec part = good;
  part.rotary_dim = 6;
  ExpectInvalid(ValidateModelSpec(part), {"rope.short_factor: got 4 numbers, allowed 3"});
  part.rope = LongRope({1, 2, 3}, {4, 5, 6});
  EXPECT_TRUE(ValidateModelSpec(part).ok());
  for (const double bad : {0.0, std::nan("")}) {
    ModelSpec spec = good;
    spec.rope.attention_factor = bad;
    ExpectInvalid(ValidateModelSpec(spec), {"rope.attention_factor: got"});
  }
  good.rope.original_max_position_embeddings = 0;
  ExpectInvalid(ValidateModelSpec(good), {"rope.original_max_position_embeddings: got 0"});
}

// One kernel multiplies both tables by one factor.
TEST(ModelSpec, RefusesLongRopeBesideARopeOfLayersThatSlide) {
  ModelSpec spec = SmallSpec();
  spec.head_dim = 8;
  spec.rope = LongRope({1, 2, 3, 4}, {5, 6, 7, 8});
  spec.sliding_rope = RopeSpec{.theta = 500.0, .attention_factor = 1.25};
  ExpectInvalid(ValidateModelSpec(spec), {"rope.scaling: got longrope"});
  std::swap(spec.rope, *spec.sliding_rope);
  ExpectInvalid(ValidateModelSpec(spec), {"rope.scaling: got longrope"});
}

TEST(ModelSpec, RefusesAWindowThatIsNoLength) {
  for (const int64_t bad : {int64_t{-1}, int64_t{1} << 31}) {
    ModelSpec spec = SmallSpec();
    spec.sliding_window = bad;
    ExpectInvalid(ValidateModelSpec(spec), {"sliding_window: got", "0 (none)"});
  }
}

TEST(ModelSpec, RefusesAListOfSlidingLayersOfAnotherLength) {
  ModelSpec spec = SmallSpec();
  spec.slides.assign(static_cast<size_t>(spec.num_layers) + 1, true);
  ExpectInvalid(ValidateModelSpec(spec), {"slides: got", "none, or each of"});
}

TEST(ModelSpec, LayersSeeTheWindowWhereTheySlide) {
  ModelSpec spec = SmallSpec();
  spec.num_layers = 4;
  EXPECT_EQ(spec.Windows(), std::vector<int64_t>{0});
  EXPECT_EQ(spec.MeanVisible(9), 9.0);
  spec.sliding_window = 5;
  EXPECT_EQ(spec.WindowOf(3), 5);
  EXPECT_EQ(spec.Windows(), std::vector<int64_t>{5});
  EXPECT_EQ(spec.MeanVisible(9), 5.0);
  EXPECT_EQ(spec.MeanVisible(9, 3), 7.0);  // of three tokens, the first sees two that others do not
  EXPECT_EQ(spec.MeanVisible(4), 4.0);
  spec.slides = {true, false, false, false};
  EXPECT_EQ(spec.WindowOf(0), 5);
  EXPECT_EQ(spec.WindowOf(1), 0);
  EXPECT_EQ(spec.Windows(), (std::vector<int64_t>{0, 5}));
  EXPECT_EQ(spec.MeanVisible(9), (5.0 + 3 * 9) / 4);
  spec.slides = {false, false, false, false};
  EXPECT_EQ(spec.Windows(), std::vector<int64_t>{0});
  EXPECT_EQ(spec.MeanVisible(9), 9.0);
}

TEST(ModelSpec, RefusesAnEosIdBeyondTheVocabulary) {
  ModelSpec spec = SmallSpec();
  spec.eos_token_ids = {10, 11};
  ExpectInvalid(ValidateModelSpec(spec), {"eos_token_ids: got 11", "below vocab_size (11)"});
}

TEST(ModelSpec, RefusesAnArchitectureThatItDoesNotKnow) {
  ModelSpec spec = SmallSpec();
  spec.architecture = "mamba";
  ExpectInvalid(ValidateModelSpec(spec), {"architecture: got 'mamba'", "llama, granite"});
}

TEST(RopeInverseFrequencies, PlainOnesAreAGeometricSeries) {
  ModelSpec spec = SmallSpec();
  spec.rope.theta = 10000.0;
  const std::vector<float> got = RopeInverseFrequencies(spec);
  ASSERT_EQ(got.size(), 4u);
  EXPECT_FLOAT_EQ(got[0], 1.0f);
  EXPECT_FLOAT_EQ(got[1], 0.1f);
  EXPECT_FLOAT_EQ(got[2], 0.01f);
  EXPECT_FLOAT_EQ(got[3], 0.001f);
}

// The published piecewise form over wavelengths, which the code does not use.
double PublishedLlama3(double frequency, const RopeSpec& rope) {
  const double wavelength = 2 * M_PI / frequency;
  const auto context = static_cast<double>(rope.original_max_position_embeddings);
  if (wavelength < context / rope.high_freq_factor) return frequency;
  if (wavelength > context / rope.low_freq_factor) return frequency / rope.factor;
  const double smooth = (context / wavelength - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

TEST(RopeInverseFrequencies, Llama3ScalingKeepsFastSlowsSlowAndBlendsBetween) {
  ModelSpec spec = SmallSpec();
  spec.head_dim = 128;
  spec.rope = {500000.0, RopeScaling::kLlama3, 8.0, 1.0, 4.0, 8192};
  const std::vector<float> got = RopeInverseFrequencies(spec);
  ASSERT_EQ(got.size(), 64u);
  int kept = 0, slowed = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double plain = std::pow(500000.0, -static_cast<double>(i) / 64);
    EXPECT_NEAR(got[i], PublishedLlama3(plain, spec.rope), 1e-7 * plain) << i;
    kept += got[i] == static_cast<float>(plain) ? 1 : 0;
    slowed += got[i] == static_cast<float>(plain / 8) ? 1 : 0;
  }
  EXPECT_GT(kept, 10);
  EXPECT_GT(slowed, 10);
  EXPECT_LT(kept + slowed, 64);  // some lie between the bands
}

TEST(RopeInverseFrequencies, LinearScalingDividesAllOfThem) {
  ModelSpec spec = SmallSpec();
  spec.rope = {.theta = 10000.0, .scaling = RopeScaling::kLinear, .factor = 2.5};
  const std::vector<float> got = RopeInverseFrequencies(spec);
  ASSERT_EQ(got.size(), 4u);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_FLOAT_EQ(got[i], static_cast<float>(std::pow(10.0, -static_cast<double>(i)) / 2.5));
  }
}

// yarn as its paper says it, in wavelengths: a pair whose wavelength fits the original context more
// than beta_fast times is kept, one that fits less than beta_slow times is slowed. The published
// code draws the ramp between the two over pair indices, and rounds its ends outwards.
TEST(RopeInverseFrequencies, YarnKeepsFastSlowsSlowAndRampsOverTheIndexBetween) {
  ModelSpec spec = SmallSpec();
  spec.head_dim = 128;
  spec.rope = {.theta = 1000000.0,
               .scaling = RopeScaling::kYarn,
               .factor = 4.0,
               .original_max_position_embeddings = 32768};
  for (const bool truncate : {true, false}) {
    spec.rope.truncate = truncate;
    const std::vector<float> got = RopeInverseFrequencies(spec);
    ASSERT_EQ(got.size(), 64u);
    // Where the wavelength 2 pi theta^(i / 64) is 32768 / 32 and 32768.
    double fast = 64 * std::log(1024 / (2 * M_PI)) / std::log(1e6);
    double slow = 64 * std::log(32768 / (2 * M_PI)) / std::log(1e6);
    if (truncate) {
      fast = static_cast<int>(fast);
      slow = static_cast<int>(slow) + 1;
    }
    int kept = 0, slowed = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double index = static_cast<double>(i);
      const double plain = std::pow(1e6, -index / 64);
      const double share = index <= fast   ? 0.0
                           : index >= slow ? 1.0
                                           : (index - fast) / (slow - fast);
      EXPECT_NEAR(got[i], plain * (1.0 - share * 0.75), 2e-7 * plain) << i;
      kept += share == 0.0 ? 1 : 0;
      slowed += share == 1.0 ? 1 : 0;
    }
    EXPECT_EQ(kept, 24);
    EXPECT_EQ(slowed, 24);
  }
}

// The list that counts is the one that the longest context calls for, and what is not turned has no
// factor.
TEST(RopeInverseFrequencies, LongRopeDividesEachPairByItsOwnFactor) {
  ModelSpec spec = SmallSpec();
  spec.head_dim = 16;
  spec.rotary_dim = 12;
  spec.rope = LongRope({1.0, 1.1, 1.5, 2.2, 2.9, 4.1}, {1.2, 2.3, 5.6, 9.8, 14.0, 21.0});
  spec.rope.theta = 500000.0;
  for (const int64_t max_context_length : {1, 32, 33, 256}) {
    SCOPED_TRACE(max_context_length);
    spec.rope.FitContexts(max_context_length);
    const std::vector<double>& factors =
        max_context_length <= 32 ? spec.rope.short_factors : spec.rope.long_factors;
    const std::vector<float> got = RopeInverseFrequencies(spec);
    ASSERT_EQ(got.size(), 8u);
    // As transformers has it: 1 / (factor * theta^(2 i / 12)), rounded once.
    for (size_t i = 0; i < 6; ++i)
      EXPECT_FLOAT_EQ(
          got[i],
          static_cast<float>(1.0 / (factors[i] * std::pow(500000.0, static_cast<double>(i) / 6.0))))
          << i;
    EXPECT_EQ(got[6], 0.0f);
    EXPECT_EQ(got[7], 0.0f);
  }
}

TEST(RopeInverseFrequencies, OtherRopesDoNotAskHowLongContextsAre) {
  for (const RopeScaling scaling :
       {RopeScaling::kNone, RopeScaling::kLinear, RopeScaling::kLlama3, RopeScaling::kYarn}) {
    RopeSpec rope = {.scaling = scaling, .factor = 4.0, .original_max_position_embeddings = 32};
    const RopeSpec before = rope;
    rope.FitContexts(1 << 20);
    EXPECT_EQ(rope, before);
  }
}

// All pairs turn less than beta_slow times: the ramp has no length and lies before the first.
TEST(RopeInverseFrequencies, YarnWithoutARampSlowsEveryPairButTheFirst) {
  ModelSpec spec = SmallSpec();
  spec.rope = {.theta = 10000.0,
               .scaling = RopeScaling::kYarn,
               .factor = 4.0,
               .original_max_position_embeddings = 6};
  const std::vector<float> got = RopeInverseFrequencies(spec);
  ASSERT_EQ(got.size(), 4u);
  EXPECT_FLOAT_EQ(got[0], 1.0f);
  EXPECT_FLOAT_EQ(got[1], 0.1f / 4);
  EXPECT_FLOAT_EQ(got[3], 0.001f / 4);
}

}  // namespace
}  // namespace reprise::models
