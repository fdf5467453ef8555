// SPDX-License-Identifier: Apache-2.0
// Reads from a config.json how a checkpoint stores its weights and wants its KV cache stored:
// quantization_config, in the formats of compressed-tensors, fp8, modelopt, fbgemm_fp8, GPTQ, AWQ
// and mxfp4. Part of hf_config.cc's implementation.
#ifndef REPRISE_MODELS_CONFIG_HF_QUANTIZATION_H_
#define REPRISE_MODELS_CONFIG_HF_QUANTIZATION_H_

#include "absl/status/status.h"
#include "models/config/json_input.h"
#include "models/config/model_spec.h"

namespace reprise::models {

// Sets ModelSpec::weight_quantization and kv_cache_dtype, unset where nothing is said; of mxfp4,
// which it takes of the architectures that have it, mxfp4_experts, and checkpoint_dtype to what all
// else is in. Behind what sets the architecture and checkpoint_dtype. fields: of the whole config.
// beside: hf_quant_config.json, which says it where the config says nothing, or nullptr. Errors:
// InvalidArgument with field, got, allowed.
absl::Status ReadQuantization(const JsonFields& fields, const Json* beside, ModelSpec& spec);

// Behind it, of a spec that ValidateModelSpec accepts: which layers are not quantised. Without any
// that is, there is no weight_quantization. Errors: as above.
absl::Status ReadLayersLeftOut(const JsonFields& fields, const Json* beside, ModelSpec& spec);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_CONFIG_HF_QUANTIZATION_H_
