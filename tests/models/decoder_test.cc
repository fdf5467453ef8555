// SPDX-License-Identifier: Apache-2.0
// A decoder as a list of layers: which layers there are, what they declare, which models are
// refused.
#include "models/decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernel_set.h"
#include "kernels/linear/linear.h"
#include "models/config/architectures.h"
#include "models/layers/embedding_layer.h"
#include "models/layers/experts_layer.h"
#include "models/layers/lm_head_layer.h"
#include "models/layers/mamba_layer.h"
#include "models/layers/mlp_layer.h"
#include "models/layers/norm_layer.h"
#include "models/layers/post_norm_layer.h"
#include "tests/models/model_files.h"
#include "tests/testing/status_matchers.h"

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

TEST(Decoder, CountsParametersTensorByTensor) {
  ModelSpec spec = SmallSpec();
  const int64_t matrices = 32 * 6 + 16 * 6 + 16 * 6 + 6 * 32 + 10 * 6 + 10 * 6 + 6 * 10;
  const int64_t plain = 11 * 6 + 3 * (matrices + 6 + 6) + 6;
  spec.tie_word_embeddings = true;
  EXPECT_EQ(NumParameters(spec), plain);
  spec.tie_word_embeddings = false;
  EXPECT_EQ(NumParameters(spec), plain + 11 * 6);
  spec.qkv_bias = true;
  EXPECT_EQ(NumParameters(spec), plain + 11 * 6 + 3 * (32 + 16 + 16));
  spec.o_bias = true;
  EXPECT_EQ(NumParameters(spec), plain + 11 * 6 + 3 * (32 + 16 + 16 + 6));
  spec.mlp_bias = true;
  EXPECT_EQ(NumParameters(spec), plain + 11 * 6 + 3 * (32 + 16 + 16 + 6 + 10 + 10 + 6));
  spec.qk_norm = true;
  EXPECT_EQ(NumParameters(spec), plain + 11 * 6 + 3 * (32 + 16 + 16 + 6 + 10 + 10 + 6 + 8 + 8));
}

TEST(Decoder, CountsTheNormsThatAnArchitecturesBlocksHave) {
  ModelSpec spec = SmallSpec();
  const int64_t plain = NumParameters(spec);
  for (const auto& [architecture, more] :
       std::map<std::string, int64_t>{{"gemma2", 2 * 6}, {"phi3", 0}, {"olmo2", 0}}) {
    spec.architecture = architecture;
    EXPECT_EQ(NumParameters(spec), plain + 3 * more) << architecture;
  }
  spec.qk_norm = spec.whole_qk_norm = true;
  EXPECT_EQ(NumParameters(spec), plain + 3 * (32 + 16));
}

// A projection in and one out, a convolution with its bias, three numbers of each head, a norm; and
// an MLP beside a router and experts, or alone.
TEST(Decoder, CountsStateSpaceModelsInPlaceOfAttention) {
  ModelSpec spec = SmallSpec();
  spec.architecture = "granitemoehybrid";
  const int64_t all_attention = NumParameters(spec);
  spec.mamba =
      MambaSpec{.num_heads = 2, .head_dim = 6, .num_groups = 1, .state_size = 5, .conv_width = 4};
  spec.mamba_layers = {true, false, true};
  const int64_t conv = 12 + 2 * 5;
  const int64_t mamba = (12 + conv + 2) * 6 + conv * 4 + conv + 3 * 2 + 12 + 6 * 12;
  const int64_t attention = 32 * 6 + 16 * 6 + 16 * 6 + 6 * 32;
  EXPECT_EQ(NumParameters(spec), all_attention + 2 * (mamba - attention));
  spec.num_experts = 4;
  spec.experts_per_token = 2;
  spec.expert_intermediate_size = 3;
  EXPECT_EQ(NumParameters(spec),
            all_attention + 2 * (mamba - attention) + 3 * (4 * 6 + 4 * 3 * 3 * 6));
}

TEST(Decoder, RefusesMoreParametersThanCanBeAddressed) {
  ModelSpec spec = SmallSpec();
  spec.hidden_size = std::numeric_limits<int32_t>::max();
  spec.vocab_size = std::numeric_limits<int32_t>::max();
  spec.intermediate_size = std::numeric_limits<int32_t>::max() / 2;
  spec.num_layers = 4096;
  ASSERT_TRUE(ValidateModelSpec(spec).ok());
  ExpectInvalid(Decoder::Create(spec).status(), {"number of parameters"});
}

TEST(Decoder, RefusesWhatTheSpecsOwnCheckRefuses) {
  ModelSpec spec = SmallSpec();
  spec.architecture = "unheard-of";
  ExpectInvalid(Decoder::Create(spec).status(),
                {"architecture: got 'unheard-of'", "llama, granite"});
  spec = SmallSpec();
  spec.num_layers = 0;
  ExpectInvalid(Decoder::Create(spec).status(), {"num_layers: got 0"});
}

TEST(Decoder, ItsLayersAreThoseOfTheArchitecturesTableInOrder) {
  for (const Architecture& architecture : KnownArchitectures()) {
    ModelSpec spec = SmallSpec();
    spec.architecture = architecture.name;
    if (architecture.experts != ExpertRule::kNone) {
      spec.num_experts = 4;
      spec.experts_per_token = 2;
      spec.expert_intermediate_size = 10;
    }
    if (architecture.state != StateRule::kNone) {
      spec.mamba = MambaSpec{
          .num_heads = 2, .head_dim = 6, .num_groups = 1, .state_size = 5, .conv_width = 4};
      spec.mamba_layers = {true, false, true};
    }
    ASSERT_OK_AND_ASSIGN(const auto decoder, Decoder::Create(spec));
    const auto layers = decoder->layers();
    size_t at = 0;
    ASSERT_NE(dynamic_cast<const EmbeddingLayer*>(layers[at++].get()), nullptr);
    for (int64_t block = 0; block < spec.num_layers; ++block) {
      for (const LayerEntry& entry : architecture.BlockOf(block)) {
        if (entry.kind == (spec.IsMamba(block) ? LayerKind::kAttention : LayerKind::kMamba))
          continue;
        ASSERT_LT(at, layers.size());
        const Layer* layer = layers[at++].get();
        EXPECT_EQ(dynamic_cast<const NormLayer*>(layer) != nullptr, entry.kind == LayerKind::kNorm);
        EXPECT_EQ(dynamic_cast<const PostNormLayer*>(layer) != nullptr,
                  entry.kind == LayerKind::kPostNorm);
        EXPECT_EQ(dynamic_cast<const AttentionLayer*>(layer) != nullptr,
                  entry.kind == LayerKind::kAttention);
        EXPECT_EQ(dynamic_cast<const MambaLayer*>(layer) != nullptr,
                  entry.kind == LayerKind::kMamba);
        EXPECT_EQ(dynamic_cast<const MlpLayer*>(layer) != nullptr, entry.kind == LayerKind::kMlp);
        EXPECT_EQ(dynamic_cast<const ExpertsLayer*>(layer) != nullptr,
                  entry.kind == LayerKind::kExperts);
        if (const auto* experts = dynamic_cast<const ExpertsLayer*>(layer)) {
          EXPECT_EQ(experts->shared() != nullptr, architecture.shared_mlp != nullptr);
        }
      }
    }
    ASSERT_EQ(at + 1, layers.size());
    EXPECT_NE(dynamic_cast<const LmHeadLayer*>(layers[at].get()), nullptr);
  }
}

TEST(Decoder, PlansAsManyWindowsAsItsLayersDifferIn) {
  struct Case {
    int64_t window;
    std::vector<bool> slides;
    std::vector<uint32_t> of_layers, planned;
  };
  const Case cases[] = {{0, {}, {0, 0, 0}, {0}},
                        {9, {}, {9, 9, 9}, {9}},
                        {9, {true, false, true}, {9, 0, 9}, {0, 9}},
                        {9, {false, false, false}, {0, 0, 0}, {0}}};
  for (const Case& c : cases) {
    ModelSpec spec = SmallSpec();
    spec.sliding_window = c.window;
    spec.slides = c.slides;
    ASSERT_OK_AND_ASSIGN(const auto decoder, Decoder::Create(spec));
    std::vector<uint32_t> of_layers;
    for (const auto& layer : decoder->layers()) {
      const auto* attention = dynamic_cast<const AttentionLayer*>(layer.get());
      if (attention != nullptr) of_layers.push_back(attention->window());
    }
    EXPECT_EQ(of_layers, c.of_layers);
    const kernels::AttentionPlanRule& rule = decoder->attention_plan();
    EXPECT_EQ(std::vector<uint32_t>(rule.windows, rule.windows + rule.num_windows), c.planned);
  }
}

// Every buffer that the layers work in, by name, with the bytes that its contract speaks of.
TEST(Decoder, DeclaresEveryBufferOnceAsLargeAsItsLargestUser) {
  ASSERT_OK_AND_ASSIGN(const auto device,
                       runtime::Device::Create({.kind = runtime::DeviceKind::kHost}));
  for (const runtime::DType dtype : {runtime::DType::kF32, runtime::DType::kBf16}) {
    ASSERT_OK_AND_ASSIGN(const auto kernels, kernels::KernelSet::Load(*device, dtype));
    const ModelSpec spec = SmallSpec();
    const kernels::StepLimits limits{.max_rows = 3,
                                     .max_blocks_per_row = 7,
                                     .max_step_tokens = 70,
                                     .max_prompt_logprobs = 2,
                                     .max_draft_tokens = 4};
    ASSERT_OK_AND_ASSIGN(const auto decoder, Decoder::Create(spec));
    runtime::BufferPlan activations, scratch;
    decoder->DeclareBuffers(
        {.kernels = *kernels, .limits = limits, .activations = activations, .scratch = scratch});
    std::map<std::string, size_t> bytes;
    for (const auto& region : activations.regions()) bytes[std::string(region.name)] = region.bytes;
    const size_t element = runtime::SizeOf(dtype);
    const std::map<std::string, size_t> expected = {{"residual", 70 * 6 * element},
                                                    {"normed", 70 * 6 * element},
                                                    {"branch", 70 * 6 * element},
                                                    {"qkv", 70 * 64 * element},
                                                    {"q", 70 * 32 * element},
                                                    {"attention", 70 * 32 * element},
                                                    {"gate_up", 70 * 20 * element},
                                                    {"activated", 70 * 10 * element},
                                                    {"sampled_hidden", (3 + 2 + 4) * 6 * element}};
    EXPECT_EQ(bytes, expected);
    bytes.clear();
    for (const auto& region : scratch.regions()) bytes[std::string(region.name)] = region.bytes;
    const size_t heads = 3 * kernels::AttentionPlanRule{}.max_splits * 4;
    EXPECT_EQ(bytes["rope"], 70u * 8 * 4);
    EXPECT_EQ(bytes["logits"], (3u + 2 + 4) * 11 * 4);
    EXPECT_EQ(bytes["attention.partial_out"], heads * 8 * 4);
    EXPECT_EQ(bytes["attention.partial_max"], heads * 4);
    EXPECT_EQ(bytes["attention.partial_sum"], heads * 4);
    EXPECT_EQ(bytes["attention.arrivals"], 3u * 2 * 4);
    EXPECT_EQ(bytes["attention.piece_leaves"], heads / 4 * 2 * 4);
    EXPECT_EQ(bytes["linear.partials"], kernels::LinearPartialFloats(*kernels, 70) * 4);
    EXPECT_EQ(bytes["linear.counters"], kernels::LinearNumCounters(*kernels, 64) * 4);
    EXPECT_EQ(bytes.size(), 9u);
  }
}

// Kernels of packed weights sum nothing across blocks, and gate and up in pairs come multiplied.
TEST(Decoder, PackedWeightsNeedNoPartialSums) {
  ASSERT_OK_AND_ASSIGN(const auto device,
                       runtime::Device::Create({.kind = runtime::DeviceKind::kHost}));
  ASSERT_OK_AND_ASSIGN(const auto kernels,
                       kernels::KernelSet::Load(*device, runtime::DType::kBf16));
  ModelSpec spec = SmallSpec();
  spec.hidden_size = spec.intermediate_size = 16;
  const kernels::StepLimits limits{.max_rows = 3, .max_blocks_per_row = 7, .max_step_tokens = 70};
  using kernels::WeightLayout;
  for (const auto layout :
       {WeightLayout::kRowMajor, WeightLayout::kPacked, WeightLayout::kPackedPairs}) {
    ASSERT_OK_AND_ASSIGN(const auto decoder, Decoder::Create(spec));
    decoder->PlanWeights(runtime::DType::kBf16, std::nullopt, layout);
    runtime::BufferPlan activations, scratch;
    decoder->DeclareBuffers(
        {.kernels = *kernels, .limits = limits, .activations = activations, .scratch = scratch});
    size_t gate_up = 0, partials = 0;
    for (const auto& region : activations.regions())
      if (region.name == "gate_up") gate_up = region.bytes;
    for (const auto& region : scratch.regions())
      if (region.name == "linear.partials") partials = region.bytes;
    EXPECT_EQ(gate_up, layout == WeightLayout::kPackedPairs ? 0u : 70u * 2 * 16 * 2);
    EXPECT_EQ(partials, kernels::IsPacked(layout)
                            ? 0u
                            : kernels::LinearPartialFloats(*kernels, 70) * sizeof(float));
  }
}

}  // namespace
}  // namespace reprise::models
