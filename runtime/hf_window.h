// SPDX-License-Identifier: Apache-2.0
// Reads the sliding window of attention from a parsed config.json: Mistral's one field, and the
// four of Qwen2 and Qwen3. Part of hf_config.cc's implementation.
#ifndef REPRISE_RUNTIME_HF_WINDOW_H_
#define REPRISE_RUNTIME_HF_WINDOW_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/hf_fields.h"
#include "runtime/json_input.h"
#include "runtime/model_spec.h"

namespace reprise::runtime {

// ModelSpec::sliding_window; 0 also for a window that no position outgrows. `spec` has its sizes.
// Errors: InvalidArgument with field, got, allowed; Unimplemented, by name, where some layers slide
// and others don't.
absl::StatusOr<int64_t> ReadSlidingWindow(const Json& config,
                                          const ArchitectureFields& architecture,
                                          const ModelSpec& spec);

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_HF_WINDOW_H_
