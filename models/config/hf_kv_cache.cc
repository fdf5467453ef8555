// SPDX-License-Identifier: Apache-2.0
#include "models/config/hf_kv_cache.h"

#include <array>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

constexpr char kConfig[] = "config.json: quantization_config.";
constexpr char kScheme[] = "config.json: quantization_config.kv_cache_scheme.";

// Notes of the program that wrote them.
constexpr std::string_view kInertFields[] = {"format", "ignore", "quantization_status",
                                             "global_compression_ratio", "version"};
// What would be done to weights and activations.
constexpr std::string_view kEmptyFields[] = {"config_groups", "sparsity_config",
                                             "transform_config"};
// How scales were found, which leaves no trace in them.
constexpr std::string_view kInertSchemeFields[] = {
    "observer", "observer_kwargs", "block_structure", "group_size",
    "actorder", "scale_dtype",     "zp_dtype"};
constexpr std::string_view kSchemeFields[] = {"num_bits", "type", "symmetric", "dynamic",
                                              "strategy"};

template <size_t kCount>
bool IsAmong(const std::string_view (&names)[kCount], std::string_view name) {
  for (const std::string_view known : names)
    if (known == name) return true;
  return false;
}

absl::Status RefuseUnknown(const char* where, const std::string& name, const Json& value) {
  return absl::InvalidArgumentError(
      absl::StrCat(where, name, ": got ", ShowJson(value),
                   ", allowed only fields whose meaning is known; this one is not"));
}

// 8-bit floats, with scales that the checkpoint has.
absl::Status CheckScheme(const Json& scheme) {
  const JsonFields fields(scheme, kScheme);
  for (const auto& [name, value] : scheme.items()) {
    if (!IsAmong(kSchemeFields, name) && !IsAmong(kInertSchemeFields, name))
      return RefuseUnknown(kScheme, name, value);
  }
  REPRISE_RETURN_IF_ERROR(fields.Integer("num_bits", 8, 8).status());
  REPRISE_ASSIGN_OR_RETURN(const std::string type, fields.StringOr("type", "int"));
  if (type != "float") return fields.Refuse("type", "'float'");
  REPRISE_ASSIGN_OR_RETURN(const bool symmetric, fields.BooleanOr("symmetric", true));
  if (!symmetric) return fields.Refuse("symmetric", "true");
  REPRISE_ASSIGN_OR_RETURN(const bool dynamic, fields.BooleanOr("dynamic", false));
  if (dynamic) return fields.Refuse("dynamic", "false");
  REPRISE_ASSIGN_OR_RETURN(const std::string strategy, fields.StringOr("strategy", "tensor"));
  if (strategy != "tensor" && strategy != "attn_head")
    return fields.Refuse("strategy", "'tensor' or 'attn_head'");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::optional<runtime::DType>> ReadKvCacheScheme(const JsonFields& fields) {
  const Json* const config = fields.Find("quantization_config");
  if (config == nullptr) return std::nullopt;
  const char* const kAllowed = "an object with a kv_cache_scheme and nothing for weights, or null";
  if (!config->is_object()) return fields.Refuse("quantization_config", kAllowed);
  const JsonFields quantization(*config, kConfig);
  REPRISE_ASSIGN_OR_RETURN(const std::string method, quantization.StringOr("quant_method", ""));
  if (method != "compressed-tensors")
    return quantization.Refuse("quant_method", "'compressed-tensors'");
  for (const auto& [name, value] : config->items()) {
    if (name == "quant_method" || name == "kv_cache_scheme" || IsAmong(kInertFields, name))
      continue;
    if (!IsAmong(kEmptyFields, name)) return RefuseUnknown(kConfig, name, value);
    if (!value.is_null() && !value.empty())
      return quantization.Refuse(name.c_str(), "nothing: weights must not be quantised");
  }
  const Json* const scheme = quantization.Find("kv_cache_scheme");
  if (scheme == nullptr) return std::nullopt;
  if (!scheme->is_object()) return quantization.Refuse("kv_cache_scheme", "an object, or null");
  REPRISE_RETURN_IF_ERROR(CheckScheme(*scheme));
  return runtime::DType::kE4m3;
}

}  // namespace reprise::models
