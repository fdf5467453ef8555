// SPDX-License-Identifier: Apache-2.0
// Layers of state space models, and attention without rope, from a config's JSON.
#ifndef REPRISE_MODELS_CONFIG_HF_MAMBA_H_
#define REPRISE_MODELS_CONFIG_HF_MAMBA_H_

#include "absl/status/status.h"
#include "models/config/architectures.h"
#include "models/config/json_input.h"
#include "models/config/model_spec.h"

namespace reprise::models {

// Which layers are Mamba-2 and of what size, where the architecture has them (StateRule), and
// whether attention has rope, where it says so (optional_rope). REQUIRES: the sizes of `spec` are
// read. Errors: InvalidArgument with field, got, allowed.
absl::Status ReadMamba(const JsonFields& fields, const Architecture& architecture, ModelSpec& spec);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_CONFIG_HF_MAMBA_H_
