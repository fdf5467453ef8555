// SPDX-License-Identifier: Apache-2.0
// Published model shapes by name, for measuring with random weights. Shapes are those of the
// models' config.json files.
#ifndef REPRISE_RUNTIME_MODEL_PRESETS_H_
#define REPRISE_RUNTIME_MODEL_PRESETS_H_

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/model_spec.h"

namespace reprise::runtime {

// "llama-3.1-8b", "granite-8b-code", "llama-3.2-1b", "mistral-7b-v0.1", "qwen2.5-7b", "qwen3-8b".
// Errors: NotFound lists the names there are.
absl::StatusOr<ModelSpec> PresetSpec(std::string_view name);
std::vector<std::string_view> PresetNames();

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_MODEL_PRESETS_H_
