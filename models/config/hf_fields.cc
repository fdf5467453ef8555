// SPDX-License-Identifier: Apache-2.0
// The fields that all architectures share, and the check; see hf_fields.h. Sources: the
// configuration classes of these models and their base class in transformers 4 and 5, and published
// config.json files.
#include "models/config/hf_fields.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

using enum FieldRole;

constexpr FieldRule kSharedFields[] = {
    // What a model is.
    {"architectures", kConsumed},
    {"model_type", kConsumed},
    {"vocab_size", kConsumed},
    {"hidden_size", kConsumed},
    {"intermediate_size", kConsumed},
    {"num_hidden_layers", kConsumed},
    {"num_attention_heads", kConsumed},
    {"num_key_value_heads", kConsumed},
    {"head_dim", kConsumed},
    {"max_position_embeddings", kConsumed},
    {"original_max_position_embeddings", kConsumed},
    {"rms_norm_eps", kConsumed},
    {"tie_word_embeddings", kConsumed},
    {"attention_bias", kConsumed},
    {"mlp_bias", kConsumed},
    {"eos_token_id", kConsumed},
    {"rope_theta", kConsumed},       // transformers 4
    {"rope_scaling", kConsumed},     // transformers 4
    {"rope_parameters", kConsumed},  // transformers 5
    {"partial_rotary_factor", kConsumed},
    {"torch_dtype", kConsumed},  // transformers 4
    {"dtype", kConsumed},        // transformers 5
    {"quantization_config", kConsumed},

    // Would change the computation: allowed only at the value that does not.
    {"hidden_act", kNeutral, R"(["silu"])"},
    {"pretraining_tp", kNeutral, "[1]"},
    {"rope_interleaved", kNeutral, "[false]"},
    {"sliding_window", kNeutral, "[]"},
    {"use_sliding_window", kNeutral, "[false]"},
    {"use_bidirectional_attention", kNeutral, "[false]"},
    {"is_causal", kNeutral, "[true]"},
    {"quantization", kNeutral, "[]"},
    {"compression_config", kNeutral, "[]"},
    {"auto_map", kNeutral, "[{}]"},  // names Python code that replaces the model's own
    {"per_layer_config", kNeutral, "[{}]"},
    {"pruned_heads", kNeutral, "[{}]"},
    {"chunk_size_feed_forward", kNeutral, "[0]"},
    {"is_encoder_decoder", kNeutral, "[false]"},
    {"add_cross_attention", kNeutral, "[false]"},
    {"cross_attention_hidden_size", kNeutral, "[]"},
    {"tie_encoder_decoder", kNeutral, "[false]"},

    // Where the model came from, and other programs' notes.
    {"_name_or_path", kInert},
    {"name_or_path", kInert},
    {"_commit_hash", kInert},
    {"transformers_version", kInert},
    {"transformers.js_config", kInert},
    {"is_llama_config", kInert},
    {"unsloth_version", kInert},
    {"unsloth_fixed", kInert},
    {"tokenizer_class", kInert},
    {"model_max_length", kInert},
    {"max_sequence_length", kInert},
    {"prefix", kInert},
    {"task_specific_params", kInert},
    {"finetuning_task", kInert},

    // Training, and how transformers itself runs a model.
    {"attention_dropout", kInert},
    {"initializer_range", kInert},
    {"gradient_checkpointing", kInert},
    {"neftune_noise_alpha", kInert},
    {"use_cache", kInert},
    {"_attn_implementation", kInert},
    {"_attn_implementation_autoset", kInert},
    {"_attn_implementation_internal", kInert},
    {"attn_implementation", kInert},
    {"is_decoder", kInert},
    {"output_attentions", kInert},
    {"output_hidden_states", kInert},
    {"return_dict", kInert},
    {"torchscript", kInert},
    {"tf_legacy_loss", kInert},
    {"use_bfloat16", kInert},

    // Classification heads, which a causal model has not.
    {"id2label", kInert},
    {"label2id", kInert},
    {"num_labels", kInert},
    {"problem_type", kInert},

    // Special tokens that only a tokenizer uses.
    {"bos_token_id", kInert},
    {"pad_token_id", kInert},
    {"sep_token_id", kInert},
    {"decoder_start_token_id", kInert},

    // Defaults of transformers' own generate(); a request brings its own.
    {"bad_words_ids", kInert},
    {"begin_suppress_tokens", kInert},
    {"diversity_penalty", kInert},
    {"do_sample", kInert},
    {"early_stopping", kInert},
    {"encoder_no_repeat_ngram_size", kInert},
    {"exponential_decay_length_penalty", kInert},
    {"forced_bos_token_id", kInert},
    {"forced_eos_token_id", kInert},
    {"length_penalty", kInert},
    {"max_length", kInert},
    {"min_length", kInert},
    {"no_repeat_ngram_size", kInert},
    {"num_beam_groups", kInert},
    {"num_beams", kInert},
    {"num_return_sequences", kInert},
    {"output_scores", kInert},
    {"remove_invalid_values", kInert},
    {"repetition_penalty", kInert},
    {"return_dict_in_generate", kInert},
    {"suppress_tokens", kInert},
    {"temperature", kInert},
    {"top_k", kInert},
    {"top_p", kInert},
    {"typical_p", kInert},
};

constexpr FieldRule kRopeFields[] = {
    {"rope_type", kConsumed},
    {"type", kConsumed},  // the older name of rope_type
    {"rope_theta", kConsumed},
    {"factor", kConsumed},
    {"low_freq_factor", kConsumed},
    {"high_freq_factor", kConsumed},
    {"original_max_position_embeddings", kConsumed},
    {"beta_fast", kConsumed},
    {"beta_slow", kConsumed},
    {"mscale", kConsumed},
    {"mscale_all_dim", kConsumed},
    {"attention_factor", kConsumed},
    {"truncate", kConsumed},
    {"short_factor", kConsumed},
    {"long_factor", kConsumed},
    {"partial_rotary_factor", kConsumed},
};

// Of the consumed ones, those that count around text_config (hf_parts.h). Of any other the value is
// that in text_config, or it is refused.
constexpr std::string_view kBesideText[] = {
    "architectures", "model_type", "tie_word_embeddings", "eos_token_id",
    "torch_dtype",   "dtype",      "quantization_config"};

const FieldRule* FindRule(std::span<const FieldRule> rules, const std::string& name) {
  for (const FieldRule& rule : rules) {
    if (name == rule.name) return &rule;
  }
  return nullptr;
}

absl::Status CheckField(const FieldRule* rule, const std::string& name, const Json& value) {
  if (rule == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(ShowJson(name), ": got ", ShowJson(value),
                     ", allowed only fields whose meaning is known; this one is not"));
  }
  if (rule->role != kNeutral || value.is_null()) return absl::OkStatus();
  const Json neutral = Json::parse(rule->neutral, nullptr, /*allow_exceptions=*/false);
  for (const Json& allowed : neutral) {
    // A number compares by value, but true must not pass as 1.
    if (allowed.is_boolean() == value.is_boolean() && allowed == value) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": got ", ShowJson(value), ", allowed ",
                   neutral.empty() ? "null" : ShowJson(neutral.front()), " or absent"));
}

absl::Status Under(std::string_view where, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(
      status.code(), absl::StrCat(absl::string_view(where.data(), where.size()), status.message()));
}

void AddFinding(std::vector<FieldFinding>& findings, const std::string& name, const FieldRule* rule,
                const Json& value, const absl::Status& status) {
  findings.push_back({name, ShowJson(value), rule, Under("config.json: ", status)});
}

// A field of all models, beside text_config.
absl::Status CheckBesideText(const ConfigParts& parts, const FieldRule& rule, const Json& value) {
  const bool counts =
      std::find(std::begin(kBesideText), std::end(kBesideText), rule.name) != std::end(kBesideText);
  if (rule.role != kConsumed || counts || value.is_null()) return absl::OkStatus();
  const Json* const within = parts.text_fields().Find(rule.name);
  if (within != nullptr && *within == value) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(rule.name, ": got ", ShowJson(value),
                                                 ", allowed the same as ", kTextConfig, ".",
                                                 rule.name, ", which counts, or absent"));
}

void CheckTextFields(const ConfigParts& parts, std::vector<FieldFinding>& findings) {
  for (const auto& [name, value] : parts.text().items()) {
    const FieldRule* rule = FindRule(parts.vision()->within, name);
    if (rule == nullptr) rule = FindRule(parts.architecture().own, name);
    if (rule == nullptr) rule = FindRule(kSharedFields, name);
    const std::string path = absl::StrCat(kTextConfig, ".", name);
    absl::Status status = CheckField(rule, path, value);
    if (status.ok() && name == "quantization_config" && !value.is_null() &&
        (!parts.top().contains(name) || parts.top()[name] != value))
      status = absl::InvalidArgumentError(absl::StrCat(
          path, ": got ", ShowJson(value), ", allowed the same as quantization_config or absent"));
    AddFinding(findings, path, rule, value, status);
  }
}

}  // namespace

std::vector<FieldFinding> CheckConfigFields(const ConfigParts& parts) {
  std::vector<FieldFinding> findings;
  for (const auto& [name, value] : parts.top().items()) {
    const FieldRule* const own = FindRule(
        parts.vision() != nullptr ? parts.vision()->beside : parts.architecture().own, name);
    const FieldRule* const rule = own != nullptr ? own : FindRule(kSharedFields, name);
    absl::Status status = CheckField(rule, name, value);
    if (status.ok() && parts.vision() != nullptr && own == nullptr)
      status = CheckBesideText(parts, *rule, value);
    AddFinding(findings, name, rule, value, status);
    if (parts.vision() != nullptr && name == kTextConfig) CheckTextFields(parts, findings);
  }
  return findings;
}

absl::Status CheckRopeFields(const Json& rope, std::string_view where) {
  for (const auto& [name, value] : rope.items()) {
    REPRISE_RETURN_IF_ERROR(Under(where, CheckField(FindRule(kRopeFields, name), name, value)));
  }
  return absl::OkStatus();
}

}  // namespace reprise::models
