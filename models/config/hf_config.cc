// SPDX-License-Identifier: Apache-2.0
// config.json to ModelSpec; see hf_config.h. The tables are in architectures.cc and
// hf_fields.cc, where fields stand in hf_parts.cc, rope in hf_rope.cc, sliding windows in
// hf_window.cc, experts in hf_experts.cc, state space models in hf_mamba.cc. What a config leaves
// out means what transformers means by it, never what we would like.
#include "models/config/hf_config.h"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "models/config/architectures.h"
#include "models/config/config_report.h"
#include "models/config/hf_experts.h"
#include "models/config/hf_fields.h"
#include "models/config/hf_mamba.h"
#include "models/config/hf_parts.h"
#include "models/config/hf_quantization.h"
#include "models/config/hf_rope.h"
#include "models/config/hf_window.h"
#include "models/config/json_input.h"
#include "models/weights/file_input.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

constexpr size_t kMaxConfigBytes = size_t{16} << 20;  // real ones are a few KB
constexpr size_t kMaxTokenizerConfigBytes = size_t{64} << 20;
constexpr int64_t kMaxSize = INT32_MAX;

// Absent is not null here: null has always meant as many as query heads.
absl::Status ReadKvHeads(const JsonFields& fields, const Architecture& architecture,
                         ModelSpec& spec) {
  const bool named = fields.Names("num_key_value_heads");
  const int64_t fallback =
      named || architecture.default_kv_heads == 0 ? spec.num_heads : architecture.default_kv_heads;
  REPRISE_ASSIGN_OR_RETURN(spec.num_kv_heads,
                           fields.IntegerOr("num_key_value_heads", fallback, 1, kMaxSize));
  return absl::OkStatus();
}

absl::Status ReadHeadDim(const JsonFields& fields, const Architecture& architecture,
                         ModelSpec& spec) {
  int64_t fallback = architecture.default_head_dim;
  if (fallback == 0) {
    if (fields.Find("head_dim") == nullptr && spec.hidden_size % spec.num_heads != 0) {
      return fields.Refuse("hidden_size",
                           absl::StrCat("a multiple of num_attention_heads (", spec.num_heads,
                                        ") where head_dim is absent"));
    }
    fallback = spec.hidden_size / spec.num_heads;
  }
  REPRISE_ASSIGN_OR_RETURN(spec.head_dim, fields.IntegerOr("head_dim", fallback, 1, kMaxSize));
  return absl::OkStatus();
}

// Errors that are kept, so that what comes behind is judged as well.
class Errors {
 public:
  // Whether it was OK.
  bool Add(const absl::Status& status) {
    if (!status.ok()) all_.push_back(status);
    return status.ok();
  }
  bool empty() const { return all_.empty(); }
  const std::vector<absl::Status>& all() const { return all_; }

 private:
  std::vector<absl::Status> all_;
};

void ReadSizes(const JsonFields& fields, const Architecture& architecture, ModelSpec& spec,
               Errors& errors) {
  const struct {
    const char* name;
    int64_t* value;
    int64_t fallback = 0;  // 0: it must be there
  } sizes[] = {
      {"vocab_size", &spec.vocab_size, architecture.default_vocab},
      {"hidden_size", &spec.hidden_size, architecture.default_hidden},
      {"intermediate_size", &spec.intermediate_size, architecture.default_intermediate},
      {"num_hidden_layers", &spec.num_layers, architecture.default_layers},
      {"num_attention_heads", &spec.num_heads, architecture.default_heads},
      {"max_position_embeddings", &spec.max_position_embeddings,
       architecture.default_max_positions},
  };
  for (const auto& size : sizes) {
    const auto value = size.fallback == 0 ? fields.Integer(size.name, 1, kMaxSize)
                                          : fields.IntegerOr(size.name, size.fallback, 1, kMaxSize);
    if (errors.Add(value.status())) *size.value = *value;
  }
}

absl::Status ReadTied(const JsonFields& fields, const Architecture& architecture, ModelSpec& spec) {
  REPRISE_ASSIGN_OR_RETURN(spec.tie_word_embeddings,
                           fields.BooleanOr("tie_word_embeddings", architecture.default_tied));
  return absl::OkStatus();
}

absl::Status ReadSwitches(const JsonFields& fields, const Architecture& architecture,
                          ModelSpec& spec) {
  REPRISE_ASSIGN_OR_RETURN(spec.rms_norm_eps,
                           fields.PositiveOr("rms_norm_eps", architecture.default_rms_norm_eps));
  spec.qk_norm = architecture.qk_norm != QkNorm::kNone;
  spec.whole_qk_norm = architecture.qk_norm == QkNorm::kWhole;
  spec.qkv_bias = architecture.bias == BiasRule::kQkvOnly;
  if (architecture.bias != BiasRule::kConfig) return absl::OkStatus();
  REPRISE_ASSIGN_OR_RETURN(spec.qkv_bias,
                           fields.BooleanOr("attention_bias", architecture.default_attention_bias));
  spec.o_bias = spec.qkv_bias;
  REPRISE_ASSIGN_OR_RETURN(spec.mlp_bias, fields.BooleanOr("mlp_bias", false));
  return absl::OkStatus();
}

// Absent: the architecture's. Null: none, 0.
absl::StatusOr<double> Softcap(const JsonFields& fields, const char* name, double absent) {
  return fields.PositiveOr(name, fields.Names(name) ? 0.0 : absent);
}

// Published models multiply embeddings by the root as it is rounded to the compute dtype.
absl::Status ReadGemmaNumbers(const JsonFields& fields, const Architecture& architecture,
                              ModelSpec& spec) {
  spec.norm_offset = 1.0;
  spec.activation = Activation::kGeluTanh;
  spec.embedding_multiplier = std::sqrt(static_cast<double>(spec.hidden_size));
  spec.rounds_embedding_multiplier = true;
  REPRISE_ASSIGN_OR_RETURN(const double scalar, fields.PositiveOr("query_pre_attn_scalar", 256.0));
  spec.attention_multiplier = 1.0 / std::sqrt(scalar);
  REPRISE_ASSIGN_OR_RETURN(spec.attention_softcap, Softcap(fields, "attn_logit_softcapping",
                                                           architecture.default_attention_softcap));
  REPRISE_ASSIGN_OR_RETURN(spec.logits_softcap, Softcap(fields, "final_logit_softcapping",
                                                        architecture.default_logits_softcap));
  return absl::OkStatus();
}

absl::Status ReadNumbers(const JsonFields& fields, const Architecture& architecture,
                         ModelSpec& spec) {
  if (architecture.numbers == NumberRule::kGemma)
    return ReadGemmaNumbers(fields, architecture, spec);
  if (architecture.numbers != NumberRule::kGranite)
    spec.attention_multiplier = 1.0 / std::sqrt(static_cast<double>(spec.head_dim));
  if (architecture.numbers == NumberRule::kLlama) return absl::OkStatus();
  if (architecture.numbers == NumberRule::kGptOss) {
    spec.activation = Activation::kLimited;
    spec.attention_sinks = true;
    REPRISE_ASSIGN_OR_RETURN(spec.gate_limit, fields.PositiveOr("swiglu_limit", 7.0));
    REPRISE_ASSIGN_OR_RETURN(spec.gate_slope, fields.PositiveOr("swiglu_alpha", 1.702));
    return absl::OkStatus();
  }
  REPRISE_ASSIGN_OR_RETURN(spec.embedding_multiplier,
                           fields.PositiveOr("embedding_multiplier", 1.0));
  REPRISE_ASSIGN_OR_RETURN(spec.attention_multiplier,
                           fields.PositiveOr("attention_multiplier", 1.0));
  REPRISE_ASSIGN_OR_RETURN(spec.residual_multiplier, fields.PositiveOr("residual_multiplier", 1.0));
  REPRISE_ASSIGN_OR_RETURN(spec.logits_scaling, fields.PositiveOr("logits_scaling", 1.0));
  return absl::OkStatus();
}

// Absent: f32, as transformers builds such a model.
absl::Status ReadDType(const JsonFields& fields, ModelSpec& spec) {
  const bool both = fields.Find("dtype") != nullptr && fields.Find("torch_dtype") != nullptr;
  const char* name = fields.Find("dtype") != nullptr ? "dtype" : "torch_dtype";
  REPRISE_ASSIGN_OR_RETURN(const std::string dtype, fields.StringOr(name, "float32"));
  if (both && *fields.Find("torch_dtype") != dtype) {
    return fields.Refuse("torch_dtype", absl::StrCat("the same as dtype ('", dtype, "')"));
  }
  const struct {
    const char* name;
    runtime::DType dtype;
  } known[] = {{"float32", runtime::DType::kF32},
               {"bfloat16", runtime::DType::kBf16},
               {"float16", runtime::DType::kF16}};
  for (const auto& entry : known) {
    if (dtype == entry.name) {
      spec.checkpoint_dtype = entry.dtype;
      return absl::OkStatus();
    }
  }
  return fields.Refuse(name, "'float32', 'bfloat16' or 'float16'");
}

// eos_token_id: one id, a list of ids, or null, which leaves `ids` as they are.
absl::Status ReadEosTokenIds(const JsonFields& fields, int64_t vocab_size,
                             std::vector<uint32_t>& ids) {
  const Json* value = fields.Find("eos_token_id");
  if (value == nullptr) return absl::OkStatus();
  const Json list = value->is_array() ? *value : Json::array({*value});
  ids.clear();
  for (const Json& id : list) {
    // Negative numbers are not unsigned, and neither are fractions.
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(vocab_size)) {
      return fields.Refuse("eos_token_id",
                           absl::StrCat("an id, or a list of ids, from 0 to ", vocab_size - 1));
    }
    ids.push_back(id.get<uint32_t>());
  }
  return absl::OkStatus();
}

absl::Status ReadGenerationConfig(const std::string& directory, ModelSpec& spec) {
  const auto text = ReadFile(directory + "/generation_config.json", kMaxConfigBytes);
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  REPRISE_RETURN_IF_ERROR(text.status());
  REPRISE_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(*text, "generation_config.json"));
  return ReadEosTokenIds(JsonFields(json, "generation_config.json: "), spec.vocab_size,
                         spec.eos_token_ids);
}

absl::Status ReadTokenizerConfig(const std::string& directory, ModelSpec& spec) {
  const auto text = ReadFile(directory + "/tokenizer_config.json", kMaxTokenizerConfigBytes);
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  REPRISE_RETURN_IF_ERROR(text.status());
  REPRISE_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(*text, "tokenizer_config.json"));
  REPRISE_ASSIGN_OR_RETURN(
      const std::string tokenizer,
      JsonFields(json, "tokenizer_config.json: ").StringOr("tokenizer_class", ""));
  if (tokenizer == "ByteTokenizer") spec.token_encoding = TokenEncoding::kBytes;
  return absl::OkStatus();
}

std::string BaseName(const std::string& directory) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::absolute(directory, error).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  return path.filename().string();
}

}  // namespace

namespace {

// A refusal of the spec, in the names of the fields that it comes from.
absl::Status InNamesOfFields(const absl::Status& refusal, const JsonFields& fields) {
  if (refusal.ok()) return refusal;
  const bool of_mamba = absl::StartsWith(refusal.message(), "mamba.");
  return absl::Status(
      refusal.code(),
      absl::StrCat(fields.prefix(),
                   absl::StrReplaceAll(
                       refusal.message(),
                       {{"num_layers", "num_hidden_layers"},
                        {"num_heads", of_mamba ? "mamba_n_heads" : "num_attention_heads"},
                        {"num_kv_heads", "num_key_value_heads"},
                        {"num_groups", of_mamba ? "mamba_n_groups" : "num_groups"},
                        {"state_size", of_mamba ? "mamba_d_state" : "state_size"},
                        {"mamba.num_heads", "mamba_n_heads"},
                        {"mamba.num_groups", "mamba_n_groups"},
                        {"mamba.state_size", "mamba_d_state"},
                        {"mamba.conv_width", "mamba_d_conv"},
                        {"mamba.head_dim", "mamba_d_head"},
                        {"sliding_rope.", "sliding_rope."},
                        {"rope.theta", "rope_theta"},
                        {"rope.", fields.Find("rope_scaling") != nullptr ? "rope_scaling."
                                                                         : "rope_parameters."}})));
}

// The consumed fields, each reader on its own: what one refuses does not hide what the next would.
// beside: hf_quant_config.json, or nullptr.
void ReadConsumedFields(const ConfigParts& parts, const Json* beside, ModelSpec& spec,
                        Errors& errors) {
  const Architecture& architecture = parts.architecture();
  const JsonFields& fields = parts.text_fields();
  spec.architecture = architecture.name;
  spec.beside_vision = parts.vision() != nullptr;
  Errors sizes;
  ReadSizes(fields, architecture, spec, sizes);
  for (const absl::Status& status : sizes.all()) errors.Add(status);
  if (sizes.empty()) {
    errors.Add(ReadKvHeads(fields, architecture, spec));
    const bool knows_head_dim = errors.Add(ReadHeadDim(fields, architecture, spec));
    errors.Add(ReadNumbers(fields, architecture, spec));
    errors.Add(ReadExperts(fields, architecture, spec));
    errors.Add(ReadMamba(fields, architecture, spec));
    if (knows_head_dim) errors.Add(ReadRope(fields, architecture, spec));
    errors.Add(
        ReadEosTokenIds(parts.TopFirst({"eos_token_id"}), spec.vocab_size, spec.eos_token_ids));
  }
  errors.Add(ReadSwitches(fields, architecture, spec));
  errors.Add(ReadTied(parts.TextFirst({"tie_word_embeddings"}), architecture, spec));
  errors.Add(ReadDType(parts.TopFirst({"dtype", "torch_dtype"}), spec));
  errors.Add(ReadQuantization(parts.top_fields(), beside, spec));
  if (!errors.empty()) return;
  if (!errors.Add(InNamesOfFields(ValidateModelSpec(spec), fields))) return;
  errors.Add(ReadSlidingWindow(fields, architecture, spec));
  errors.Add(ReadLayersLeftOut(parts.top_fields(), beside, spec));
}

// The text of hf_quant_config.json; empty where there is none.
absl::StatusOr<std::string> ReadBeside(const std::string& directory) {
  auto text = ReadFile(directory + "/hf_quant_config.json", kMaxConfigBytes);
  if (absl::IsNotFound(text.status())) return std::string();
  if (text.ok() && text->empty()) return ParseJsonObject("", "hf_quant_config.json").status();
  return text;
}

absl::StatusOr<std::optional<Json>> ParseBeside(std::string_view text) {
  if (text.empty()) return std::optional<Json>();
  REPRISE_ASSIGN_OR_RETURN(Json json, ParseJsonObject(text, "hf_quant_config.json"));
  return std::optional<Json>(std::in_place, std::move(json));
}

// All but the fields of config.json.
void ReadOtherFiles(const std::string& directory, ModelSpec& spec, Errors& errors) {
  errors.Add(ReadGenerationConfig(directory, spec));
  errors.Add(ReadTokenizerConfig(directory, spec));
  spec.name = BaseName(directory);
}

FieldUse UseOf(const FieldFinding& finding) {
  if (!finding.status.ok()) return FieldUse::kRefused;
  switch (finding.rule->role) {
    case FieldRole::kConsumed:
      return FieldUse::kRead;
    case FieldRole::kInert:
      return FieldUse::kIgnored;
    case FieldRole::kNeutral:
      return FieldUse::kNeutral;
  }
  return FieldUse::kRefused;
}

// Without the file's name, which all of them begin with.
std::string WhyOf(const absl::Status& error) {
  std::string_view message(error.message().data(), error.message().size());
  constexpr std::string_view kFile = "config.json: ";
  if (message.starts_with(kFile)) message.remove_prefix(kFile.size());
  return std::string(message);
}

// An error of a reader begins with the field that it is about, or one inside of it: of fields that
// stand in each other the innermost.
void MarkRefused(const absl::Status& error, std::vector<FieldReport>& fields) {
  const std::string why = WhyOf(error);
  FieldReport* of = nullptr;
  for (FieldReport& field : fields) {
    const size_t end = field.name.size();
    const bool about =
        why.starts_with(field.name) && why.size() > end && (why[end] == ':' || why[end] == '.');
    if (about && (of == nullptr || of->name.size() < end)) of = &field;
  }
  if (of == nullptr || of->use == FieldUse::kRefused) return;
  of->use = FieldUse::kRefused;
  of->why = why;
}

}  // namespace

absl::StatusOr<ModelSpec> ParseHfConfig(std::string_view json, std::string_view hf_quant_config) {
  REPRISE_ASSIGN_OR_RETURN(const Json config, ParseJsonObject(json, "config.json"));
  REPRISE_ASSIGN_OR_RETURN(const ConfigParts parts, ConfigParts::Of(config));
  for (const FieldFinding& finding : CheckConfigFields(parts))
    REPRISE_RETURN_IF_ERROR(finding.status);
  REPRISE_ASSIGN_OR_RETURN(const std::optional<Json> beside, ParseBeside(hf_quant_config));
  ModelSpec spec;
  Errors errors;
  ReadConsumedFields(parts, beside ? &*beside : nullptr, spec, errors);
  if (!errors.empty()) return errors.all().front();
  return spec;
}

absl::StatusOr<ModelSpec> ReadHfConfig(const std::string& directory) {
  REPRISE_ASSIGN_OR_RETURN(const std::string text,
                           ReadFile(directory + "/config.json", kMaxConfigBytes));
  REPRISE_ASSIGN_OR_RETURN(const std::string hf_quant_config, ReadBeside(directory));
  REPRISE_ASSIGN_OR_RETURN(ModelSpec spec, ParseHfConfig(text, hf_quant_config));
  Errors errors;
  ReadOtherFiles(directory, spec, errors);
  if (!errors.empty()) return errors.all().front();
  return spec;
}

std::string_view NameOf(FieldUse use) {
  switch (use) {
    case FieldUse::kRead:
      return "read";
    case FieldUse::kIgnored:
      return "ignored";
    case FieldUse::kNeutral:
      return "neutral";
    case FieldUse::kRefused:
      return "refused";
  }
  return "unknown";
}

absl::StatusOr<ConfigReport> ReportHfConfig(const std::string& directory) {
  REPRISE_ASSIGN_OR_RETURN(const std::string text,
                           ReadFile(directory + "/config.json", kMaxConfigBytes));
  REPRISE_ASSIGN_OR_RETURN(const Json config, ParseJsonObject(text, "config.json"));
  REPRISE_ASSIGN_OR_RETURN(const ConfigParts parts, ConfigParts::Of(config));
  ConfigReport report{.architecture = parts.class_name()};
  Errors errors;
  for (const FieldFinding& finding : CheckConfigFields(parts)) {
    report.fields.push_back({.name = finding.name, .value = finding.value, .use = UseOf(finding)});
    if (!errors.Add(finding.status)) report.fields.back().why = WhyOf(finding.status);
  }
  const size_t num_of_rules = errors.all().size();
  REPRISE_ASSIGN_OR_RETURN(const std::string hf_quant_config, ReadBeside(directory));
  REPRISE_ASSIGN_OR_RETURN(const std::optional<Json> beside, ParseBeside(hf_quant_config));
  Errors of_readers;
  ReadConsumedFields(parts, beside ? &*beside : nullptr, report.spec, of_readers);
  for (const absl::Status& error : of_readers.all()) {
    MarkRefused(error, report.fields);
    errors.Add(error);
  }
  if (errors.all().size() == num_of_rules) ReadOtherFiles(directory, report.spec, errors);
  report.errors = errors.all();
  return report;
}

}  // namespace reprise::models
