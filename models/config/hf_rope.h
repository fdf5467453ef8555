// SPDX-License-Identifier: Apache-2.0
// Reads rotary embedding parameters from a parsed config.json, in the dialects of transformers 4
// (rope_theta beside rope_scaling) and 5 (rope_parameters). Part of hf_config.cc's implementation.
#ifndef REPRISE_MODELS_CONFIG_HF_ROPE_H_
#define REPRISE_MODELS_CONFIG_HF_ROPE_H_

#include "absl/status/status.h"
#include "models/config/architectures.h"
#include "models/config/json_input.h"
#include "models/config/model_spec.h"

namespace reprise::models {

// Sets ModelSpec::rope, and sliding_rope of an architecture that has one: rope_local_base_freq, or
// rope_parameters with an object for each kind of layer; rope_theta and rope_scaling are those of
// layers that see all. `spec` has max_position_embeddings. Where a parameter is named twice, the
// two must agree. Types: default, linear, llama3, yarn, longrope; any other is refused by name. Of
// longrope's factors those are chosen that contexts of max_position_embeddings want. Sets
// rotary_dim, too. Errors: InvalidArgument with field, got, allowed; ranges are
// ValidateModelSpec's.
absl::Status ReadRope(const JsonFields& fields, const Architecture& architecture, ModelSpec& spec);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_CONFIG_HF_ROPE_H_
