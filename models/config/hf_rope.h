// SPDX-License-Identifier: Apache-2.0
// Reads rotary embedding parameters from a parsed config.json, in the dialects of transformers 4
// (rope_theta beside rope_scaling) and 5 (rope_parameters). Part of hf_config.cc's implementation.
#ifndef REPRISE_MODELS_CONFIG_HF_ROPE_H_
#define REPRISE_MODELS_CONFIG_HF_ROPE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "models/config/json_input.h"
#include "models/config/model_spec.h"

namespace reprise::models {

// Where a parameter is named twice, the two must agree. Types: default, linear, llama3, yarn; any
// other is refused by name. Errors: InvalidArgument with field, got, allowed; ranges are
// ValidateModelSpec's.
absl::StatusOr<RopeSpec> ReadRope(const Json& config, int64_t max_position_embeddings);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_CONFIG_HF_ROPE_H_
