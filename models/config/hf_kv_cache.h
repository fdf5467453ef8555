// SPDX-License-Identifier: Apache-2.0
// Reads from a config.json how a checkpoint wants its KV cache stored: kv_cache_scheme of a
// quantization_config in the format of compressed-tensors. Weights must not be quantised. Part of
// hf_config.cc's implementation.
#ifndef REPRISE_MODELS_CONFIG_HF_KV_CACHE_H_
#define REPRISE_MODELS_CONFIG_HF_KV_CACHE_H_

#include <optional>

#include "absl/status/statusor.h"
#include "models/config/json_input.h"
#include "runtime/dtype.h"

namespace reprise::models {

// ModelSpec::kv_cache_dtype: kE4m3 where there is a scheme, unset where there is none. fields: of
// the whole config. Errors: InvalidArgument with field, got, allowed.
absl::StatusOr<std::optional<runtime::DType>> ReadKvCacheScheme(const JsonFields& fields);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_CONFIG_HF_KV_CACHE_H_
