// SPDX-License-Identifier: Apache-2.0
// One object of rope parameters, rope_scaling or rope_parameters: its type, and what belongs to
// that. Part of hf_rope.cc's implementation, which knows where such objects stand.
#ifndef REPRISE_MODELS_CONFIG_HF_ROPE_SCALING_H_
#define REPRISE_MODELS_CONFIG_HF_ROPE_SCALING_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "models/config/json_input.h"
#include "models/config/model_spec.h"

namespace reprise::models {

// What parameters of a rope mean by what is said elsewhere in the config.
struct RopeContext {
  int64_t max_position_embeddings = 0;
  // Of the config itself, beside rope's object, as longrope has it; and where nothing is said.
  std::optional<int64_t> original_max_position_embeddings = std::nullopt;
  int64_t default_original_positions = 0;
  double partial_rotary_factor = 1.0;
  int64_t turned_dim = 0;  // elements of a head that rope turns
  bool of_two = false;     // layers that slide have a rope of their own
};

// rope_type, or type, which must mean the same where both are there. Errors: InvalidArgument names
// the types there are.
absl::StatusOr<RopeScaling> ReadRopeType(const JsonFields& fields, const RopeContext& context);

// The parameters of the type, without theta. Errors: InvalidArgument for one that is missing, has
// another form, or belongs to another type.
absl::StatusOr<RopeSpec> ReadRopeScaling(const JsonFields& fields, RopeScaling scaling,
                                         const RopeContext& context);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_CONFIG_HF_ROPE_SCALING_H_
