// SPDX-License-Identifier: Apache-2.0
// Published model shapes; see model_presets.h.
#include "models/config/model_presets.h"

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace reprise::models {
namespace {

// The sizes that every config states, under ModelSpec's names; the presets give them in this order.
struct Shape {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0, intermediate_size = 0;
  int64_t num_layers = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t max_position_embeddings = 0;
};

ModelSpec SpecOf(const char* architecture, double rms_norm_eps, const Shape& shape) {
  ModelSpec spec;
  spec.architecture = architecture;
  spec.rms_norm_eps = rms_norm_eps;
  spec.checkpoint_dtype = runtime::DType::kBf16;
  spec.vocab_size = shape.vocab_size;
  spec.hidden_size = shape.hidden_size;
  spec.intermediate_size = shape.intermediate_size;
  spec.num_layers = shape.num_layers;
  spec.num_heads = shape.num_heads;
  spec.num_kv_heads = shape.num_kv_heads;
  spec.head_dim = shape.head_dim;
  spec.max_position_embeddings = shape.max_position_embeddings;
  return spec;
}

RopeSpec Llama3Rope(double factor) {
  RopeSpec rope;
  rope.theta = 500000.0;
  rope.scaling = RopeScaling::kLlama3;
  rope.factor = factor;
  rope.low_freq_factor = 1.0;
  rope.high_freq_factor = 4.0;
  rope.original_max_position_embeddings = 8192;
  return rope;
}

// Source: config.json of meta-llama/Llama-3.1-8B.
ModelSpec Llama31With8B() {
  ModelSpec spec = SpecOf("llama", 1e-5, {128256, 4096, 14336, 32, 32, 8, 128, 131072});
  spec.rope = Llama3Rope(8.0);
  spec.eos_token_ids = {128001};
  return spec;
}

// Source: config.json of meta-llama/Llama-3.2-1B.
ModelSpec Llama32With1B() {
  ModelSpec spec = SpecOf("llama", 1e-5, {128256, 2048, 8192, 16, 32, 8, 64, 131072});
  spec.rope = Llama3Rope(32.0);
  spec.tie_word_embeddings = true;
  spec.eos_token_ids = {128001};
  return spec;
}

// Source: config.json of ibm-granite/granite-8b-code-base-4k. Only its 128k sibling, trained on
// longer contexts, has a rope theta of 10,000,000.
ModelSpec Granite8BCode() {
  ModelSpec spec = SpecOf("llama", 1e-5, {49152, 4096, 14336, 36, 32, 8, 128, 4096});
  spec.rope.theta = 10000.0;
  spec.tie_word_embeddings = true;
  spec.qkv_bias = spec.o_bias = true;
  spec.mlp_bias = true;
  spec.eos_token_ids = {0};
  return spec;
}

// Source: config.json of mistralai/Mistral-7B-v0.1.
ModelSpec Mistral7BV01() {
  ModelSpec spec = SpecOf("mistral", 1e-5, {32000, 4096, 14336, 32, 32, 8, 128, 32768});
  spec.rope.theta = 10000.0;
  spec.sliding_window = 4096;
  spec.eos_token_ids = {2};
  return spec;
}

// Source: config.json of Qwen/Qwen2.5-7B.
ModelSpec Qwen25With7B() {
  ModelSpec spec = SpecOf("qwen2", 1e-6, {152064, 3584, 18944, 28, 28, 4, 128, 131072});
  spec.rope.theta = 1000000.0;
  spec.qkv_bias = true;
  spec.eos_token_ids = {151643};
  return spec;
}

// Source: config.json of Qwen/Qwen3-8B.
ModelSpec Qwen3With8B() {
  ModelSpec spec = SpecOf("qwen3", 1e-6, {151936, 4096, 12288, 36, 32, 8, 128, 40960});
  spec.rope.theta = 1000000.0;
  spec.qk_norm = true;
  spec.eos_token_ids = {151645};
  return spec;
}

// As llm-compressor quantises to FP8_DYNAMIC: a scale for each output.
ModelSpec Llama31With8BFp8() {
  ModelSpec spec = Llama31With8B();
  spec.weight_quantization =
      WeightQuantization{.granularity = ScaleGranularity::kChannel, .means_rounding = true};
  return spec;
}

// Source: config.json of Qwen/Qwen3-8B-FP8.
ModelSpec Qwen3With8BFp8() {
  ModelSpec spec = Qwen3With8B();
  spec.weight_quantization = WeightQuantization{.granularity = ScaleGranularity::kBlock,
                                                .scale_name = "weight_scale_inv",
                                                .means_rounding = true};
  return spec;
}

// As llm-compressor quantises to W4A16: symmetric, a bf16 scale for 128 inputs.
ModelSpec Llama31With8BInt4() {
  ModelSpec spec = Llama31With8B();
  spec.weight_quantization = WeightQuantization{
      .storage = WeightStorage::kPackedInt4, .group_size = 128, .symmetric = true};
  return spec;
}

// As GPTQ quantises it with inputs sorted by their size: symmetric, an f16 scale for 128 inputs.
ModelSpec Llama31With8BActOrder() {
  ModelSpec spec = Llama31With8B();
  spec.weight_quantization = WeightQuantization{.scale_name = "scales",
                                                .storage = WeightStorage::kGptq,
                                                .group_size = 128,
                                                .symmetric = true,
                                                .zero_point_offset = 1,
                                                .reorders_inputs = true};
  return spec;
}

// As AutoAWQ quantises it: zero points, scales for 128 inputs.
ModelSpec Qwen3With8BAwq() {
  ModelSpec spec = Qwen3With8B();
  spec.weight_quantization =
      WeightQuantization{.scale_name = "scales", .storage = WeightStorage::kAwq, .group_size = 128};
  return spec;
}

// What all of Gemma 2 and 3 have.
ModelSpec GemmaOf(const char* architecture, const Shape& shape, double query_pre_attn_scalar) {
  ModelSpec spec = SpecOf(architecture, 1e-6, shape);
  spec.tie_word_embeddings = true;
  spec.norm_offset = 1.0;
  spec.activation = Activation::kGeluTanh;
  spec.embedding_multiplier = std::sqrt(static_cast<double>(spec.hidden_size));
  spec.rounds_embedding_multiplier = true;
  spec.attention_multiplier = 1.0 / std::sqrt(query_pre_attn_scalar);
  spec.eos_token_ids = {1};
  return spec;
}

// All but every n-th layer.
std::vector<bool> SlidingPattern(int64_t num_layers, int64_t n) {
  std::vector<bool> slides;
  for (int64_t layer = 0; layer < num_layers; ++layer) slides.push_back((layer + 1) % n != 0);
  return slides;
}

// Source: config.json of google/gemma-2-9b.
ModelSpec Gemma2With9B() {
  ModelSpec spec = GemmaOf("gemma2", {256000, 3584, 14336, 42, 16, 8, 256, 8192}, 256.0);
  spec.sliding_window = 4096;
  spec.slides = SlidingPattern(spec.num_layers, 2);
  spec.attention_softcap = 50.0;
  spec.logits_softcap = 30.0;
  return spec;
}

// Source: config.json of google/gemma-3-1b-pt.
ModelSpec Gemma3With1B() {
  ModelSpec spec = GemmaOf("gemma3", {262144, 1152, 6912, 26, 4, 1, 256, 32768}, 256.0);
  spec.qk_norm = true;
  spec.sliding_window = 512;
  spec.slides = SlidingPattern(spec.num_layers, 6);
  spec.rope.theta = 1000000.0;
  spec.sliding_rope = RopeSpec{.theta = 10000.0};
  return spec;
}

// The text part. Source: config.json of google/gemma-3-4b-it.
ModelSpec Gemma3With4B() {
  ModelSpec spec = GemmaOf("gemma3", {262208, 2560, 10240, 34, 8, 4, 256, 131072}, 256.0);
  spec.beside_vision = true;
  spec.qk_norm = true;
  spec.sliding_window = 1024;
  spec.slides = SlidingPattern(spec.num_layers, 6);
  spec.rope.theta = 1000000.0;
  spec.rope.scaling = RopeScaling::kLinear;
  spec.rope.factor = 8.0;
  spec.sliding_rope = RopeSpec{.theta = 10000.0};
  spec.eos_token_ids = {1, 106};
  return spec;
}

// Source: config.json of microsoft/phi-4.
ModelSpec Phi4() {
  ModelSpec spec = SpecOf("phi3", 1e-5, {100352, 5120, 17920, 40, 40, 10, 128, 16384});
  spec.rope.theta = 250000.0;
  spec.eos_token_ids = {100265};
  return spec;
}

// Source: config.json of microsoft/Phi-4-mini-instruct.
ModelSpec Phi4Mini() {
  ModelSpec spec = SpecOf("phi3", 1e-5, {200064, 3072, 8192, 32, 24, 8, 128, 131072});
  spec.rotary_dim = 96;
  spec.rope = {
      .theta = 10000.0,
      .scaling = RopeScaling::kLongRope,
      .factor = 32.0,
      .original_max_position_embeddings = 4096,
      .attention_factor = std::sqrt(1.0 + std::log(32.0) / std::log(4096.0)),
      .short_factors = std::vector<double>(48, 1.0),
      .long_factors = {1,           1.118320672, 1.250641126, 1.398617824, 1.564103225, 1.74916897,
                       1.956131817, 2.187582649, 2.446418898, 2.735880826, 3.059592084, 3.421605075,
                       3.826451687, 4.279200023, 4.785517845, 5.351743533, 5.984965424, 6.693110555,
                       7.485043894, 8.370679318, 9.36110372,  10.4687158,  11.70738129, 13.09260651,
                       14.64173252, 16.37415215, 18.31155283, 20.47818807, 22.90118105, 25.61086418,
                       28.64115884, 32.03,       32.1,        32.13,       32.23,       32.6,
                       32.61,       32.64,       32.66,       32.7,        32.71,       32.93,
                       32.97,       33.28,       33.49,       33.5,        44.16,       47.77}};
  spec.rope.FitContexts(spec.max_position_embeddings);
  spec.tie_word_embeddings = true;
  spec.eos_token_ids = {199999};
  return spec;
}

// Source: config.json of allenai/OLMo-2-1124-7B-Instruct.
ModelSpec Olmo2With7B() {
  ModelSpec spec = SpecOf("olmo2", 1e-6, {100352, 4096, 11008, 32, 32, 32, 128, 4096});
  spec.rope.theta = 500000.0;
  spec.qk_norm = spec.whole_qk_norm = true;
  spec.eos_token_ids = {100257};
  return spec;
}

ModelSpec WithExperts(ModelSpec spec, int64_t num_experts, int64_t experts_per_token,
                      int64_t expert_intermediate_size) {
  spec.num_experts = num_experts;
  spec.experts_per_token = experts_per_token;
  spec.expert_intermediate_size = expert_intermediate_size;
  return spec;
}

// Source: config.json of mistralai/Mixtral-8x7B-v0.1.
ModelSpec Mixtral8x7B() {
  ModelSpec spec = WithExperts(SpecOf("mixtral", 1e-5, {32000, 4096, 14336, 32, 32, 8, 128, 32768}),
                               8, 2, 14336);
  spec.rope.theta = 1000000.0;
  spec.eos_token_ids = {2};
  return spec;
}

// Source: config.json of Qwen/Qwen3-30B-A3B.
ModelSpec Qwen3With30BA3B() {
  ModelSpec spec = WithExperts(
      SpecOf("qwen3_moe", 1e-6, {151936, 2048, 6144, 48, 32, 4, 128, 40960}), 128, 8, 768);
  spec.rope.theta = 1000000.0;
  spec.qk_norm = true;
  spec.eos_token_ids = {151645};
  return spec;
}

// Source: config.json of Qwen/Qwen3-30B-A3B-FP8.
ModelSpec Qwen3With30BA3BFp8() {
  ModelSpec spec = Qwen3With30BA3B();
  spec.weight_quantization = WeightQuantization{.granularity = ScaleGranularity::kBlock,
                                                .scale_name = "weight_scale_inv",
                                                .means_rounding = true};
  return spec;
}

// As llm-compressor quantises to W4A16.
ModelSpec Qwen3With30BA3BInt4() {
  ModelSpec spec = Qwen3With30BA3B();
  spec.weight_quantization = WeightQuantization{
      .storage = WeightStorage::kPackedInt4, .group_size = 128, .symmetric = true};
  return spec;
}

// Source: config.json of ibm-granite/granite-3.1-3b-a800m-instruct.
ModelSpec Granite31With3BA800M() {
  ModelSpec spec = WithExperts(
      SpecOf("granitemoe", 1e-6, {49155, 1536, 512, 32, 24, 8, 64, 131072}), 40, 8, 512);
  spec.rope.theta = 10000000.0;
  spec.tie_word_embeddings = true;
  spec.embedding_multiplier = 12.0;
  spec.attention_multiplier = 0.015625;
  spec.residual_multiplier = 0.22;
  spec.logits_scaling = 6.0;
  spec.eos_token_ids = {0};
  return spec;
}

// Sources: config.json of openai/gpt-oss-20b and openai/gpt-oss-120b.
ModelSpec GptOss(int64_t num_layers, int64_t num_experts) {
  ModelSpec spec =
      WithExperts(SpecOf("gpt_oss", 1e-5, {201088, 2880, 2880, num_layers, 64, 8, 64, 131072}),
                  num_experts, 4, 2880);
  spec.rope = {.theta = 150000.0,
               .scaling = RopeScaling::kYarn,
               .factor = 32.0,
               .original_max_position_embeddings = 4096,
               .attention_factor = 0.1 * std::log(32.0) + 1.0,
               .beta_fast = 32.0,
               .beta_slow = 1.0,
               .truncate = false};
  spec.qkv_bias = spec.o_bias = true;
  spec.activation = Activation::kLimited;
  spec.gate_limit = 7.0;
  spec.gate_slope = 1.702;
  spec.attention_sinks = true;
  spec.mxfp4_experts = true;
  spec.sliding_window = 128;
  for (int64_t layer = 0; layer < num_layers; ++layer) spec.slides.push_back(layer % 2 == 0);
  spec.eos_token_ids = {200002};
  return spec;
}
ModelSpec GptOss20B() { return GptOss(24, 32); }
ModelSpec GptOss120B() { return GptOss(36, 128); }

// Source: config.json of ibm-granite/granite-4.0-h-micro.
ModelSpec Granite4HMicro() {
  ModelSpec spec = SpecOf("granitemoehybrid", 1e-5, {100352, 2048, 8192, 40, 32, 8, 64, 131072});
  spec.has_rope = false;
  spec.mamba = MambaSpec{
      .num_heads = 64, .head_dim = 64, .num_groups = 1, .state_size = 128, .conv_width = 4};
  spec.mamba_layers.assign(40, true);
  for (const size_t layer : {5, 15, 25, 35}) spec.mamba_layers[layer] = false;
  spec.tie_word_embeddings = true;
  spec.embedding_multiplier = 12.0;
  spec.attention_multiplier = 0.015625;
  spec.residual_multiplier = 0.22;
  spec.logits_scaling = 8.0;
  spec.eos_token_ids = {100257};
  return spec;
}

// Source: config.json of ibm-fms/Bamba-9B.
ModelSpec Bamba9B() {
  ModelSpec spec = SpecOf("bamba", 1e-5, {128256, 4096, 14336, 32, 32, 8, 128, 262144});
  spec.rope.theta = 10000.0;
  spec.rotary_dim = 64;
  spec.mamba = MambaSpec{
      .num_heads = 128, .head_dim = 64, .num_groups = 1, .state_size = 128, .conv_width = 4};
  spec.mamba_layers.assign(32, true);
  for (const size_t layer : {9, 18, 27}) spec.mamba_layers[layer] = false;
  spec.eos_token_ids = {128001};
  return spec;
}

struct Preset {
  std::string_view name;
  ModelSpec (*spec)();
};
constexpr Preset kPresets[] = {
    {"llama-3.1-8b", Llama31With8B},
    {"granite-8b-code", Granite8BCode},
    {"llama-3.2-1b", Llama32With1B},
    {"mistral-7b-v0.1", Mistral7BV01},
    {"qwen2.5-7b", Qwen25With7B},
    {"qwen3-8b", Qwen3With8B},
    {"gemma-2-9b", Gemma2With9B},
    {"gemma-3-1b", Gemma3With1B},
    {"gemma-3-4b", Gemma3With4B},
    {"phi-4", Phi4},
    {"phi-4-mini", Phi4Mini},
    {"olmo-2-7b", Olmo2With7B},
    {"mixtral-8x7b", Mixtral8x7B},
    {"qwen3-30b-a3b", Qwen3With30BA3B},
    {"granite-3.1-3b-a800m", Granite31With3BA800M},
    {"gpt-oss-20b", GptOss20B},
    {"gpt-oss-120b", GptOss120B},
    {"granite-4.0-h-micro", Granite4HMicro},
    {"bamba-9b", Bamba9B},
    {"llama-3.1-8b-fp8", Llama31With8BFp8},
    {"qwen3-8b-fp8", Qwen3With8BFp8},
    {"llama-3.1-8b-int4", Llama31With8BInt4},
    {"llama-3.1-8b-act-order", Llama31With8BActOrder},
    {"qwen3-8b-awq", Qwen3With8BAwq},
    {"qwen3-30b-a3b-fp8", Qwen3With30BA3BFp8},
    {"qwen3-30b-a3b-int4", Qwen3With30BA3BInt4},
};

}  // namespace

absl::StatusOr<ModelSpec> PresetSpec(std::string_view name) {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) {
    if (preset.name == name) {
      ModelSpec spec = preset.spec();
      spec.name = std::string(name);
      if (spec.attention_multiplier == 0.0)
        spec.attention_multiplier = 1.0 / std::sqrt(static_cast<double>(spec.head_dim));
      return spec;
    }
    names.emplace_back(preset.name);
  }
  return absl::NotFoundError(
      absl::StrCat("preset: got '", std::string(name), "', allowed ", absl::StrJoin(names, ", ")));
}

std::vector<std::string_view> PresetNames() {
  std::vector<std::string_view> names;
  for (const Preset& preset : kPresets) names.push_back(preset.name);
  return names;
}

}  // namespace reprise::models
