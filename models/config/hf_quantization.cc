// SPDX-License-Identifier: Apache-2.0
#include "models/config/hf_quantization.h"

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

constexpr char kConfig[] = "config.json: quantization_config.";
constexpr char kScheme[] = "config.json: quantization_config.kv_cache_scheme.";
constexpr char kGroups[] = "config.json: quantization_config.config_groups.";

// Notes of the program that wrote them.
constexpr std::string_view kInertFields[] = {"quantization_status", "global_compression_ratio",
                                             "version"};
// What would be done to weights and activations beside.
constexpr std::string_view kEmptyFields[] = {"sparsity_config", "transform_config"};
constexpr std::string_view kCompressedFields[] = {"quant_method", "kv_cache_scheme",
                                                  "config_groups", "format", "ignore"};
constexpr std::string_view kFp8Fields[] = {
    "quant_method",           "activation_scheme", "fmt", "weight_block_size", "ignored_layers",
    "modules_to_not_convert", "kv_cache_scheme"};
// How scales were found, which leaves no trace in them.
constexpr std::string_view kInertSchemeFields[] = {"observer", "observer_kwargs", "group_size",
                                                   "actorder", "scale_dtype",     "zp_dtype"};
constexpr std::string_view kSchemeFields[] = {"num_bits", "type",     "symmetric",
                                              "dynamic",  "strategy", "block_structure"};
constexpr std::string_view kGroupFields[] = {"targets", "weights", "input_activations",
                                             "output_activations", "format"};

template <size_t kCount>
bool IsAmong(const std::string_view (&names)[kCount], std::string_view name) {
  for (const std::string_view known : names)
    if (known == name) return true;
  return false;
}

absl::Status RefuseUnknown(const std::string& where, const std::string& name, const Json& value) {
  return absl::InvalidArgumentError(
      absl::StrCat(where, name, ": got ", ShowJson(value),
                   ", allowed only fields whose meaning is known; this one is not"));
}

// What a scheme of 8-bit floats says, of weights, activations or the KV cache.
struct Scheme {
  bool dynamic = false;
  std::string strategy;
};
absl::StatusOr<Scheme> ReadScheme(const Json& json, const std::string& where) {
  const JsonFields fields(json, where);
  for (const auto& [name, value] : json.items()) {
    if (!IsAmong(kSchemeFields, name) && !IsAmong(kInertSchemeFields, name))
      return RefuseUnknown(where, name, value);
  }
  REPRISE_RETURN_IF_ERROR(fields.Integer("num_bits", 8, 8).status());
  REPRISE_ASSIGN_OR_RETURN(const std::string type, fields.StringOr("type", "int"));
  if (type != "float") return fields.Refuse("type", "'float'");
  REPRISE_ASSIGN_OR_RETURN(const bool symmetric, fields.BooleanOr("symmetric", true));
  if (!symmetric) return fields.Refuse("symmetric", "true");
  Scheme scheme;
  REPRISE_ASSIGN_OR_RETURN(scheme.dynamic, fields.BooleanOr("dynamic", false));
  REPRISE_ASSIGN_OR_RETURN(scheme.strategy, fields.StringOr("strategy", "tensor"));
  return scheme;
}

// 8-bit floats, with scales that the checkpoint has.
absl::Status ReadKvCache(const JsonFields& quantization, ModelSpec& spec) {
  const Json* const json = quantization.Find("kv_cache_scheme");
  if (json == nullptr) return absl::OkStatus();
  if (!json->is_object()) return quantization.Refuse("kv_cache_scheme", "an object, or null");
  REPRISE_ASSIGN_OR_RETURN(const Scheme scheme, ReadScheme(*json, kScheme));
  const JsonFields fields(*json, kScheme);
  if (scheme.dynamic) return fields.Refuse("dynamic", "false");
  if (scheme.strategy != "tensor" && scheme.strategy != "attn_head")
    return fields.Refuse("strategy", "'tensor' or 'attn_head'");
  spec.kv_cache_dtype = runtime::DType::kE4m3;
  return absl::OkStatus();
}

// Layers that are left alone: lm_head, and no other.
absl::Status CheckIgnored(const JsonFields& quantization, const char* name) {
  const Json* const list = quantization.Find(name);
  if (list == nullptr) return absl::OkStatus();
  const char* const kAllowed = "a list of nothing but 'lm_head'";
  if (!list->is_array()) return quantization.Refuse(name, kAllowed);
  for (const Json& entry : *list) {
    if (!entry.is_string()) return quantization.Refuse(name, kAllowed);
    const auto& layer = entry.get_ref<const std::string&>();
    if (layer != "lm_head" && layer != "re:.*lm_head") return quantization.Refuse(name, kAllowed);
  }
  return absl::OkStatus();
}

// [128, 128], or as compressed-tensors also writes it, "128x128".
bool IsKnownBlock(const Json& value) {
  return value == Json::array({kScaleBlock, kScaleBlock}) || value == "128x128";
}

absl::Status ReadWeightsOfGroup(const Json& group, const std::string& where,
                                WeightQuantization& weights) {
  const JsonFields fields(group, where);
  for (const auto& [name, value] : group.items())
    if (!IsAmong(kGroupFields, name)) return RefuseUnknown(where, name, value);
  const Json* const targets = fields.Find("targets");
  if (targets == nullptr || *targets != Json::array({"Linear"}))
    return fields.Refuse("targets", "['Linear']");
  if (fields.Find("output_activations") != nullptr)
    return fields.Refuse("output_activations", "null");
  const Json* const json = fields.Find("weights");
  if (json == nullptr || !json->is_object()) return fields.Refuse("weights", "an object");
  const std::string of_weights = absl::StrCat(where, "weights.");
  REPRISE_ASSIGN_OR_RETURN(const Scheme scheme, ReadScheme(*json, of_weights));
  const JsonFields weight_fields(*json, of_weights);
  if (scheme.dynamic) return weight_fields.Refuse("dynamic", "false");
  if (scheme.strategy == "tensor") {
    weights.granularity = ScaleGranularity::kTensor;
  } else if (scheme.strategy == "channel") {
    weights.granularity = ScaleGranularity::kChannel;
  } else if (scheme.strategy == "block") {
    const Json* const block = weight_fields.Find("block_structure");
    if (block == nullptr || !IsKnownBlock(*block))
      return weight_fields.Refuse("block_structure", "[128, 128]");
    weights.granularity = ScaleGranularity::kBlock;
  } else {
    return weight_fields.Refuse("strategy", "'tensor', 'channel' or 'block'");
  }
  const Json* const activations = fields.Find("input_activations");
  if (activations == nullptr) return absl::OkStatus();
  if (!activations->is_object()) return fields.Refuse("input_activations", "an object, or null");
  REPRISE_ASSIGN_OR_RETURN(const Scheme of_inputs,
                           ReadScheme(*activations, absl::StrCat(where, "input_activations.")));
  weights.input_scales = !of_inputs.dynamic;
  return absl::OkStatus();
}

absl::Status ReadCompressedTensors(const Json& config, const JsonFields& quantization,
                                   ModelSpec& spec) {
  for (const auto& [name, value] : config.items()) {
    if (IsAmong(kCompressedFields, name) || IsAmong(kInertFields, name)) continue;
    if (!IsAmong(kEmptyFields, name)) return RefuseUnknown(kConfig, name, value);
    if (!value.is_null() && !value.empty())
      return quantization.Refuse(name.c_str(), "nothing: no instance reads such weights");
  }
  const Json* const groups = quantization.Find("config_groups");
  if (groups == nullptr || groups->empty()) return absl::OkStatus();
  if (!groups->is_object() || groups->size() != 1)
    return quantization.Refuse("config_groups", "an object of one group");
  REPRISE_RETURN_IF_ERROR(CheckIgnored(quantization, "ignore"));
  REPRISE_ASSIGN_OR_RETURN(const std::string format,
                           quantization.StringOr("format", "float-quantized"));
  if (format != "float-quantized" && format != "naive-quantized")
    return quantization.Refuse("format", "'float-quantized' or 'naive-quantized'");
  const std::string& name = groups->begin().key();
  const Json& group = groups->begin().value();
  if (!group.is_object()) return JsonFields(*groups, kGroups).Refuse(name.c_str(), "an object");
  WeightQuantization weights;
  REPRISE_RETURN_IF_ERROR(ReadWeightsOfGroup(group, absl::StrCat(kGroups, name, "."), weights));
  spec.weight_quantization = weights;
  return absl::OkStatus();
}

absl::Status ReadFp8(const Json& config, const JsonFields& quantization, ModelSpec& spec) {
  for (const auto& [name, value] : config.items())
    if (!IsAmong(kFp8Fields, name)) return RefuseUnknown(kConfig, name, value);
  REPRISE_ASSIGN_OR_RETURN(const std::string fmt, quantization.StringOr("fmt", "e4m3"));
  if (fmt != "e4m3") return quantization.Refuse("fmt", "'e4m3'");
  REPRISE_ASSIGN_OR_RETURN(const std::string activations,
                           quantization.StringOr("activation_scheme", "dynamic"));
  if (activations != "dynamic" && activations != "static")
    return quantization.Refuse("activation_scheme", "'dynamic' or 'static'");
  REPRISE_RETURN_IF_ERROR(CheckIgnored(quantization, "modules_to_not_convert"));
  REPRISE_RETURN_IF_ERROR(CheckIgnored(quantization, "ignored_layers"));
  WeightQuantization weights{.input_scales = activations == "static"};
  if (const Json* const block = quantization.Find("weight_block_size")) {
    if (!IsKnownBlock(*block)) return quantization.Refuse("weight_block_size", "[128, 128]");
    weights.granularity = ScaleGranularity::kBlock;
    weights.scale_name = "weight_scale_inv";
  }
  spec.weight_quantization = weights;
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadQuantization(const JsonFields& fields, ModelSpec& spec) {
  const Json* const config = fields.Find("quantization_config");
  if (config == nullptr) return absl::OkStatus();
  if (!config->is_object()) return fields.Refuse("quantization_config", "an object, or null");
  const JsonFields quantization(*config, kConfig);
  REPRISE_ASSIGN_OR_RETURN(const std::string method, quantization.StringOr("quant_method", ""));
  if (method == "compressed-tensors") {
    REPRISE_RETURN_IF_ERROR(ReadCompressedTensors(*config, quantization, spec));
  } else if (method == "fp8") {
    REPRISE_RETURN_IF_ERROR(ReadFp8(*config, quantization, spec));
  } else {
    return quantization.Refuse("quant_method", "'compressed-tensors' or 'fp8'");
  }
  return ReadKvCache(quantization, spec);
}

}  // namespace reprise::models
