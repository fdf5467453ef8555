// SPDX-License-Identifier: Apache-2.0
// Reads the sliding window of attention from a parsed config.json: Mistral's one field, and the
// four of Qwen2 and Qwen3. Part of hf_config.cc's implementation.
#ifndef REPRISE_MODELS_CONFIG_HF_WINDOW_H_
#define REPRISE_MODELS_CONFIG_HF_WINDOW_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "models/config/architectures.h"
#include "models/config/json_input.h"
#include "models/config/model_spec.h"

namespace reprise::models {

// ModelSpec::sliding_window; 0 also for a window that no position outgrows. `spec` has its sizes.
// Errors: InvalidArgument with field, got, allowed; Unimplemented, by name, where some layers slide
// and others do not.
absl::StatusOr<int64_t> ReadSlidingWindow(const Json& config, const Architecture& architecture,
                                          const ModelSpec& spec);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_CONFIG_HF_WINDOW_H_
