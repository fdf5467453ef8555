// SPDX-License-Identifier: Apache-2.0
// Published model shapes; see model_presets.h.
#include "runtime/model_presets.h"

#include <cmath>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace reprise::runtime {
namespace {

ModelSpec SpecOf(const char* architecture, double rms_norm_eps) {
  ModelSpec spec;
  spec.architecture = architecture;
  spec.rms_norm_eps = rms_norm_eps;
  spec.checkpoint_dtype = DType::kBf16;
  return spec;
}

ModelSpec LlamaSpec() { return SpecOf("llama", 1e-5); }

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
  ModelSpec spec = LlamaSpec();
  spec.vocab_size = 128256;
  spec.hidden_size = 4096;
  spec.intermediate_size = 14336;
  spec.num_layers = 32;
  spec.num_heads = 32;
  spec.num_kv_heads = 8;
  spec.head_dim = 128;
  spec.max_position_embeddings = 131072;
  spec.rope = Llama3Rope(8.0);
  spec.eos_token_ids = {128001};
  return spec;
}

// Source: config.json of meta-llama/Llama-3.2-1B.
ModelSpec Llama32With1B() {
  ModelSpec spec = LlamaSpec();
  spec.vocab_size = 128256;
  spec.hidden_size = 2048;
  spec.intermediate_size = 8192;
  spec.num_layers = 16;
  spec.num_heads = 32;
  spec.num_kv_heads = 8;
  spec.head_dim = 64;
  spec.max_position_embeddings = 131072;
  spec.rope = Llama3Rope(32.0);
  spec.tie_word_embeddings = true;
  spec.eos_token_ids = {128001};
  return spec;
}

// Source: config.json of ibm-granite/granite-8b-code-base-4k. Only its 128k sibling, trained on
// longer contexts, has a rope theta of 10,000,000.
ModelSpec Granite8BCode() {
  ModelSpec spec = LlamaSpec();
  spec.vocab_size = 49152;
  spec.hidden_size = 4096;
  spec.intermediate_size = 14336;
  spec.num_layers = 36;
  spec.num_heads = 32;
  spec.num_kv_heads = 8;
  spec.head_dim = 128;
  spec.max_position_embeddings = 4096;
  spec.rope.theta = 10000.0;
  spec.tie_word_embeddings = true;
  spec.qkv_bias = spec.o_bias = true;
  spec.mlp_bias = true;
  spec.eos_token_ids = {0};
  return spec;
}

// Source: config.json of mistralai/Mistral-7B-v0.1.
ModelSpec Mistral7BV01() {
  ModelSpec spec = SpecOf("mistral", 1e-5);
  spec.vocab_size = 32000;
  spec.hidden_size = 4096;
  spec.intermediate_size = 14336;
  spec.num_layers = 32;
  spec.num_heads = 32;
  spec.num_kv_heads = 8;
  spec.head_dim = 128;
  spec.max_position_embeddings = 32768;
  spec.rope.theta = 10000.0;
  spec.sliding_window = 4096;
  spec.eos_token_ids = {2};
  return spec;
}

// Source: config.json of Qwen/Qwen2.5-7B.
ModelSpec Qwen25With7B() {
  ModelSpec spec = SpecOf("qwen2", 1e-6);
  spec.vocab_size = 152064;
  spec.hidden_size = 3584;
  spec.intermediate_size = 18944;
  spec.num_layers = 28;
  spec.num_heads = 28;
  spec.num_kv_heads = 4;
  spec.head_dim = 128;
  spec.max_position_embeddings = 131072;
  spec.rope.theta = 1000000.0;
  spec.qkv_bias = true;
  spec.eos_token_ids = {151643};
  return spec;
}

// Source: config.json of Qwen/Qwen3-8B.
ModelSpec Qwen3With8B() {
  ModelSpec spec = SpecOf("qwen3", 1e-6);
  spec.vocab_size = 151936;
  spec.hidden_size = 4096;
  spec.intermediate_size = 12288;
  spec.num_layers = 36;
  spec.num_heads = 32;
  spec.num_kv_heads = 8;
  spec.head_dim = 128;
  spec.max_position_embeddings = 40960;
  spec.rope.theta = 1000000.0;
  spec.qk_norm = true;
  spec.eos_token_ids = {151645};
  return spec;
}

struct Preset {
  std::string_view name;
  ModelSpec (*spec)();
};
constexpr Preset kPresets[] = {
    {"llama-3.1-8b", Llama31With8B}, {"granite-8b-code", Granite8BCode},
    {"llama-3.2-1b", Llama32With1B}, {"mistral-7b-v0.1", Mistral7BV01},
    {"qwen2.5-7b", Qwen25With7B},    {"qwen3-8b", Qwen3With8B},
};

}  // namespace

absl::StatusOr<ModelSpec> PresetSpec(std::string_view name) {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) {
    if (preset.name == name) {
      ModelSpec spec = preset.spec();
      spec.name = std::string(name);
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

}  // namespace reprise::runtime
