// SPDX-License-Identifier: Apache-2.0
// Reads the sliding window of attention, and which layers have it, from a parsed config.json:
// Mistral's one field, the two of Ministral and Gemma 2, Gemma 3's pattern beside them, and the
// four of Qwen2 and Qwen3. Part of hf_config.cc's implementation.
#ifndef REPRISE_MODELS_CONFIG_HF_WINDOW_H_
#define REPRISE_MODELS_CONFIG_HF_WINDOW_H_

#include "absl/status/status.h"
#include "models/config/architectures.h"
#include "models/config/json_input.h"
#include "models/config/model_spec.h"

namespace reprise::models {

// Sets ModelSpec::sliding_window and slides; a window that no position outgrows is none. `spec` has
// its sizes, which ValidateModelSpec has accepted. Errors: InvalidArgument with field, got,
// allowed.
absl::Status ReadSlidingWindow(const JsonFields& fields, const Architecture& architecture,
                               ModelSpec& spec);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_CONFIG_HF_WINDOW_H_
