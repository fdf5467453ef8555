// SPDX-License-Identifier: Apache-2.0
// The field tables of Hugging Face configs: for each architecture, what every field of config.json
// means to us. Data and the one check over it; reading the consumed fields is hf_config.cc's.
// A new architecture begins with a table here.
#ifndef REPRISE_MODELS_CONFIG_HF_FIELDS_H_
#define REPRISE_MODELS_CONFIG_HF_FIELDS_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "models/config/json_input.h"

namespace reprise::models {

enum class FieldRole : uint8_t {
  kConsumed,  // becomes part of the ModelSpec, or is checked where it is read
  kInert,     // means nothing for inference, whatever its value
  kNeutral,   // refused unless its value is one that changes nothing
};

struct FieldRule {
  const char* name;
  FieldRole role;
  const char* neutral = nullptr;  // kNeutral: a JSON array of the values allowed; null always is
};

struct ArchitectureFields {
  const char* architecture;        // ModelSpec::architecture
  const char* class_name;          // as in the config's `architectures`
  const char* model_type;          // as in the config's `model_type`
  std::span<const FieldRule> own;  // beyond kSharedFields, or instead of them
  // What transformers takes where the config does not name the field.
  int64_t default_kv_heads = 0;        // 0: as many as query heads
  int64_t default_head_dim = 0;        // 0: hidden_size / num_attention_heads
  int64_t default_sliding_window = 0;  // 0: none
};

// Llama, Granite, Mistral, Qwen2 and Qwen3. docs/models.md shows the tables to users.
std::span<const ArchitectureFields> KnownArchitectures();

// Every field of `config` must have a rule, in the architecture's own table or in the one that all
// architectures share, and satisfy it. Errors: InvalidArgument with field, got, allowed.
absl::Status CheckConfigFields(const Json& config, const ArchitectureFields& architecture);

// The same for the object of `rope_scaling` or `rope_parameters`, named by `where` in errors.
absl::Status CheckRopeFields(const Json& rope, std::string_view where);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_CONFIG_HF_FIELDS_H_
