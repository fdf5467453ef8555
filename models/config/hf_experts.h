// SPDX-License-Identifier: Apache-2.0
// Reads from a config.json which layers are mixtures of experts, of how many and how large ones,
// and how many of them a token goes to. Part of hf_config.cc's implementation.
#ifndef REPRISE_MODELS_CONFIG_HF_EXPERTS_H_
#define REPRISE_MODELS_CONFIG_HF_EXPERTS_H_

#include "absl/status/status.h"
#include "models/config/architectures.h"
#include "models/config/json_input.h"
#include "models/config/model_spec.h"

namespace reprise::models {

// Sets what ModelSpec says of experts; nothing where the architecture has none. Behind the sizes.
// fields: of the whole config. Errors: InvalidArgument with field, got, allowed.
absl::Status ReadExperts(const JsonFields& fields, const Architecture& architecture,
                         ModelSpec& spec);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_CONFIG_HF_EXPERTS_H_
