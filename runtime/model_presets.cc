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

ModelSpec LlamaSpec() {
  ModelSpec spec;
  spec.architecture = "llama";
  spec.rms_norm_eps = 1e-5;
  spec.checkpoint_dtype = DType::kBf16;
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
  spec.attention_bias = true;
  spec.mlp_bias = true;
  spec.eos_token_ids = {0};
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
