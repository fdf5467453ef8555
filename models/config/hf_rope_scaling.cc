// SPDX-License-Identifier: Apache-2.0
// Types of rope and their parameters; see hf_rope_scaling.h.
#include "models/config/hf_rope_scaling.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

// Which types a parameter belongs to; beside another it is refused, since it would do nothing.
constexpr unsigned kLinear = 1, kLlama3 = 2, kYarn = 4, kLongRope = 8;
constexpr struct {
  const char* name;
  unsigned types;
  const char* allowed;
} kParameters[] = {
    {"factor", kLinear | kLlama3 | kYarn | kLongRope, "'linear', 'llama3', 'yarn' or 'longrope'"},
    {"low_freq_factor", kLlama3, "'llama3'"},
    {"high_freq_factor", kLlama3, "'llama3'"},
    {"original_max_position_embeddings", kLlama3 | kYarn | kLongRope,
     "'llama3', 'yarn' or 'longrope'"},
    {"beta_fast", kYarn, "'yarn'"},
    {"beta_slow", kYarn, "'yarn'"},
    {"mscale", kYarn, "'yarn'"},
    {"mscale_all_dim", kYarn, "'yarn'"},
    {"truncate", kYarn, "'yarn'"},
    {"short_factor", kLongRope, "'longrope'"},
    {"long_factor", kLongRope, "'longrope'"},
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
    {"longrope", RopeScaling::kLongRope, kLongRope},
    {"su", RopeScaling::kLongRope, kLongRope},  // the older name of longrope
};

std::optional<RopeScaling> TypeOf(std::string_view name) {
  for (const auto& known : kTypes) {
    if (name == known.name) return known.scaling;
  }
  return std::nullopt;
}

absl::Status RefuseType(const JsonFields& fields, const char* allowed) {
  return fields.Refuse(fields.Find("rope_type") != nullptr ? "rope_type" : "type", allowed);
}

}  // namespace

absl::StatusOr<RopeScaling> ReadRopeType(const JsonFields& fields, const RopeContext& context) {
  REPRISE_ASSIGN_OR_RETURN(const std::string old_type, fields.StringOr("type", "default"));
  REPRISE_ASSIGN_OR_RETURN(const std::string type, fields.StringOr("rope_type", old_type));
  const std::optional<RopeScaling> scaling = TypeOf(type);
  if (fields.Find("type") != nullptr && type != old_type &&
      (!scaling.has_value() || TypeOf(old_type) != scaling)) {
    return fields.Refuse("type", absl::StrCat("the same as rope_type ('", type, "')"));
  }
  if (scaling == RopeScaling::kLongRope && context.of_two)
    return RefuseType(fields,
                      "'default', 'linear' or 'llama3' where layers that slide have a rope of "
                      "their own");
  if (scaling.has_value()) return *scaling;
  return RefuseType(fields, "'default', 'linear', 'llama3', 'yarn' or 'longrope'");
}

namespace {

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
  if (scaling != RopeScaling::kYarn && scaling != RopeScaling::kLongRope &&
      attention_factor != nullptr && *attention_factor != 1) {
    return fields.Refuse("attention_factor", "1, or any beside rope_type 'yarn' or 'longrope'");
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

absl::StatusOr<std::vector<double>> ReadFactors(const JsonFields& fields, const char* name,
                                                int64_t pairs) {
  const Json* const list = fields.Find(name);
  const std::string allowed =
      absl::StrCat("a list of ", pairs, " finite numbers > 0, one for each pair that is turned");
  if (list == nullptr || !list->is_array()) return fields.Refuse(name, allowed);
  if (list->size() != static_cast<size_t>(pairs))
    return fields.Refuse(name, absl::StrCat(allowed, "; these are ", list->size()));
  std::vector<double> factors;
  for (const Json& entry : *list) {
    const double factor = entry.is_number() ? entry.get<double>() : 0.0;
    if (!std::isfinite(factor) || factor <= 0)
      return fields.Refuse(name, absl::StrCat(allowed, "; one is ", ShowJson(entry)));
    factors.push_back(factor);
  }
  return factors;
}

// What longrope multiplies cos and sin by, for a context `factor` times as long as the original.
double LongRopeScale(double factor, int64_t original) {
  if (factor <= 1) return 1.0;
  return std::sqrt(1.0 + std::log(factor) / std::log(static_cast<double>(original)));
}

absl::Status ReadLongRope(const JsonFields& fields, const RopeContext& context, RopeSpec& rope) {
  constexpr char kOriginal[] = "original_max_position_embeddings";
  const std::optional<int64_t> elsewhere = context.original_max_position_embeddings;
  REPRISE_ASSIGN_OR_RETURN(
      rope.original_max_position_embeddings,
      fields.IntegerOr(kOriginal, elsewhere.value_or(context.default_original_positions), 2,
                       INT32_MAX));
  if (elsewhere.has_value() && rope.original_max_position_embeddings != *elsewhere)
    return fields.Refuse(kOriginal, absl::StrCat(*elsewhere, ", as elsewhere in this config"));
  REPRISE_ASSIGN_OR_RETURN(
      rope.factor,
      fields.PositiveOr("factor", static_cast<double>(context.max_position_embeddings) /
                                      static_cast<double>(rope.original_max_position_embeddings)));
  REPRISE_ASSIGN_OR_RETURN(
      rope.attention_factor,
      fields.PositiveOr("attention_factor",
                        LongRopeScale(rope.factor, rope.original_max_position_embeddings)));
  const int64_t pairs = context.turned_dim / 2;
  REPRISE_ASSIGN_OR_RETURN(rope.short_factors, ReadFactors(fields, "short_factor", pairs));
  REPRISE_ASSIGN_OR_RETURN(rope.long_factors, ReadFactors(fields, "long_factor", pairs));
  rope.FitContexts(context.max_position_embeddings);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RopeSpec> ReadRopeScaling(const JsonFields& fields, RopeScaling scaling,
                                         const RopeContext& context) {
  REPRISE_RETURN_IF_ERROR(CheckParametersFit(fields, scaling));
  RopeSpec rope;
  rope.scaling = scaling;
  if (scaling == RopeScaling::kNone) return rope;
  if (scaling == RopeScaling::kLongRope) {
    REPRISE_RETURN_IF_ERROR(ReadLongRope(fields, context, rope));
    return rope;
  }
  REPRISE_ASSIGN_OR_RETURN(rope.factor, fields.Positive("factor"));
  if (scaling == RopeScaling::kLlama3) REPRISE_RETURN_IF_ERROR(ReadLlama3(fields, rope));
  if (scaling == RopeScaling::kYarn) {
    REPRISE_RETURN_IF_ERROR(ReadYarn(fields, context.max_position_embeddings, rope));
  }
  return rope;
}

}  // namespace reprise::models
