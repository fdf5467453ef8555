// SPDX-License-Identifier: Apache-2.0
// ModelSource: where a model comes from, and reading what it is without loading it.
#ifndef REPRISE_MODELS_MODEL_SOURCE_H_
#define REPRISE_MODELS_MODEL_SOURCE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "models/config/model_spec.h"

namespace reprise::models {

// A Hugging Face directory, or a preset's shape with random weights. Exactly one of the two is set.
struct ModelSource {
  std::string directory = {};  // config.json and safetensors files
  std::string preset = {};     // a name of PresetNames(), models/config/model_presets.h
  uint64_t random_seed = 1;    // of a preset's weights
};

// Reads the config; no weights, no device. Errors: InvalidArgument when both or neither of
// directory and preset are set; the reader's own.
absl::StatusOr<ModelSpec> ReadModelSpec(const ModelSource& source);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_MODEL_SOURCE_H_
