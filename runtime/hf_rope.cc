// SPDX-License-Identifier: Apache-2.0
// Rotary embedding parameters of both dialects; see hf_rope.h.
#include "runtime/hf_rope.h"

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/hf_fields.h"
#include "runtime/status_macros.h"

namespace reprise::runtime {
namespace {

constexpr double kDefaultTheta = 10000.0;  // what both dialects mean when they say nothing

constexpr const char* kLlama3Parameters[] = {"factor", "low_freq_factor", "high_freq_factor",
                                             "original_max_position_embeddings"};

// rope_scaling or rope_parameters, without theta.
absl::StatusOr<RopeSpec> ReadScaling(const JsonFields& fields) {
  REPRISE_ASSIGN_OR_RETURN(const std::string old_type, fields.StringOr("type", "default"));
  REPRISE_ASSIGN_OR_RETURN(const std::string type, fields.StringOr("rope_type", old_type));
  if (fields.Find("type") != nullptr && type != old_type) {
    return fields.Refuse("type", absl::StrCat("the same as rope_type ('", type, "')"));
  }
  RopeSpec rope;
  if (type == "default") {
    for (const char* name : kLlama3Parameters) {
      if (fields.Find(name) != nullptr) {
        return fields.Refuse(name, "only beside rope_type 'llama3'");
      }
    }
    return rope;
  }
  if (type != "llama3") {
    return fields.Refuse(fields.Find("rope_type") != nullptr ? "rope_type" : "type",
                         "'default' or 'llama3'");
  }
  rope.scaling = RopeScaling::kLlama3;
  REPRISE_ASSIGN_OR_RETURN(rope.factor, fields.Positive("factor"));
  REPRISE_ASSIGN_OR_RETURN(rope.low_freq_factor, fields.Positive("low_freq_factor"));
  REPRISE_ASSIGN_OR_RETURN(rope.high_freq_factor, fields.Positive("high_freq_factor"));
  REPRISE_ASSIGN_OR_RETURN(rope.original_max_position_embeddings,
                           fields.Integer("original_max_position_embeddings", 1, INT32_MAX));
  return rope;
}

bool SameScaling(const RopeSpec& a, const RopeSpec& b) {
  return a.scaling == b.scaling && a.factor == b.factor && a.low_freq_factor == b.low_freq_factor &&
         a.high_freq_factor == b.high_freq_factor &&
         a.original_max_position_embeddings == b.original_max_position_embeddings;
}

// Collects what is said in several places and insists that it is one thing.
class RopeReader {
 public:
  absl::Status AddTheta(const JsonFields& fields) {
    if (fields.Find("rope_theta") == nullptr) return absl::OkStatus();
    REPRISE_ASSIGN_OR_RETURN(const double theta, fields.Positive("rope_theta"));
    if (theta_.has_value() && *theta_ != theta) {
      return fields.Refuse("rope_theta", absl::StrCat(*theta_, ", as elsewhere in this config"));
    }
    theta_ = theta;
    return absl::OkStatus();
  }

  absl::Status AddObject(const JsonFields& config, const char* name) {
    const Json* object = config.Find(name);
    if (object == nullptr) return absl::OkStatus();
    if (!object->is_object()) return config.Refuse(name, "an object or null");
    const std::string where = absl::StrCat("config.json: ", name, ".");
    REPRISE_RETURN_IF_ERROR(CheckRopeFields(*object, where));
    const JsonFields fields(*object, where);
    REPRISE_RETURN_IF_ERROR(AddTheta(fields));
    REPRISE_ASSIGN_OR_RETURN(const RopeSpec scaling, ReadScaling(fields));
    if (scaling_.has_value() && !SameScaling(*scaling_, scaling)) {
      return config.Refuse(name, "the same scaling as in rope_scaling");
    }
    scaling_ = scaling;
    return absl::OkStatus();
  }

  RopeSpec Finish() const {
    RopeSpec rope = scaling_.value_or(RopeSpec{});
    rope.theta = theta_.value_or(kDefaultTheta);
    return rope;
  }

 private:
  std::optional<double> theta_;
  std::optional<RopeSpec> scaling_;
};

}  // namespace

absl::StatusOr<RopeSpec> ReadRope(const Json& config) {
  const JsonFields fields(config, "config.json: ");
  RopeReader reader;
  REPRISE_RETURN_IF_ERROR(reader.AddTheta(fields));
  REPRISE_RETURN_IF_ERROR(reader.AddObject(fields, "rope_scaling"));
  REPRISE_RETURN_IF_ERROR(reader.AddObject(fields, "rope_parameters"));
  return reader.Finish();
}

}  // namespace reprise::runtime
