// SPDX-License-Identifier: Apache-2.0
// What the kernels of small models have to read and to write, against numbers worked out by hand.
#include "tools/profile/op_bytes.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/weight_format.h"
#include "models/decoder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/tiny_spec.h"
#include "tools/profile/roofs.h"

namespace reprise::tools {
namespace {

using ::reprise::testing::TinySpec;
using ::testing::FieldsAre;
using ::testing::Optional;

constexpr runtime::DType kBf16 = runtime::DType::kBf16;

// Experts in both layers, two of four for each token.
models::ModelSpec ExpertsSpec() {
  models::ModelSpec spec = TinySpec();
  spec.architecture = "mixtral";
  spec.num_experts = 4;
  spec.experts_per_token = 2;
  spec.expert_intermediate_size = 5;
  return spec;
}

// The first layer carries state of 6 x 5 numbers, and convolves 16 channels.
models::ModelSpec HybridSpec() {
  models::ModelSpec spec = TinySpec();
  spec.architecture = "granitemoehybrid";
  spec.mamba = models::MambaSpec{
      .num_heads = 2, .head_dim = 3, .num_groups = 1, .state_size = 5, .conv_width = 4};
  spec.mamba_layers = {true, false};
  return spec;
}

struct OpLaunches {
  std::string op;
  int count = 1;
  std::string shape = {};
};

// A step of three rows in bf16 that attend over five tokens each, prompts beside them, and its
// kernels.
class TinyStep {
 public:
  TinyStep(const models::ModelSpec& spec, const std::vector<OpLaunches>& ops,
           std::vector<uint32_t> prompts = {}) {
    context_.spec = spec;
    point_.rows = 3;
    point_.context = 5;
    point_.prompts = std::move(prompts);
    const auto bytes = models::BytesOfStep(spec, kBf16, kBf16, point_.point().row_counts(), 5);
    EXPECT_OK(bytes.status());
    if (bytes.ok()) point_.bytes = *bytes;
    std::vector<graphs::ProfiledLaunch> launches;
    for (const OpLaunches& of : ops)
      launches.insert(launches.end(), static_cast<size_t>(of.count),
                      {.kernel = "reprise_" + of.op, .op = of.op, .shape = of.shape});
    engine::StepStamps stamps{.launches = launches};
    for (size_t i = 0; i < launches.size(); ++i) stamps.done_ns.push_back(10 * (i + 1));
    EXPECT_OK(point_.kernels.Add(stamps));
  }

  ProfileContext& context() { return context_; }
  const models::StepBytes& bytes() const { return point_.bytes; }

  // Of the first op that is called so.
  std::optional<OpBytes> Of(const std::string& op) const {
    for (const OpTime& of : point_.kernels.ops())
      if (of.launch.op == op) return BytesOf(of, point_, context_);
    ADD_FAILURE() << "no " << op;
    return std::nullopt;
  }
  double SumOfAll() const {
    double sum = 0;
    for (const OpTime& op : point_.kernels.ops()) {
      const auto bytes = BytesOf(op, point_, context_);
      if (bytes) sum += bytes->total();
    }
    return sum;
  }

 private:
  ProfileContext context_;
  PointProfile point_;
};

std::optional<OpBytes> BytesOfOne(const models::ModelSpec& spec, const OpLaunches& launches,
                                  std::vector<uint32_t> prompts = {}) {
  return TinyStep(spec, {launches}, std::move(prompts)).Of(launches.op);
}

TEST(OpBytes, OfADenseModelAreTheNumbersWorkedOutByHand) {
  const TinyStep step(TinySpec(), {{"fetch"},
                                   {"plan"},
                                   {"embedding"},
                                   {"rms_norm", 5},
                                   {"linear_portable", 2, "8x4"},
                                   {"rope_append", 2},
                                   {"attention_portable", 2},
                                   {"linear_portable", 2, "4x4"},
                                   {"linear_portable", 2, "12x4"},
                                   {"silu_mul", 2},
                                   {"linear_portable", 2, "4x6"},
                                   {"linear_portable", 1, "10x4"},
                                   {"sample_partial"},
                                   {"sample_final"},
                                   {"publish"}});
  // Three lines of 4, and cosines and sines of 2 in f32.
  EXPECT_THAT(step.Of("embedding"), Optional(FieldsAre(3 * 8, 3 * (8 + 8))));
  // Rows of 4: of the four norms in layers all but the first read two for each token, and all write
  // two; the last one reads two and writes one; weights of all.
  EXPECT_THAT(step.Of("rms_norm"), Optional(FieldsAre((3 * 7 + 3 * 2 + 5) * 8, (3 * 8 + 3) * 8)));
  EXPECT_THAT(step.Of("linear_portable"), Optional(FieldsAre(2 * 8 * 4 * 2, 0)));
  EXPECT_THAT(step.Of("rope_append"), Optional(FieldsAre(2 * 3 * (16 + 8), 2 * 3 * (8 + 8))));
  EXPECT_THAT(step.Of("attention_portable"), Optional(FieldsAre(3 * 5 * 16, 0)));
  EXPECT_THAT(step.Of("silu_mul"), Optional(FieldsAre(2 * 3 * 12 * 2, 2 * 3 * 6 * 2)));
  EXPECT_THAT(step.Of("sample_partial"), Optional(FieldsAre(3 * 10 * 4, 0)));
  for (const char* op : {"fetch", "plan", "sample_final", "publish"})
    EXPECT_EQ(step.Of(op), std::nullopt) << op;
  // What is missing to all that the step moves are activations of linear layers and of attention: a
  // layer's 4 + 8, 4 + 4, 4 + 12 and 6 + 4, and 4 + 4 of a row; 4 into the head, 10 in f32 out.
  EXPECT_EQ(step.SumOfAll() + 3 * ((2 * 54 + 4) * 2 + 10 * 4),
            static_cast<double>(step.bytes().total()));
}

// Of every layer 4 of its norm and 4 of heads, 4 and 6 of the MLP.
TEST(OpBytes, OfGathersAreTheInputsOfLinearLayersAndTheirOrder) {
  EXPECT_THAT(BytesOfOne(TinySpec(), {"gather_columns", 8}),
              Optional(FieldsAre(2 * 18 * (3 * 2 + 4), 2 * 18 * 3 * 2)));
}

// Behind norms there is nothing to round: of every layer 4 of heads and 6 of the MLP are left.
TEST(OpBytes, OfRoundingAreInputsAndWhatTheyAreInEightBits) {
  EXPECT_THAT(BytesOfOne(TinySpec(), {"round_rows", 4}),
              Optional(FieldsAre(3 * 2 * 10 * 2, 3 * (2 * 10 + 4 * 4))));
  EXPECT_THAT(BytesOfOne(TinySpec(), {"rms_norm_rounded", 4}),
              Optional(FieldsAre((3 * 4 * 1.75 + 4) * 8, 3 * 4 * (8 + 4 + 4))));
  // Which layers round is not told.
  EXPECT_EQ(BytesOfOne(TinySpec(), {"round_rows", 8}), std::nullopt);
}

// Where linear layers do norms, the last one is left, or some of the layers' are.
TEST(OpBytes, OfNormsAreThoseThatAreKernels) {
  EXPECT_THAT(BytesOfOne(TinySpec(), {"rms_norm", 1}), Optional(FieldsAre((3 * 2 + 1) * 8, 3 * 8)));
  // Three of four, three of which read a branch: the mean of a row and three quarters.
  EXPECT_THAT(BytesOfOne(TinySpec(), {"rms_norm", 4}),
              Optional(FieldsAre((3 * 3 * 1.75 + 3 * 2 + 4) * 8, (3 * 3 * 2 + 3) * 8)));
  // Norms behind layers add the branches: no other does.
  models::ModelSpec spec = TinySpec();
  spec.architecture = "gemma2";
  EXPECT_THAT(BytesOfOne(spec, {"rms_norm", 5}),
              Optional(FieldsAre((3 * 4 + 3 + 5) * 8, (3 * 8 + 3) * 8)));
  EXPECT_THAT(BytesOfOne(spec, {"rms_norm_add", 4}),
              Optional(FieldsAre(4 * (3 * 2 + 1) * 8, 4 * 3 * 8)));
}

TEST(OpBytes, OfRopeAreThoseOfNormsAndOfTheCachesType) {
  models::ModelSpec spec = TinySpec();
  spec.qk_norm = true;
  TinyStep step(spec, {{"rope_append_normed", 2}});
  step.context().kv_dtype = runtime::DType::kE4m3;
  // Norms of 2 and 2; K and V of 2 bytes each.
  EXPECT_THAT(step.Of("rope_append_normed"),
              Optional(FieldsAre(2 * (3 * (16 + 8) + 4 * 2), 2 * 3 * (8 + 4))));
  spec.whole_qk_norm = true;
  EXPECT_THAT(BytesOfOne(spec, {"rope_append_normed", 2}),
              Optional(FieldsAre(2 * (3 * (16 + 8) + 6 * 2), 2 * 3 * (8 + 8))));
}

// All 53 tokens go through layers, and four rows have logits.
TEST(OpBytes, OfPromptsAreThoseOfTheirTokens) {
  const std::vector<uint32_t> prompts = {50};
  EXPECT_THAT(BytesOfOne(TinySpec(), {"rms_norm", 5}, prompts),
              Optional(FieldsAre((53 * 7 + 4 * 2 + 5) * 8, (53 * 8 + 4) * 8)));
  EXPECT_THAT(BytesOfOne(TinySpec(), {"softcap"}, prompts),
              Optional(FieldsAre(4 * 10 * 4, 4 * 10 * 4)));
  EXPECT_THAT(BytesOfOne(TinySpec(), {"sample_partial"}, prompts),
              Optional(FieldsAre(4 * 10 * 4, 0)));
}

TEST(OpBytes, OfExpertsAreTheMatricesThatTokensAreExpectedToMeet) {
  // Three tokens leave an expert alone with a probability of an eighth.
  EXPECT_THAT(BytesOfOne(ExpertsSpec(), {"experts_packed", 2, "10x4"}),
              Optional(FieldsAre(2 * 3.5 * 10 * 4 * 2, 0)));
  // Of 8 bits, with a scale of 4 bytes for 128 of them.
  EXPECT_THAT(BytesOfOne(ExpertsSpec(), {"experts_portable_fp8", 2, "10x4"}),
              Optional(FieldsAre(2 * 3.5 * 10 * 4 * 1.03125, 0)));
  EXPECT_THAT(BytesOfOne(ExpertsSpec(), {"experts_route", 2}),
              Optional(FieldsAre(2 * 3 * 4 * 4, 0)));
  EXPECT_THAT(BytesOfOne(ExpertsSpec(), {"experts_combine", 2}),
              Optional(FieldsAre(2 * 3 * 2 * 8, 2 * 3 * 8)));
  EXPECT_THAT(BytesOfOne(ExpertsSpec(), {"silu_mul", 2}),
              Optional(FieldsAre(2 * 6 * 10 * 2, 2 * 6 * 5 * 2)));
}

TEST(OpBytes, OfExpertsAndMlpsAreThoseOfBoth) {
  // An MLP in the first layer, experts in the second one.
  models::ModelSpec spec = ExpertsSpec();
  spec.architecture = "qwen3_moe";
  spec.sparse = {false, true};
  EXPECT_THAT(BytesOfOne(spec, {"silu_mul", 2}),
              Optional(FieldsAre(2 * (3 * 6 + 6 * 5) * 2, (3 * 6 + 6 * 5) * 2)));
  EXPECT_EQ(BytesOfOne(spec, {"silu_mul", 1}), std::nullopt);  // one of them, but which?
  // Both in both layers, added up.
  spec = ExpertsSpec();
  spec.architecture = "granitemoehybrid";
  EXPECT_THAT(BytesOfOne(spec, {"silu_mul", 4}),
              Optional(FieldsAre(2 * 2 * (3 * 6 + 6 * 5) * 2, 2 * (3 * 6 + 6 * 5) * 2)));
  EXPECT_THAT(BytesOfOne(spec, {"experts_combine", 2}),
              Optional(FieldsAre(2 * 3 * 3 * 8, 2 * 3 * 8)));
}

TEST(OpBytes, OfStateSpaceModelsAreTheirState) {
  // Three inputs of 16 channels of a row; weights of 4 and a bias of each channel in f32.
  EXPECT_THAT(BytesOfOne(HybridSpec(), {"mamba_conv"}),
              Optional(FieldsAre(3 * 32 + 3 * 96 + 16 * 5 * 4, 3 * 32 + 3 * 96)));
  // 16 channels and 2 of dt in, 6 out; 30 numbers of state, and 3 of each head.
  EXPECT_THAT(BytesOfOne(HybridSpec(), {"mamba_scan"}),
              Optional(FieldsAre(3 * 36 + 3 * 120 + 24, 3 * 12 + 3 * 120)));
  EXPECT_THAT(BytesOfOne(HybridSpec(), {"mamba_norm"}), Optional(FieldsAre(3 * 24 + 12, 3 * 12)));
  // A prompt of 4 tokens has no state before it, and leaves one.
  EXPECT_THAT(BytesOfOne(HybridSpec(), {"mamba_conv"}, {4}),
              Optional(FieldsAre(7 * 32 + 3 * 96 + 16 * 5 * 4, 7 * 32 + 4 * 96)));
  EXPECT_THAT(BytesOfOne(HybridSpec(), {"mamba_scan"}, {4}),
              Optional(FieldsAre(7 * 36 + 3 * 120 + 24, 7 * 12 + 4 * 120)));
  // Attention reads the KV of its one layer, and no state.
  EXPECT_THAT(BytesOfOne(HybridSpec(), {"attention_portable"}), Optional(FieldsAre(3 * 5 * 8, 0)));
  EXPECT_THAT(BytesOfOne(HybridSpec(), {"attention_portable"}, {4}),
              Optional(FieldsAre(7 * 5 * 8, 0)));
}

// All but the three lines of the embedding, which a kernel before it reads.
TEST(OpBytes, OfTheStepKernelAreWeightsAndKv) {
  const TinyStep step(TinySpec(), {{"step_kernel"}});
  EXPECT_EQ(step.bytes().weights, 624u);
  EXPECT_THAT(step.Of("step_kernel"), Optional(FieldsAre(624 - 3 * 8 + 240, 48)));
}

TEST(OpBytes, OfWhatIsNotKnownThereAreNone) {
  for (const char* op : {"rms_norm_x", "rms", "rope", "silu_mul_x", "stamp", "nan_fill", "x"})
    EXPECT_EQ(BytesOfOne(TinySpec(), {op}), std::nullopt) << op;
  EXPECT_EQ(BytesOfOne(TinySpec(), {"linear_portable"}), std::nullopt);  // no shape
  // Two kernels of attention share KV in a way that nobody tells.
  const TinyStep step(TinySpec(), {{"attention_x", 2}, {"attention_y", 2}});
  EXPECT_EQ(step.Of("attention_x"), std::nullopt);
  TinyStep nameless(TinySpec(), {{"rms_norm", 5}});
  nameless.context().spec.architecture = "";
  EXPECT_EQ(nameless.Of("rms_norm"), std::nullopt);
}

}  // namespace
}  // namespace reprise::tools
