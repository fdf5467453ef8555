// SPDX-License-Identifier: Apache-2.0
// Published model shapes by name, for measuring with random weights. Shapes are those of the
// models' config.json files.
#ifndef REPRISE_MODELS_CONFIG_MODEL_PRESETS_H_
#define REPRISE_MODELS_CONFIG_MODEL_PRESETS_H_

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "models/config/model_spec.h"

namespace reprise::models {

// "llama-3.1-8b", "granite-8b-code", "llama-3.2-1b", "mistral-7b-v0.1", "qwen2.5-7b", "qwen3-8b",
// "gemma-2-9b", "gemma-3-1b", "phi-4", "phi-4-mini", "olmo-2-7b"; with experts "mixtral-8x7b",
// "qwen3-30b-a3b", "granite-3.1-3b-a800m", "gpt-oss-20b" and "gpt-oss-120b"; with state space
// models "granite-4.0-h-micro" and "bamba-9b"; of E4M3 weights "llama-3.1-8b-fp8" and
// "qwen3-8b-fp8"; of 4 bits "llama-3.1-8b-int4", "llama-3.1-8b-act-order" and "qwen3-8b-awq"; of
// experts so quantised "qwen3-30b-a3b-fp8" and "qwen3-30b-a3b-int4". Errors: NotFound lists the
// names there are.
absl::StatusOr<ModelSpec> PresetSpec(std::string_view name);
std::vector<std::string_view> PresetNames();

}  // namespace reprise::models

#endif  // REPRISE_MODELS_CONFIG_MODEL_PRESETS_H_
