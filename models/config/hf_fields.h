// SPDX-License-Identifier: Apache-2.0
// The check of a Hugging Face config's fields: every field has a rule, in the table of its
// architecture (architectures.h) or in the one that all share. Beside a vision part there are two
// objects of fields, each with its rules (hf_parts.h). Reading the consumed fields is
// hf_config.cc's.
#ifndef REPRISE_MODELS_CONFIG_HF_FIELDS_H_
#define REPRISE_MODELS_CONFIG_HF_FIELDS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "models/config/architectures.h"
#include "models/config/hf_parts.h"
#include "models/config/json_input.h"

namespace reprise::models {

// Every field of a config must have a rule, in the architecture's own table or in the one that all
// architectures share, and satisfy it.
struct FieldFinding {
  std::string name;                 // of one in text_config: "text_config.<name>"
  std::string value;                // as ShowJson has it
  const FieldRule* rule = nullptr;  // null: there is none
  absl::Status status;              // InvalidArgument with field, got, allowed
};
// Of all fields, by name; those in text_config behind it.
std::vector<FieldFinding> CheckConfigFields(const ConfigParts& parts);

// The same for the object of `rope_scaling` or `rope_parameters`, named by `where` in errors.
absl::Status CheckRopeFields(const Json& rope, std::string_view where);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_CONFIG_HF_FIELDS_H_
