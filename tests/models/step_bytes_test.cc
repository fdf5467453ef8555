// SPDX-License-Identifier: Apache-2.0
// The model of a step's traffic against numbers worked out by hand.
#include "models/step_bytes.h"

#include <gtest/gtest.h>

#include "kernels/weight_format.h"
#include "models/config/architectures.h"
#include "models/config/model_presets.h"
#include "models/config/model_spec.h"
#include "models/decoder.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/tiny_spec.h"

namespace reprise::models {
namespace {

using ::reprise::testing::TinySpec;

constexpr runtime::DType kBf16 = runtime::DType::kBf16;

StepBytes Bytes(const ModelSpec& spec, runtime::DType dtype, uint64_t rows, double attended) {
  return *BytesOfStep(spec, dtype, dtype, {.decoding = rows}, attended);
}

TEST(StepBytes, OfATinyModelAreTheNumbersWorkedOutByHand) {
  const StepBytes bytes = Bytes(TinySpec(), kBf16, 3, 5);
  // A layer: q, k, v 8 x 4, o 4 x 4, gate and up 12 x 4, down 4 x 6, two norms of 4: 128 elements.
  // Two of them, the last norm, 10 x 4 of the head, and three lines of the embedding: 312.
  EXPECT_EQ(bytes.weights, 312u * 2);
  // 2 (K, V) * 2 layers * 1 head * 2 elements * 2 bytes = 16 bytes a token.
  EXPECT_EQ(bytes.kv_read, 3u * 5 * 16);
  EXPECT_EQ(bytes.kv_written, 3u * 16);
  // A layer of one row: two norms of 2 * 4 in and 2 * 4 out, qkv 4 + 8, rope 8 + 4, attention 4 +
  // 4, o 4 + 4, gate and up 4 + 12, SiLU * up 12 + 6, down 6 + 4: 116 elements. Two of them, less
  // the branch of 4 that the first norm has not; embedding 4 out; last norm 8 + 4; head 4 in: 248.
  // In f32: cosines and sines of 2 once out and twice in, logits of 10 out and in: 26.
  EXPECT_EQ(bytes.activations, 3u * (248 * 2 + 26 * 4));
  EXPECT_EQ(bytes.total(), 624u + 240 + 48 + 1800);
}

TEST(StepBytes, OfAKvCacheOfEightBitsAreHalf) {
  const StepBytes whole = Bytes(TinySpec(), kBf16, 3, 5);
  const StepBytes half = *BytesOfStep(TinySpec(), kBf16, runtime::DType::kE4m3, {.decoding = 3}, 5);
  EXPECT_EQ(half.kv_read, whole.kv_read / 2);
  EXPECT_EQ(half.kv_written, whole.kv_written / 2);
  EXPECT_EQ(half.weights, whole.weights);
  EXPECT_EQ(half.activations, whole.activations);
}

TEST(StepBytes, CountBiasesNormsAndTheSizeOfAnElement) {
  ModelSpec spec = TinySpec();
  const StepBytes plain = Bytes(spec, kBf16, 3, 5);
  spec.qkv_bias = true;  // 8
  spec.o_bias = true;    // 4
  spec.mlp_bias = true;  // 12 of gate and up and 4 of down
  spec.qk_norm = true;   // 2 of q and 2 of k
  const StepBytes biased = Bytes(spec, kBf16, 3, 5);
  EXPECT_EQ(biased.weights, plain.weights + 2 * (12 + 16 + 4) * 2);
  EXPECT_EQ(biased.activations, plain.activations);
  const StepBytes wide = Bytes(TinySpec(), runtime::DType::kF32, 3, 5);
  EXPECT_EQ(wide.weights, 2 * plain.weights);
  EXPECT_EQ(wide.kv_read, 2 * plain.kv_read);
  EXPECT_EQ(wide.activations, 3u * (248 + 26) * 4);
}

TEST(StepBytes, OfNormsBehindLayersRopeTablesAndCappedLogits) {
  ModelSpec spec = TinySpec();
  const StepBytes plain = Bytes(spec, kBf16, 3, 5);
  // Two tables: cosines and sines of 2 once more out. Logits of 10 in and out again.
  spec.sliding_rope = RopeSpec{};
  spec.logits_softcap = 30.0;
  EXPECT_EQ(Bytes(spec, kBf16, 3, 5).activations, plain.activations + 3u * (2 + 20) * 4);
  // Two more norms of 4 a layer. A norm before a layer no longer reads a branch of 4, and the one
  // behind moves three rows of 4; neither does the last norm. The first never read one.
  spec = TinySpec();
  spec.architecture = "gemma2";
  const StepBytes gemma = Bytes(spec, kBf16, 3, 5);
  EXPECT_EQ(gemma.weights, plain.weights + 2u * 8 * 2);
  EXPECT_EQ(gemma.activations, plain.activations + 3u * (4 * 12 - 3 * 4 - 4) * 2);
}

// Of a token 8 bytes a layer.
TEST(StepBytes, ReadInEveryLayerNoMoreThanItSees) {
  ModelSpec spec = TinySpec();
  const auto kv_read = [&spec](double context) {
    return Bytes(spec, kBf16, 3, spec.MeanVisible(context)).kv_read;
  };
  spec.sliding_window = 4;
  EXPECT_EQ(kv_read(5), 3u * (4 + 4) * 8);
  EXPECT_EQ(kv_read(3), 3u * (3 + 3) * 8);
  spec.slides = {true, false};
  EXPECT_EQ(kv_read(7), 3u * (4 + 7) * 8);
  EXPECT_EQ(kv_read(3), 3u * (3 + 3) * 8);
}

// Of the linear layers of blocks.
int64_t QuantizedElements(const ModelSpec& spec) {
  if (!spec.weight_quantization) return 0;
  return spec.num_layers * spec.hidden_size *
         (spec.qkv_size() + spec.q_size() +
          (spec.num_experts == 0 ? 3 * spec.intermediate_size : 0));
}
// What a layer's linear layers of such a model read, together.
int64_t InputsOfLayer(const ModelSpec& spec) {
  return 2 * spec.hidden_size + spec.q_size() + spec.intermediate_size;
}
// Of 8 or 4 bits, and 32 for 128 of them; where inputs are in another order, 32 for each.
int64_t QuantizedBytes(const ModelSpec& spec) {
  if (!spec.weight_quantization) return 0;
  const int64_t elements = QuantizedElements(spec);
  const int64_t orders =
      spec.weight_quantization->reorders_inputs ? spec.num_layers * InputsOfLayer(spec) * 4 : 0;
  return elements * kernels::BitsOf(spec.weight_quantization->format()) / 8 + elements / 32 +
         orders;
}

TEST(StepBytes, OfInputsInAnotherOrderAreReadAndWrittenOnceMore) {
  ASSERT_OK_AND_ASSIGN(ModelSpec spec, PresetSpec("llama-3.1-8b-act-order"));
  const StepBytes reordered = Bytes(spec, kBf16, 3, 5);
  spec.weight_quantization->reorders_inputs = false;
  const StepBytes plain = Bytes(spec, kBf16, 3, 5);
  const auto inputs = static_cast<uint64_t>(32 * InputsOfLayer(spec));
  EXPECT_EQ(reordered.weights, plain.weights + inputs * 4);
  EXPECT_EQ(reordered.activations, plain.activations + 3 * inputs * 2 * 2);
}

// Norms write and layers read half of what is behind them; what is behind others is read, half of
// it written, and half read less.
TEST(StepBytes, OfRoundedActivationsAreHalfBehindNorms) {
  ASSERT_OK_AND_ASSIGN(ModelSpec spec, PresetSpec("llama-3.1-8b-fp8"));
  const StepBytes plain = Bytes(spec, kBf16, 3, 5);
  spec.weight_quantization->rounds_activations = true;
  const StepBytes rounded = Bytes(spec, kBf16, 3, 5);
  EXPECT_EQ(rounded.weights, plain.weights);
  const uint64_t more = 32 * (4096 + 14336), less = uint64_t{32} * 2 * 4096;
  EXPECT_EQ(rounded.activations, plain.activations + 3 * (more - less) * 2);
}

// Of 16 bits for 8, and of the scales nothing; what they read is not rounded.
TEST(StepBytes, OfLayersLeftOutAreThoseOfSixteenBits) {
  ASSERT_OK_AND_ASSIGN(ModelSpec spec, PresetSpec("llama-3.1-8b-fp8"));
  spec.weight_quantization->rounds_activations = true;
  const StepBytes all = Bytes(spec, kBf16, 3, 5);
  spec.weight_quantization->left_out.assign(32, 0);
  for (const BlockLinear linear : {BlockLinear::kAttentionIn, BlockLinear::kMlpOut})
    spec.weight_quantization->left_out[7] |= WeightQuantization::BitOf(linear);
  const StepBytes some = Bytes(spec, kBf16, 3, 5);
  const uint64_t elements = 6144 * 4096 + 14336 * 4096;
  EXPECT_EQ(some.weights, all.weights + elements - elements / 32);
  // Behind a norm a row was written and read in half of it.
  EXPECT_EQ(some.activations + 3 * (14336 - 4096) * 2, all.activations);
}

int64_t ExpertElements(const ModelSpec& spec) {
  int64_t elements = 0;
  for (int64_t layer = 0; layer < spec.num_layers; ++layer)
    if (spec.HasExperts(layer))
      elements += spec.num_experts * 3 * spec.hidden_size * spec.expert_intermediate_size;
  if (FindArchitecture(spec.architecture)->expert_tensors.biased)
    elements +=
        spec.num_layers * spec.num_experts * (2 * spec.expert_intermediate_size + spec.hidden_size);
  return elements;
}

// Where every pair of 4 experts is as likely as any other.
TEST(StepBytes, OfExpertsAreThoseThatAreLikelyToBeRoutedTo) {
  ModelSpec spec = TinySpec();
  spec.architecture = "mixtral";
  spec.num_experts = 4;
  spec.experts_per_token = 2;
  spec.expert_intermediate_size = spec.intermediate_size;
  const uint64_t none = Bytes(spec, kBf16, 0, 5).weights;
  const auto of_experts = [&](uint64_t rows) {
    return Bytes(spec, kBf16, rows, 5).weights - none - rows * 4 * 2;  // lines of the embedding
  };
  const uint64_t expert = 2 * 3 * 6 * 4 * 2;  // in both layers
  EXPECT_EQ(of_experts(1), 2 * expert);
  EXPECT_EQ(of_experts(2), 3 * expert);
  EXPECT_EQ(of_experts(3), 7 * expert / 2);
  EXPECT_EQ(of_experts(1000), 4 * expert);
  // A router of 4 x 4 in place of an MLP of 6.
  EXPECT_EQ(none, Bytes(TinySpec(), kBf16, 0, 5).weights - 2u * (3 * 6 - 4) * 4 * 2);
  // In place of the MLP's: a row of 4 in, 12 out, 12 in and 6 out for SiLU * up, 6 in and 4 out, 4
  // in, each twice, and 4 out of the sum; the router's 4 in, and logits of 4 out and in.
  const uint64_t mlp = 4 + 12 + 12 + 6 + 6 + 4, mixture = 2 * (mlp + 4) + 4 + 4;
  EXPECT_EQ(Bytes(spec, kBf16, 1, 5).activations,
            Bytes(TinySpec(), kBf16, 1, 5).activations + 2 * ((mixture - mlp) * 2 + 8 * 4));
}

// Two layers of 2 heads of 3 with a state of 5, in place of one of attention: state is read and
// written once, and KV is that of the other.
TEST(StepBytes, OfStateSpaceModelsAreTheirState) {
  ModelSpec spec = TinySpec();
  spec.architecture = "granitemoehybrid";
  const StepBytes attention = Bytes(spec, kBf16, 3, 5);
  spec.mamba =
      MambaSpec{.num_heads = 2, .head_dim = 3, .num_groups = 1, .state_size = 5, .conv_width = 4};
  spec.mamba_layers.assign(static_cast<size_t>(spec.num_layers), false);
  spec.mamba_layers[0] = true;
  const StepBytes hybrid = Bytes(spec, kBf16, 3, 5);
  const auto layers = static_cast<uint64_t>(spec.num_layers);
  const uint64_t state = 3 * (3 * 16 * 2 + 6 * 5 * 4);
  EXPECT_EQ(3 * spec.RowStateBytes(kBf16), state);
  EXPECT_EQ(hybrid.kv_read, attention.kv_read / layers * (layers - 1) + state);
  EXPECT_EQ(hybrid.kv_written, attention.kv_written / layers * (layers - 1) + state);
  // A prompt begins without state, and leaves one, whatever its length.
  const StepBytes prompts = *BytesOfStep(spec, kBf16, kBf16, {.prompts = 2, .prompt_tokens = 3}, 5);
  EXPECT_EQ(prompts.kv_read, hybrid.kv_read - state);
  EXPECT_EQ(prompts.kv_written, hybrid.kv_written - state + state / 3 * 2);
  EXPECT_EQ(prompts.weights, hybrid.weights);
  EXPECT_EQ(prompts.activations, hybrid.activations);
}

TEST(StepBytes, ReadEveryParameterOnceButTheEmbeddingTable) {
  for (const std::string_view name : PresetNames()) {
    SCOPED_TRACE(name);
    ASSERT_OK_AND_ASSIGN(const ModelSpec spec, PresetSpec(name));
    int64_t parameters = NumParameters(spec);
    if (!spec.tie_word_embeddings) parameters -= spec.vocab_size * spec.hidden_size;
    const int64_t quantized = QuantizedElements(spec);
    parameters -= ExpertElements(spec);  // no row, no expert
    int64_t numbers = spec.attention_sinks ? spec.num_layers * spec.num_heads : 0;  // f32
    if (const auto& mamba = spec.mamba)
      numbers += (spec.num_layers - spec.NumAttentionLayers()) *
                 (mamba->conv_size() * (mamba->conv_width + 1) + 3 * mamba->num_heads);
    EXPECT_EQ(Bytes(spec, kBf16, 0, 5).weights,
              static_cast<uint64_t>((parameters - quantized - numbers) * 2 + QuantizedBytes(spec) +
                                    numbers * 4));
  }
}

TEST(StepBytes, WhatIsAttendedOverMayBeAMeanOfSeveralSteps) {
  EXPECT_EQ(Bytes(TinySpec(), kBf16, 2, 5.5).kv_read, 2u * 88);
  EXPECT_EQ(Bytes(TinySpec(), kBf16, 2, 5.5).kv_written, 2u * 16);
}

}  // namespace
}  // namespace reprise::models
