// SPDX-License-Identifier: Apache-2.0
#include "models/config/hf_quantization.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "models/config/architectures.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

constexpr char kConfig[] = "config.json: quantization_config.";
constexpr char kScheme[] = "config.json: quantization_config.kv_cache_scheme.";
constexpr char kMeta[] = "config.json: quantization_config.meta.";
constexpr char kGroups[] = "config.json: quantization_config.config_groups.";

// Notes of the program that wrote them.
constexpr std::string_view kInertFields[] = {"quantization_status", "global_compression_ratio",
                                             "version"};
constexpr std::string_view kGptqFields[] = {"quant_method",     "bits",
                                            "group_size",       "desc_act",
                                            "static_groups",    "sym",
                                            "lm_head",          "dynamic",
                                            "pack_dtype",       "checkpoint_format",
                                            "is_marlin_format", "modules_in_block_to_quantize"};
// How elements were found, and what other programs run them with.
constexpr std::string_view kInertGptqFields[] = {"act_group_aware",
                                                 "backend",
                                                 "batch_size",
                                                 "block_name_to_quantize",
                                                 "cache_block_outputs",
                                                 "damp_auto_increment",
                                                 "damp_percent",
                                                 "dataset",
                                                 "disable_exllama",
                                                 "exllama_config",
                                                 "max_input_length",
                                                 "meta",
                                                 "model_file_base_name",
                                                 "model_name_or_path",
                                                 "model_seqlen",
                                                 "module_name_preceding_first_block",
                                                 "mse",
                                                 "pad_token_id",
                                                 "tokenizer",
                                                 "true_sequential",
                                                 "uri",
                                                 "use_cuda_fp16",
                                                 "use_exllama"};
constexpr std::string_view kAwqFields[] = {"quant_method", "bits",    "group_size",
                                           "zero_point",   "version", "modules_to_not_convert"};
constexpr std::string_view kInertAwqFields[] = {"backend", "do_fuse", "exllama_config",
                                                "fuse_max_seq_len", "modules_to_fuse"};
// What would be done to weights and activations beside.
constexpr std::string_view kEmptyFields[] = {"sparsity_config", "transform_config"};
constexpr std::string_view kCompressedFields[] = {"quant_method", "kv_cache_scheme",
                                                  "config_groups", "format", "ignore"};
constexpr std::string_view kFp8Fields[] = {
    "quant_method",           "activation_scheme", "fmt", "weight_block_size", "ignored_layers",
    "modules_to_not_convert", "kv_cache_scheme"};
constexpr std::string_view kMxfp4Fields[] = {"quant_method", "modules_to_not_convert",
                                             "dequantize"};
constexpr const char* kMxfp4Ignored[] = {"model.layers.*.self_attn", "model.layers.*.mlp.router",
                                         "model.embed_tokens", "lm_head"};
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

absl::Status RefuseUnknownOfScheme(const Json& json, const std::string& where) {
  for (const auto& [name, value] : json.items()) {
    if (!IsAmong(kSchemeFields, name) && !IsAmong(kInertSchemeFields, name))
      return RefuseUnknown(where, name, value);
  }
  return absl::OkStatus();
}

// What a scheme of 8-bit floats says, of weights, activations or the KV cache.
struct Scheme {
  bool dynamic = false;
  std::string strategy;
};
absl::StatusOr<Scheme> ReadScheme(const Json& json, const std::string& where) {
  const JsonFields fields(json, where);
  REPRISE_RETURN_IF_ERROR(RefuseUnknownOfScheme(json, where));
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

// Whether a layer of a model with a vision part, or a regular expression for several, is of that
// part, which is not run; or its head.
bool IsBesideText(const std::string& layer) {
  std::string_view name = layer;
  for (const std::string_view start : {"re:", "^", ".*", "model.", "model\\."})
    if (name.starts_with(start)) name.remove_prefix(start.size());
  return name.starts_with("vision_tower") || name.starts_with("multi_modal_projector") ||
         name == "language_model.lm_head";
}

// Whether a layer is one that no checkpoint of ours has quantised, named by itself or by a regular
// expression for all of its kind. What a name leaves open is seen in the tensors.
bool IsNeverQuantised(const std::string& layer, const ModelSpec& spec) {
  if (layer == "lm_head" || layer == "re:.*lm_head") return true;
  if (spec.beside_vision && IsBesideText(layer)) return true;
  if (spec.num_experts == 0) return false;
  const std::string name = absl::StrReplaceAll(layer, {{"\\.", "."}, {"re:", ""}, {"$", ""}});
  for (const char* router : {"gate", "mlp.gate", "block_sparse_moe.gate"})
    if (name == router || absl::EndsWith(name, absl::StrCat(".", router)) ||
        absl::EndsWith(name, absl::StrCat(".*", router)))
      return true;
  return absl::EndsWith(name, "_layernorm") || absl::EndsWith(name, "_norm") ||
         name == "model.norm";
}

// Layers that are left alone: lm_head, a vision part, and no other.
absl::Status CheckIgnored(const JsonFields& quantization, const char* name, const ModelSpec& spec) {
  const Json* const list = quantization.Find(name);
  if (list == nullptr) return absl::OkStatus();
  const bool experts = spec.num_experts != 0;
  const std::string allowed =
      absl::StrCat("a list of nothing but 'lm_head'", experts ? ", norms and routers" : "",
                   spec.beside_vision ? " and layers of the vision part" : "");
  if (!list->is_array()) return quantization.Refuse(name, allowed);
  for (const Json& entry : *list) {
    if (!entry.is_string() || !IsNeverQuantised(entry.get_ref<const std::string&>(), spec))
      return quantization.Refuse(name, allowed);
  }
  return absl::OkStatus();
}

// [128, 128], or as compressed-tensors also writes it, "128x128".
bool IsKnownBlock(const Json& value) {
  return value == Json::array({kScaleBlock, kScaleBlock}) || value == "128x128";
}

// A group size that kernels have. all: what stands for one scale for an output, if anything.
absl::StatusOr<int32_t> ReadGroupSize(const JsonFields& fields, std::optional<int64_t> all) {
  REPRISE_ASSIGN_OR_RETURN(const int64_t size,
                           fields.IntegerOr("group_size", all.value_or(0), -1, INT32_MAX));
  if (all.has_value() && size == *all) return 0;
  if (size == kernels::kLeastScaleInputs || size == 2 * kernels::kLeastScaleInputs ||
      size == kernels::kScaleInputs)
    return static_cast<int32_t>(size);
  return fields.Refuse("group_size",
                       all.has_value() ? "32, 64 or 128, or -1 for all inputs" : "32, 64 or 128");
}

// Whether groups are of inputs that are not neighbours, which a tensor names. 'static' and 'weight'
// say how elements were found, and leave no trace.
absl::StatusOr<bool> ReadActivationOrder(const JsonFields& fields, const std::string& strategy) {
  const Json* const order = fields.Find("actorder");
  if (order == nullptr || *order == false || *order == "static" || *order == "weight") return false;
  if (*order != true && *order != "group" && *order != "dynamic")
    return fields.Refuse("actorder", "null, 'static' or 'weight', 'group' or 'dynamic'");
  if (strategy != "group")
    return fields.Refuse("actorder", "null or 'static' without the strategy 'group'");
  return true;
}

// Integers of 4 bits, as compressed-tensors packs them.
absl::Status ReadPackedScheme(const Json& json, const std::string& where,
                              WeightQuantization& weights) {
  const JsonFields fields(json, where);
  REPRISE_RETURN_IF_ERROR(RefuseUnknownOfScheme(json, where));
  REPRISE_ASSIGN_OR_RETURN(const std::string type, fields.StringOr("type", "int"));
  if (type != "int") return fields.Refuse("type", "'int' with the format 'pack-quantized'");
  REPRISE_RETURN_IF_ERROR(fields.Integer("num_bits", 4, 4).status());
  REPRISE_ASSIGN_OR_RETURN(const bool dynamic, fields.BooleanOr("dynamic", false));
  if (dynamic) return fields.Refuse("dynamic", "false");
  REPRISE_ASSIGN_OR_RETURN(weights.symmetric, fields.BooleanOr("symmetric", true));
  weights.storage = WeightStorage::kPackedInt4;
  REPRISE_ASSIGN_OR_RETURN(const std::string strategy, fields.StringOr("strategy", "tensor"));
  REPRISE_ASSIGN_OR_RETURN(weights.reorders_inputs, ReadActivationOrder(fields, strategy));
  if (strategy == "channel") {
    const Json* const group = fields.Find("group_size");
    if (group != nullptr && *group != -1)
      return fields.Refuse("group_size", "null with the strategy 'channel'");
    return absl::OkStatus();
  }
  if (strategy != "group") return fields.Refuse("strategy", "'group' or 'channel'");
  REPRISE_ASSIGN_OR_RETURN(weights.group_size, ReadGroupSize(fields, std::nullopt));
  return absl::OkStatus();
}

absl::Status ReadWeightsOfGroup(const Json& group, const std::string& where, bool packed,
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
  if (packed) {
    if (fields.Find("input_activations") != nullptr)
      return fields.Refuse("input_activations", "null with weights of 4 bits");
    return ReadPackedScheme(*json, of_weights, weights);
  }
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
  weights.means_rounding = true;
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
  REPRISE_RETURN_IF_ERROR(CheckIgnored(quantization, "ignore", spec));
  REPRISE_ASSIGN_OR_RETURN(const std::string format,
                           quantization.StringOr("format", "float-quantized"));
  const bool packed = format == "pack-quantized";
  if (!packed && format != "float-quantized" && format != "naive-quantized")
    return quantization.Refuse("format",
                               "'float-quantized', 'naive-quantized' or 'pack-quantized'");
  const std::string& name = groups->begin().key();
  const Json& group = groups->begin().value();
  if (!group.is_object()) return JsonFields(*groups, kGroups).Refuse(name.c_str(), "an object");
  WeightQuantization weights;
  REPRISE_RETURN_IF_ERROR(
      ReadWeightsOfGroup(group, absl::StrCat(kGroups, name, "."), packed, weights));
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
  REPRISE_RETURN_IF_ERROR(CheckIgnored(quantization, "modules_to_not_convert", spec));
  REPRISE_RETURN_IF_ERROR(CheckIgnored(quantization, "ignored_layers", spec));
  WeightQuantization weights{.input_scales = activations == "static", .means_rounding = true};
  if (const Json* const block = quantization.Find("weight_block_size")) {
    if (!IsKnownBlock(*block)) return quantization.Refuse("weight_block_size", "[128, 128]");
    weights.granularity = ScaleGranularity::kBlock;
    weights.scale_name = "weight_scale_inv";
  }
  spec.weight_quantization = weights;
  return absl::OkStatus();
}

// A field that may say that something is not as usual: it is not.
absl::Status CheckOff(const JsonFields& quantization, const char* name) {
  const Json* const value = quantization.Find(name);
  if (value == nullptr || *value == false || value->empty()) return absl::OkStatus();
  return quantization.Refuse(name, "nothing, or false");
}

// Whether groups were set before inputs were sorted: they are of neighbours all the same. Newer
// programs note it in "meta", among what is of no other meaning here.
absl::StatusOr<bool> HasStaticGroups(const JsonFields& quantization) {
  REPRISE_ASSIGN_OR_RETURN(const bool has, quantization.BooleanOr("static_groups", false));
  const Json* const meta = quantization.Find("meta");
  if (has || meta == nullptr || !meta->is_object()) return has;
  return JsonFields(*meta, kMeta).BooleanOr("static_groups", false);
}

absl::Status ReadGptq(const Json& config, const JsonFields& quantization, ModelSpec& spec) {
  for (const auto& [name, value] : config.items())
    if (!IsAmong(kGptqFields, name) && !IsAmong(kInertGptqFields, name))
      return RefuseUnknown(kConfig, name, value);
  for (const char* name :
       {"lm_head", "dynamic", "is_marlin_format", "modules_in_block_to_quantize"})
    REPRISE_RETURN_IF_ERROR(CheckOff(quantization, name));
  REPRISE_RETURN_IF_ERROR(quantization.Integer("bits", 4, 4).status());
  REPRISE_ASSIGN_OR_RETURN(const bool reordered, quantization.BooleanOr("desc_act", false));
  REPRISE_ASSIGN_OR_RETURN(const bool static_groups, HasStaticGroups(quantization));
  REPRISE_ASSIGN_OR_RETURN(const std::string words, quantization.StringOr("pack_dtype", "int32"));
  if (words != "int32") return quantization.Refuse("pack_dtype", "'int32'");
  REPRISE_ASSIGN_OR_RETURN(const std::string format,
                           quantization.StringOr("checkpoint_format", "gptq"));
  if (format != "gptq" && format != "gptq_v2")
    return quantization.Refuse("checkpoint_format", "'gptq' or 'gptq_v2'");
  WeightQuantization weights{.scale_name = "scales", .storage = WeightStorage::kGptq};
  weights.zero_point_offset = format == "gptq" ? 1 : 0;
  REPRISE_ASSIGN_OR_RETURN(weights.symmetric, quantization.BooleanOr("sym", true));
  REPRISE_ASSIGN_OR_RETURN(weights.group_size, ReadGroupSize(quantization, -1));
  weights.reorders_inputs = reordered && !static_groups && weights.group_size != 0;
  spec.weight_quantization = weights;
  return absl::OkStatus();
}

absl::Status ReadAwq(const Json& config, const JsonFields& quantization, ModelSpec& spec) {
  for (const auto& [name, value] : config.items())
    if (!IsAmong(kAwqFields, name) && !IsAmong(kInertAwqFields, name))
      return RefuseUnknown(kConfig, name, value);
  REPRISE_RETURN_IF_ERROR(quantization.Integer("bits", 4, 4).status());
  REPRISE_ASSIGN_OR_RETURN(const std::string version, quantization.StringOr("version", "gemm"));
  if (version != "gemm" && version != "GEMM") return quantization.Refuse("version", "'gemm'");
  REPRISE_ASSIGN_OR_RETURN(const bool zeros, quantization.BooleanOr("zero_point", true));
  if (!zeros) return quantization.Refuse("zero_point", "true");
  REPRISE_RETURN_IF_ERROR(CheckIgnored(quantization, "modules_to_not_convert", spec));
  WeightQuantization weights{.scale_name = "scales", .storage = WeightStorage::kAwq};
  REPRISE_ASSIGN_OR_RETURN(weights.group_size, ReadGroupSize(quantization, -1));
  spec.weight_quantization = weights;
  return absl::OkStatus();
}

// All but experts are left alone, as gpt-oss is published.
absl::Status ReadMxfp4(const Json& config, const JsonFields& quantization, ModelSpec& spec) {
  for (const auto& [name, value] : config.items())
    if (!IsAmong(kMxfp4Fields, name)) return RefuseUnknown(kConfig, name, value);
  if (!FindArchitecture(spec.architecture)->expert_tensors.inputs_first)
    return quantization.Refuse("quant_method", "'mxfp4' for gpt_oss alone");
  REPRISE_RETURN_IF_ERROR(quantization.BooleanOr("dequantize", false).status());
  std::vector<std::string> missing(std::begin(kMxfp4Ignored), std::end(kMxfp4Ignored));
  const Json* const list = quantization.Find("modules_to_not_convert");
  bool known = list != nullptr && list->is_array();
  for (size_t i = 0; known && i < list->size(); ++i) {
    const Json& layer = (*list)[i];
    const auto at = layer.is_string()
                        ? std::find(missing.begin(), missing.end(), layer.get<std::string>())
                        : missing.end();
    known = at != missing.end();
    if (known) missing.erase(at);
  }
  if (!known || !missing.empty())
    return quantization.Refuse(
        "modules_to_not_convert",
        absl::StrCat("a list of '", absl::StrJoin(kMxfp4Ignored, "', '"), "'"));
  spec.mxfp4_experts = true;
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
  } else if (method == "gptq") {
    REPRISE_RETURN_IF_ERROR(ReadGptq(*config, quantization, spec));
  } else if (method == "awq") {
    REPRISE_RETURN_IF_ERROR(ReadAwq(*config, quantization, spec));
  } else if (method == "mxfp4") {
    REPRISE_RETURN_IF_ERROR(ReadMxfp4(*config, quantization, spec));
    // As transformers takes it, where nothing is said of the rest.
    if (fields.Find("dtype") == nullptr && fields.Find("torch_dtype") == nullptr)
      spec.checkpoint_dtype = runtime::DType::kBf16;
  } else {
    return quantization.Refuse("quant_method",
                               "'compressed-tensors', 'fp8', 'gptq', 'awq' or 'mxfp4'");
  }
  return ReadKvCache(quantization, spec);
}

}  // namespace reprise::models
