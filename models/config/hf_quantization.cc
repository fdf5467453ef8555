// SPDX-License-Identifier: Apache-2.0
// One reader for each quant_method; those of 4 bits are hf_int4.cc's.
#include "models/config/hf_quantization.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "models/config/architectures.h"
#include "models/config/hf_int4.h"
#include "models/config/hf_left_out.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

constexpr char kConfig[] = "config.json: quantization_config.";
constexpr char kBeside[] = "hf_quant_config.json: ";

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
constexpr std::string_view kFbgemmFields[] = {"quant_method", "activation_scale_ub",
                                              "modules_to_not_convert", "kv_cache_scheme"};
constexpr std::string_view kModeloptFields[] = {
    "quant_method",    "quant_algo", "kv_cache_quant_algo", "kv_cache_scheme",
    "exclude_modules", "ignore",     "config_groups"};
constexpr std::string_view kInertModeloptFields[] = {"producer"};
// Of hf_quant_config.json.
constexpr std::string_view kBesideFields[] = {"producer", "quantization"};
constexpr std::string_view kMxfp4Fields[] = {"quant_method", "modules_to_not_convert",
                                             "dequantize"};
constexpr const char* kMxfp4Ignored[] = {"model.layers.*.self_attn", "model.layers.*.mlp.router",
                                         "model.embed_tokens", "lm_head"};
constexpr std::string_view kGroupFields[] = {"targets", "weights", "input_activations",
                                             "output_activations", "format"};

// What a scheme of 8-bit floats says, of weights, activations or the KV cache.
struct Scheme {
  bool dynamic = false;
  std::string strategy;
};
absl::StatusOr<Scheme> ReadScheme(const Json& json, const std::string& where) {
  const JsonFields fields(json, where);
  REPRISE_RETURN_IF_ERROR(fields.RefuseAllBut({kSchemeFields, kInertSchemeFields}));
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
  const std::string where = absl::StrCat(quantization.prefix(), "kv_cache_scheme.");
  REPRISE_ASSIGN_OR_RETURN(const Scheme scheme, ReadScheme(*json, where));
  const JsonFields fields(*json, where);
  if (scheme.dynamic) return fields.Refuse("dynamic", "false");
  if (scheme.strategy != "tensor" && scheme.strategy != "attn_head")
    return fields.Refuse("strategy", "'tensor' or 'attn_head'");
  spec.kv_cache_dtype = runtime::DType::kE4m3;
  return absl::OkStatus();
}

// [128, 128], or as compressed-tensors also writes it, "128x128".
bool IsKnownBlock(const Json& value) {
  return value == Json::array({kScaleBlock, kScaleBlock}) || value == "128x128";
}

// How elements of 8 bits have their scales.
absl::Status ReadGranularity(const Json& json, const std::string& where,
                             WeightQuantization& weights) {
  REPRISE_ASSIGN_OR_RETURN(const Scheme scheme, ReadScheme(json, where));
  const JsonFields fields(json, where);
  if (scheme.dynamic) return fields.Refuse("dynamic", "false");
  if (scheme.strategy == "tensor") {
    weights.granularity = ScaleGranularity::kTensor;
  } else if (scheme.strategy == "channel") {
    weights.granularity = ScaleGranularity::kChannel;
  } else if (scheme.strategy == "block") {
    const Json* const block = fields.Find("block_structure");
    if (block == nullptr || !IsKnownBlock(*block))
      return fields.Refuse("block_structure", "[128, 128]");
    weights.granularity = ScaleGranularity::kBlock;
  } else {
    return fields.Refuse("strategy", "'tensor', 'channel' or 'block'");
  }
  return absl::OkStatus();
}

absl::Status ReadWeightsOfGroup(const Json& group, const std::string& where, bool packed,
                                WeightQuantization& weights) {
  const JsonFields fields(group, where);
  REPRISE_RETURN_IF_ERROR(fields.RefuseAllBut({kGroupFields}));
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
  REPRISE_RETURN_IF_ERROR(ReadGranularity(*json, of_weights, weights));
  const Json* const activations = fields.Find("input_activations");
  if (activations == nullptr) return absl::OkStatus();
  if (!activations->is_object()) return fields.Refuse("input_activations", "an object, or null");
  REPRISE_ASSIGN_OR_RETURN(const Scheme of_inputs,
                           ReadScheme(*activations, absl::StrCat(where, "input_activations.")));
  weights.input_scales = !of_inputs.dynamic;
  weights.means_rounding = true;
  return absl::OkStatus();
}

// Of the one group that there is. groups: config_groups.
absl::Status ReadGroups(const JsonFields& quantization, const Json& groups, bool packed,
                        WeightQuantization& weights) {
  if (!groups.is_object() || groups.size() != 1)
    return quantization.Refuse("config_groups", "an object of one group");
  const std::string where = absl::StrCat(quantization.prefix(), "config_groups.");
  const std::string& name = groups.begin().key();
  const Json& group = groups.begin().value();
  if (!group.is_object()) return JsonFields(groups, where).Refuse(name.c_str(), "an object");
  return ReadWeightsOfGroup(group, absl::StrCat(where, name, "."), packed, weights);
}

absl::Status ReadCompressedTensors(const JsonFields& quantization, ModelSpec& spec) {
  REPRISE_RETURN_IF_ERROR(
      quantization.RefuseAllBut({kCompressedFields, kInertFields, kEmptyFields}));
  for (const std::string_view field : kEmptyFields) {
    const std::string name(field);
    const Json* const value = quantization.Find(name.c_str());
    if (value != nullptr && !value->empty())
      return quantization.Refuse(name.c_str(), "nothing: no instance reads such weights");
  }
  const Json* const groups = quantization.Find("config_groups");
  if (groups == nullptr || groups->empty()) return absl::OkStatus();
  REPRISE_ASSIGN_OR_RETURN(const std::string format,
                           quantization.StringOr("format", "float-quantized"));
  const bool packed = format == "pack-quantized";
  if (!packed && format != "float-quantized" && format != "naive-quantized")
    return quantization.Refuse("format",
                               "'float-quantized', 'naive-quantized' or 'pack-quantized'");
  WeightQuantization weights;
  REPRISE_RETURN_IF_ERROR(ReadGroups(quantization, *groups, packed, weights));
  spec.weight_quantization = weights;
  return absl::OkStatus();
}

absl::Status ReadFp8(const JsonFields& quantization, ModelSpec& spec) {
  REPRISE_RETURN_IF_ERROR(quantization.RefuseAllBut({kFp8Fields}));
  REPRISE_ASSIGN_OR_RETURN(const std::string fmt, quantization.StringOr("fmt", "e4m3"));
  if (fmt != "e4m3") return quantization.Refuse("fmt", "'e4m3'");
  REPRISE_ASSIGN_OR_RETURN(const std::string activations,
                           quantization.StringOr("activation_scheme", "dynamic"));
  if (activations != "dynamic" && activations != "static")
    return quantization.Refuse("activation_scheme", "'dynamic' or 'static'");
  WeightQuantization weights{.input_scales = activations == "static", .means_rounding = true};
  if (const Json* const block = quantization.Find("weight_block_size")) {
    if (!IsKnownBlock(*block)) return quantization.Refuse("weight_block_size", "[128, 128]");
    weights.granularity = ScaleGranularity::kBlock;
    weights.scale_name = "weight_scale_inv";
  }
  spec.weight_quantization = weights;
  return absl::OkStatus();
}

// A scale for each output. What the largest activation of a token may count at most is for programs
// that round them.
absl::Status ReadFbgemm(const JsonFields& quantization, ModelSpec& spec) {
  REPRISE_RETURN_IF_ERROR(quantization.RefuseAllBut({kFbgemmFields}));
  REPRISE_RETURN_IF_ERROR(quantization.PositiveOr("activation_scale_ub", 1200.0).status());
  spec.weight_quantization = WeightQuantization{.granularity = ScaleGranularity::kChannel,
                                                .input_scales = true,
                                                .means_rounding = true,
                                                .input_scale_name = "input_scale_ub"};
  return absl::OkStatus();
}

// A scale for each weight and one for its activations, unless a group says otherwise. The KV cache
// may be quantised without weights.
absl::Status ReadModelopt(const JsonFields& quantization, ModelSpec& spec) {
  REPRISE_RETURN_IF_ERROR(quantization.RefuseAllBut({kModeloptFields, kInertModeloptFields}));
  REPRISE_ASSIGN_OR_RETURN(const std::string cache,
                           quantization.StringOr("kv_cache_quant_algo", ""));
  if (!cache.empty() && cache != "FP8")
    return quantization.Refuse("kv_cache_quant_algo", "'FP8', or null");
  if (!cache.empty()) spec.kv_cache_dtype = runtime::DType::kE4m3;
  const Json* const algorithm = quantization.Find("quant_algo");
  if (algorithm == nullptr && !cache.empty()) return absl::OkStatus();
  if (algorithm == nullptr || *algorithm != "FP8")
    return quantization.Refuse("quant_algo", "'FP8', or null beside a kv_cache_quant_algo");
  WeightQuantization weights{.input_scales = true, .means_rounding = true};
  const Json* const groups = quantization.Find("config_groups");
  if (groups != nullptr && !groups->empty())
    REPRISE_RETURN_IF_ERROR(ReadGroups(quantization, *groups, /*packed=*/false, weights));
  spec.weight_quantization = weights;
  return absl::OkStatus();
}

// All but experts are left alone, as gpt-oss is published.
absl::Status ReadMxfp4(const JsonFields& quantization, ModelSpec& spec) {
  REPRISE_RETURN_IF_ERROR(quantization.RefuseAllBut({kMxfp4Fields}));
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

constexpr LeftOutList kCompressedLists[] = {{"ignore", LeftOutRule::kName}};
constexpr LeftOutList kFp8Lists[] = {{"modules_to_not_convert", LeftOutRule::kModule},
                                     {"ignored_layers", LeftOutRule::kModule}};
constexpr LeftOutList kModeloptLists[] = {{"exclude_modules", LeftOutRule::kWildcards},
                                          {"ignore", LeftOutRule::kWildcards}};
constexpr LeftOutList kFbgemmLists[] = {{"modules_to_not_convert", LeftOutRule::kModule}};
constexpr LeftOutList kAwqLists[] = {{"modules_to_not_convert", LeftOutRule::kPart}};

struct Method {
  const char* name;
  absl::Status (*read)(const JsonFields& quantization, ModelSpec& spec);
  std::span<const LeftOutList> left_out = {};
};
constexpr Method kMethods[] = {{"compressed-tensors", &ReadCompressedTensors, kCompressedLists},
                               {"fp8", &ReadFp8, kFp8Lists},
                               {"modelopt", &ReadModelopt, kModeloptLists},
                               {"fbgemm_fp8", &ReadFbgemm, kFbgemmLists},
                               {"gptq", &ReadGptq},
                               {"awq", &ReadAwq, kAwqLists},
                               {"mxfp4", &ReadMxfp4}};

absl::StatusOr<const Method*> MethodOf(const JsonFields& quantization) {
  REPRISE_ASSIGN_OR_RETURN(const std::string name, quantization.StringOr("quant_method", ""));
  for (const Method& method : kMethods)
    if (name == method.name) return &method;
  return quantization.Refuse(
      "quant_method", absl::StrJoin(kMethods, ", ", [](std::string* out, const Method& method) {
        absl::StrAppend(out, "'", method.name, "'");
      }));
}

// What says how weights are quantised, and how messages about it begin.
struct Source {
  Json object;
  std::string prefix;
};

absl::StatusOr<std::optional<Source>> SourceOf(const JsonFields& fields, const Json* beside) {
  if (const Json* const config = fields.Find("quantization_config"); config != nullptr) {
    if (!config->is_object()) return fields.Refuse("quantization_config", "an object, or null");
    return Source{*config, kConfig};
  }
  if (beside == nullptr) return std::optional<Source>();
  const JsonFields of_file(*beside, kBeside);
  REPRISE_RETURN_IF_ERROR(of_file.RefuseAllBut({kBesideFields}));
  const Json* const quantization = of_file.Find("quantization");
  if (quantization == nullptr || !quantization->is_object())
    return of_file.Refuse("quantization", "an object");
  Source source{*quantization, absl::StrCat(kBeside, "quantization.")};
  source.object["quant_method"] = "modelopt";  // whose file it is
  return source;
}

}  // namespace

absl::Status ReadQuantization(const JsonFields& fields, const Json* beside, ModelSpec& spec) {
  REPRISE_ASSIGN_OR_RETURN(const std::optional<Source> source, SourceOf(fields, beside));
  if (!source.has_value()) return absl::OkStatus();
  const JsonFields quantization(source->object, source->prefix);
  REPRISE_ASSIGN_OR_RETURN(const Method* const method, MethodOf(quantization));
  REPRISE_RETURN_IF_ERROR(method->read(quantization, spec));
  // As transformers takes it, where nothing is said of the rest.
  if (method->read == &ReadMxfp4 && fields.Find("dtype") == nullptr &&
      fields.Find("torch_dtype") == nullptr)
    spec.checkpoint_dtype = runtime::DType::kBf16;
  return ReadKvCache(quantization, spec);
}

absl::Status ReadLayersLeftOut(const JsonFields& fields, const Json* beside, ModelSpec& spec) {
  if (!spec.weight_quantization.has_value()) return absl::OkStatus();
  REPRISE_ASSIGN_OR_RETURN(const std::optional<Source> source, SourceOf(fields, beside));
  if (!source.has_value()) return absl::OkStatus();
  const JsonFields quantization(source->object, source->prefix);
  REPRISE_ASSIGN_OR_RETURN(const Method* const method, MethodOf(quantization));
  return ReadLeftOut(quantization, method->left_out, spec);
}

}  // namespace reprise::models
