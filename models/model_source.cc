// SPDX-License-Identifier: Apache-2.0
#include "models/model_source.h"

#include "absl/strings/str_cat.h"
#include "models/config/hf_config.h"
#include "models/config/model_presets.h"

namespace reprise::models {

absl::StatusOr<ModelSpec> ReadModelSpec(const ModelSource& source) {
  if (source.directory.empty() == source.preset.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("model directory is \"", source.directory,
                                                   "\" and preset is \"", source.preset,
                                                   "\"; allowed: exactly one of them"));
  }
  if (!source.directory.empty()) return ReadHfConfig(source.directory);
  return PresetSpec(source.preset);
}

}  // namespace reprise::models
