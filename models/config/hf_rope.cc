// SPDX-License-Identifier: Apache-2.0
// Which rope a model has, wherever its config says so; see hf_rope.h.
#include "models/config/hf_rope.h"

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "models/config/hf_fields.h"
#include "models/config/hf_rope_scaling.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

constexpr double kDefaultLocalTheta = 10000.0;  // of layers that slide, where nothing is said

// Collects what is said in several places and insists that it is one thing.
class RopeReader {
 public:
  explicit RopeReader(RopeContext context) : context_(context) {}

  // The model's, or nothing.
  absl::Status CheckPartialFactor(const JsonFields& fields) const {
    const double wanted = context_.partial_rotary_factor;
    const Json* const factor = fields.Find("partial_rotary_factor");
    if (factor == nullptr || (factor->is_number() && *factor == wanted)) return absl::OkStatus();
    return fields.Refuse("partial_rotary_factor", absl::StrCat(wanted, " or absent"));
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
    REPRISE_ASSIGN_OR_RETURN(const RopeScaling type, ReadRopeType(fields, context_));
    REPRISE_RETURN_IF_ERROR(CheckRopeFields(*object, where));
    REPRISE_RETURN_IF_ERROR(CheckPartialFactor(fields));
    REPRISE_RETURN_IF_ERROR(AddTheta(fields));
    REPRISE_ASSIGN_OR_RETURN(const RopeSpec scaling, ReadRopeScaling(fields, type, context_));
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
  const RopeContext context_;
  std::optional<double> theta_;
  std::optional<RopeSpec> scaling_;
};

// Elements of a head that rope turns, as transformers rounds them.
int64_t TurnedDim(int64_t head_dim, double partial_rotary_factor) {
  return static_cast<int64_t>(static_cast<double>(head_dim) * partial_rotary_factor);
}

// The object's partial_rotary_factor, which makes pairs of a head.
absl::StatusOr<double> ReadPartialFactor(const JsonFields& fields, int64_t head_dim) {
  constexpr char kName[] = "partial_rotary_factor";
  REPRISE_ASSIGN_OR_RETURN(const double factor, fields.Positive(kName));
  if (factor == 1.0) return factor;
  const int64_t turned = factor < 1.0 ? TurnedDim(head_dim, factor) : 0;
  if (turned < 2 || turned % 2 != 0)
    return fields.Refuse(kName,
                         absl::StrCat("1, or less that leaves an even number, 2 at least, of "
                                      "head_dim (",
                                      head_dim, ")"));
  return factor;
}

// The share of a head that rope turns. Configs that may choose it name it beside rope's object or
// in it: the first one is taken, and RopeReader sees whether others agree.
absl::StatusOr<double> FindPartialFactor(const JsonFields& fields, const Architecture& architecture,
                                         int64_t head_dim) {
  if (!architecture.chooses_rotary_factor) return architecture.partial_rotary_factor;
  if (fields.Find("partial_rotary_factor") != nullptr) return ReadPartialFactor(fields, head_dim);
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    const Json* const object = fields.Find(name);
    if (object == nullptr || !object->is_object()) continue;
    const JsonFields inside(*object, absl::StrCat(fields.prefix(), name, "."));
    if (inside.Find("partial_rotary_factor") != nullptr) return ReadPartialFactor(inside, head_dim);
  }
  return architecture.partial_rotary_factor;
}

absl::StatusOr<RopeContext> ReadContext(const JsonFields& fields, const Architecture& architecture,
                                        const ModelSpec& spec) {
  RopeContext context{.max_position_embeddings = spec.max_position_embeddings,
                      .of_two = architecture.local_rope};
  context.default_original_positions = architecture.default_original_positions != 0
                                           ? architecture.default_original_positions
                                           : spec.max_position_embeddings;
  constexpr char kOriginal[] = "original_max_position_embeddings";
  if (fields.Find(kOriginal) != nullptr) {
    REPRISE_ASSIGN_OR_RETURN(context.original_max_position_embeddings,
                             fields.Integer(kOriginal, 2, INT32_MAX));
  }
  REPRISE_ASSIGN_OR_RETURN(context.partial_rotary_factor,
                           FindPartialFactor(fields, architecture, spec.head_dim));
  context.turned_dim = TurnedDim(spec.head_dim, context.partial_rotary_factor);
  return context;
}

// What rope turns of a head, where that is not all of it.
absl::Status ReadRotaryDim(const JsonFields& fields, const RopeContext& context, ModelSpec& spec) {
  if (context.partial_rotary_factor == 1.0) return absl::OkStatus();
  spec.rotary_dim = context.turned_dim;
  // As older configs say the same.
  const Json* const turned = fields.Find("attn_rotary_emb");
  if (turned != nullptr && *turned != spec.rotary_dim)
    return fields.Refuse("attn_rotary_emb",
                         absl::StrCat(context.partial_rotary_factor, " of head_dim (",
                                      spec.rotary_dim, ") or absent"));
  return absl::OkStatus();
}

// Beside rope's object the original context counts for longrope alone, and means nothing without
// scaling.
absl::Status CheckOriginalContext(const JsonFields& fields, const RopeSpec& rope) {
  constexpr char kOriginal[] = "original_max_position_embeddings";
  if (fields.Find(kOriginal) == nullptr || rope.scaling == RopeScaling::kNone ||
      rope.scaling == RopeScaling::kLongRope)
    return absl::OkStatus();
  return fields.Refuse(kOriginal, "only beside rope_type 'longrope' or 'default'");
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
  REPRISE_ASSIGN_OR_RETURN(const RopeContext context, ReadContext(fields, architecture, spec));
  RopeReader reader(context);
  RopeReader sliding(context);
  REPRISE_RETURN_IF_ERROR(reader.CheckPartialFactor(fields));
  REPRISE_RETURN_IF_ERROR(ReadRotaryDim(fields, context, spec));
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
  return CheckOriginalContext(fields, spec.rope);
}

}  // namespace reprise::models
