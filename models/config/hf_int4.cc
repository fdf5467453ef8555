// SPDX-License-Identifier: Apache-2.0
#include "models/config/hf_int4.h"

#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

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
  return JsonFields(*meta, absl::StrCat(quantization.prefix(), "meta."))
      .BooleanOr("static_groups", false);
}

}  // namespace

absl::Status ReadPackedScheme(const Json& json, const std::string& where,
                              WeightQuantization& weights) {
  const JsonFields fields(json, where);
  REPRISE_RETURN_IF_ERROR(fields.RefuseAllBut({kSchemeFields, kInertSchemeFields}));
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

absl::Status ReadGptq(const JsonFields& quantization, ModelSpec& spec) {
  REPRISE_RETURN_IF_ERROR(quantization.RefuseAllBut({kGptqFields, kInertGptqFields}));
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

absl::Status ReadAwq(const JsonFields& quantization, ModelSpec& spec) {
  REPRISE_RETURN_IF_ERROR(quantization.RefuseAllBut({kAwqFields, kInertAwqFields}));
  REPRISE_RETURN_IF_ERROR(quantization.Integer("bits", 4, 4).status());
  REPRISE_ASSIGN_OR_RETURN(const std::string version, quantization.StringOr("version", "gemm"));
  if (version != "gemm" && version != "GEMM") return quantization.Refuse("version", "'gemm'");
  REPRISE_ASSIGN_OR_RETURN(const bool zeros, quantization.BooleanOr("zero_point", true));
  if (!zeros) return quantization.Refuse("zero_point", "true");
  WeightQuantization weights{.scale_name = "scales", .storage = WeightStorage::kAwq};
  REPRISE_ASSIGN_OR_RETURN(weights.group_size, ReadGroupSize(quantization, -1));
  spec.weight_quantization = weights;
  return absl::OkStatus();
}

}  // namespace reprise::models
