// SPDX-License-Identifier: Apache-2.0
// The check of a Hugging Face config's fields: every field has a rule, in the table of its
// architecture (architectures.h) or in the one that all share. Reading the consumed fields is
// hf_config.cc's.
#ifndef REPRISE_MODELS_CONFIG_HF_FIELDS_H_
#define REPRISE_MODELS_CONFIG_HF_FIELDS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "models/config/architectures.h"
#include "models/config/json_input.h"

namespace reprise::models {

// Every field of `config` must have a rule, in the architecture's own table or in the one that all
// architectures share, and satisfy it.
struct FieldFinding {
  std::string name;
  const FieldRule* rule = nullptr;  // null: there is none
  absl::Status status;              // InvalidArgument with field, got, allowed
};
// Of all fields, by name.
std::vector<FieldFinding> CheckConfigFields(const Json& config, const Architecture& architecture);

// The same for the object of `rope_scaling` or `rope_parameters`, named by `where` in errors.
absl::Status CheckRopeFields(const Json& rope, std::string_view where);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_CONFIG_HF_FIELDS_H_
