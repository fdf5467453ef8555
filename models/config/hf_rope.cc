// SPDX-License-Identifier: Apache-2.0
// Rotary embedding parameters of both dialects; see hf_rope.h.
#include "models/config/hf_rope.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "models/config/hf_fields.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

constexpr double kDefaultLocalTheta = 10000.0;  // of layers that slide, where nothing is said

// Which types a parameter belongs to; beside another it is refused, since it would do nothing.
constexpr unsigned kLinear = 1, kLlama3 = 2, kYarn = 4;
constexpr struct {
  const char* name;
  unsigned types;
  const char* allowed;
} kParameters[] = {
    {"factor", kLinear | kLlama3 | kYarn, "'linear', 'llama3' or 'yarn'"},
    {"low_freq_factor", kLlama3, "'llama3'"},
    {"high_freq_factor", kLlama3, "'llama3'"},
    {"original_max_position_embeddings", kLlama3 | kYarn, "'llama3' or 'yarn'"},
    {"beta_fast", kYarn, "'yarn'"},
    {"beta_slow", kYarn, "'yarn'"},
    {"mscale", kYarn, "'yarn'"},
    {"mscale_all_dim", kYarn, "'yarn'"},
    {"truncate", kYarn, "'yarn'"},
};

constexpr struct {
  const char* name;
  RopeScaling scaling;
  unsigned bit;
} kTypes[] = {
    {"default", RopeScaling::kNone, 0},
    {"linear", RopeScaling::kLinear, kLinear},
    {"llama3", RopeScaling::kLlama3, kLlama3},
    {"yarn", RopeScaling::kYarn, kYarn},
};

absl::StatusOr<RopeScaling> ReadType(const JsonFields& fields) {
  REPRISE_ASSIGN_OR_RETURN(const std::string old_type, fields.StringOr("type", "default"));
  REPRISE_ASSIGN_OR_RETURN(const std::string type, fields.StringOr("rope_type", old_type));
  if (fields.Find("type") != nullptr && type != old_type) {
    return fields.Refuse("type", absl::StrCat("the same as rope_type ('", type, "')"));
  }
  for (const auto& known : kTypes) {
    if (type == known.name) return known.scaling;
  }
  return fields.Refuse(fields.Find("rope_type") != nullptr ? "rope_type" : "type",
                       "'default', 'linear', 'llama3' or 'yarn'");
}

absl::Status CheckParametersFit(const JsonFields& fields, RopeScaling scaling) {
  unsigned bit = 0;
  for (const auto& type : kTypes) {
    if (type.scaling == scaling) bit = type.bit;
  }
  for (const auto& parameter : kParameters) {
    if ((parameter.types & bit) == 0 && fields.Find(parameter.name) != nullptr) {
      return fields.Refuse(parameter.name,
                           absl::StrCat("only beside rope_type ", parameter.allowed));
    }
  }
  const Json* attention_factor = fields.Find("attention_factor");
  if (scaling != RopeScaling::kYarn && attention_factor != nullptr && *attention_factor != 1) {
    return fields.Refuse("attention_factor", "1, or any beside rope_type 'yarn'");
  }
  return absl::OkStatus();
}

absl::Status ReadLlama3(const JsonFields& fields, RopeSpec& rope) {
  REPRISE_ASSIGN_OR_RETURN(rope.low_freq_factor, fields.Positive("low_freq_factor"));
  REPRISE_ASSIGN_OR_RETURN(rope.high_freq_factor, fields.Positive("high_freq_factor"));
  REPRISE_ASSIGN_OR_RETURN(rope.original_max_position_embeddings,
                           fields.Integer("original_max_position_embeddings", 1, INT32_MAX));
  return absl::OkStatus();
}

// Growth of the attention scores that yarn undoes, for a context `factor` times as long.
double YarnScale(double factor, double weight) {
  return factor <= 1 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

absl::Status ReadYarn(const JsonFields& fields, int64_t max_position_embeddings, RopeSpec& rope) {
  REPRISE_ASSIGN_OR_RETURN(
      rope.original_max_position_embeddings,
      fields.IntegerOr("original_max_position_embeddings", max_position_embeddings, 1, INT32_MAX));
  REPRISE_ASSIGN_OR_RETURN(rope.beta_fast, fields.PositiveOr("beta_fast", 32.0));
  REPRISE_ASSIGN_OR_RETURN(rope.beta_slow, fields.PositiveOr("beta_slow", 1.0));
  REPRISE_ASSIGN_OR_RETURN(rope.truncate, fields.BooleanOr("truncate", true));
  // The two count together or not at all.
  REPRISE_ASSIGN_OR_RETURN(const double mscale, fields.PositiveOr("mscale", 1.0));
  REPRISE_ASSIGN_OR_RETURN(const double all_dim, fields.PositiveOr("mscale_all_dim", 1.0));
  const bool both = fields.Find("mscale") != nullptr && fields.Find("mscale_all_dim") != nullptr;
  const double inferred = both ? YarnScale(rope.factor, mscale) / YarnScale(rope.factor, all_dim)
                               : YarnScale(rope.factor, 1.0);
  REPRISE_ASSIGN_OR_RETURN(rope.attention_factor, fields.PositiveOr("attention_factor", inferred));
  return absl::OkStatus();
}

// rope_scaling or rope_parameters, without theta.
absl::StatusOr<RopeSpec> ReadScaling(const JsonFields& fields, RopeScaling scaling,
                                     int64_t max_position_embeddings) {
  REPRISE_RETURN_IF_ERROR(CheckParametersFit(fields, scaling));
  RopeSpec rope;
  rope.scaling = scaling;
  if (scaling == RopeScaling::kNone) return rope;
  REPRISE_ASSIGN_OR_RETURN(rope.factor, fields.Positive("factor"));
  if (scaling == RopeScaling::kLlama3) REPRISE_RETURN_IF_ERROR(ReadLlama3(fields, rope));
  if (scaling == RopeScaling::kYarn) {
    REPRISE_RETURN_IF_ERROR(ReadYarn(fields, max_position_embeddings, rope));
  }
  return rope;
}

// Collects what is said in several places and insists that it is one thing.
class RopeReader {
 public:
  RopeReader(int64_t max_position_embeddings, double partial_rotary_factor)
      : max_position_embeddings_(max_position_embeddings),
        partial_rotary_factor_(partial_rotary_factor) {}

  // The architecture's, or nothing.
  absl::Status CheckPartialFactor(const JsonFields& fields) const {
    const Json* const factor = fields.Find("partial_rotary_factor");
    if (factor == nullptr || (factor->is_number() && *factor == partial_rotary_factor_))
      return absl::OkStatus();
    return fields.Refuse("partial_rotary_factor",
                         absl::StrCat(partial_rotary_factor_, " or absent"));
  }

  absl::Status AddTheta(const JsonFields& fields, const char* name = "rope_theta") {
    if (fields.Find(name) == nullptr) return absl::OkStatus();
    REPRISE_ASSIGN_OR_RETURN(const double theta, fields.Positive(name));
    if (theta_.has_value() && *theta_ != theta) {
      return fields.Refuse(name, absl::StrCat(*theta_, ", as elsewhere in this config"));
    }
    theta_ = theta;
    return absl::OkStatus();
  }

  absl::Status AddObject(const JsonFields& in, const char* name) {
    const Json* object = in.Find(name);
    if (object == nullptr) return absl::OkStatus();
    if (!object->is_object()) return in.Refuse(name, "an object or null");
    const std::string where = absl::StrCat(in.prefix(), name, ".");
    const JsonFields fields(*object, where);
    // First, so that a type that we lack is named rather than one of its parameters.
    REPRISE_ASSIGN_OR_RETURN(const RopeScaling type, ReadType(fields));
    REPRISE_RETURN_IF_ERROR(CheckRopeFields(*object, where));
    REPRISE_RETURN_IF_ERROR(CheckPartialFactor(fields));
    REPRISE_RETURN_IF_ERROR(AddTheta(fields));
    REPRISE_ASSIGN_OR_RETURN(const RopeSpec scaling,
                             ReadScaling(fields, type, max_position_embeddings_));
    if (scaling_.has_value() && *scaling_ != scaling) {
      return in.Refuse(name, "the same scaling as in rope_scaling");
    }
    scaling_ = scaling;
    return absl::OkStatus();
  }

  RopeSpec Finish(double default_theta) const {
    RopeSpec rope = scaling_.value_or(RopeSpec{});
    rope.theta = theta_.value_or(default_theta);
    return rope;
  }

 private:
  const int64_t max_position_embeddings_;
  const double partial_rotary_factor_;
  std::optional<double> theta_;
  std::optional<RopeSpec> scaling_;
};

// What rope turns of a head, where that is not all of it.
absl::Status ReadRotaryDim(const JsonFields& fields, const Architecture& architecture,
                           ModelSpec& spec) {
  if (architecture.partial_rotary_factor == 1.0) return absl::OkStatus();
  spec.rotary_dim =
      static_cast<int64_t>(static_cast<double>(spec.head_dim) * architecture.partial_rotary_factor);
  // As older configs say the same.
  const Json* const turned = fields.Find("attn_rotary_emb");
  if (turned != nullptr && *turned != spec.rotary_dim)
    return fields.Refuse("attn_rotary_emb",
                         absl::StrCat(architecture.partial_rotary_factor, " of head_dim (",
                                      spec.rotary_dim, ") or absent"));
  return absl::OkStatus();
}

// rope_parameters of a config whose layers of two kinds turn apart.
absl::Status AddRopesOfKinds(const JsonFields& config, RopeReader& full, RopeReader& sliding) {
  const Json* object = config.Find("rope_parameters");
  if (object == nullptr) return absl::OkStatus();
  constexpr char kAllowed[] = "an object of 'full_attention' and 'sliding_attention', or null";
  if (!object->is_object()) return config.Refuse("rope_parameters", kAllowed);
  for (const auto& [name, value] : object->items()) {
    if (name != "full_attention" && name != "sliding_attention")
      return config.Refuse("rope_parameters", kAllowed);
  }
  const JsonFields kinds(*object, absl::StrCat(config.prefix(), "rope_parameters."));
  REPRISE_RETURN_IF_ERROR(full.AddObject(kinds, "full_attention"));
  return sliding.AddObject(kinds, "sliding_attention");
}

}  // namespace

absl::Status ReadRope(const JsonFields& fields, const Architecture& architecture, ModelSpec& spec) {
  const double partial = architecture.partial_rotary_factor;
  RopeReader reader(spec.max_position_embeddings, partial);
  RopeReader sliding(spec.max_position_embeddings, partial);
  REPRISE_RETURN_IF_ERROR(reader.CheckPartialFactor(fields));
  REPRISE_RETURN_IF_ERROR(ReadRotaryDim(fields, architecture, spec));
  REPRISE_RETURN_IF_ERROR(reader.AddTheta(fields));
  REPRISE_RETURN_IF_ERROR(reader.AddObject(fields, "rope_scaling"));
  if (architecture.local_rope) {
    REPRISE_RETURN_IF_ERROR(sliding.AddTheta(fields, "rope_local_base_freq"));
    REPRISE_RETURN_IF_ERROR(AddRopesOfKinds(fields, reader, sliding));
    spec.sliding_rope = sliding.Finish(kDefaultLocalTheta);
  } else {
    REPRISE_RETURN_IF_ERROR(reader.AddObject(fields, "rope_parameters"));
  }
  if (architecture.names_rope && fields.Find("rope_scaling") == nullptr &&
      fields.Find("rope_parameters") == nullptr)
    return fields.Refuse("rope_parameters", absl::StrCat("an object, here or as rope_scaling: ",
                                                         "without one it is not known"));
  spec.rope = reader.Finish(architecture.default_rope_theta);
  return absl::OkStatus();
}

}  // namespace reprise::models
