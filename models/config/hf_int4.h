// SPDX-License-Identifier: Apache-2.0
// Reads from a quantization_config how weights of 4 bits are stored: what GPTQ, AWQ and
// compressed-tensors say of them. Part of hf_quantization.cc's implementation.
#ifndef REPRISE_MODELS_CONFIG_HF_INT4_H_
#define REPRISE_MODELS_CONFIG_HF_INT4_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "models/config/json_input.h"
#include "models/config/model_spec.h"

namespace reprise::models {

// Fields of a scheme of compressed-tensors. How scales were found, which leaves no trace in them.
inline constexpr std::string_view kInertSchemeFields[] = {
    "observer", "observer_kwargs", "group_size", "actorder", "scale_dtype", "zp_dtype"};
inline constexpr std::string_view kSchemeFields[] = {"num_bits", "type",     "symmetric",
                                                     "dynamic",  "strategy", "block_structure"};

// Both set ModelSpec::weight_quantization. quantization: quantization_config. Errors:
// InvalidArgument with field, got, allowed.
absl::Status ReadGptq(const JsonFields& quantization, ModelSpec& spec);
absl::Status ReadAwq(const JsonFields& quantization, ModelSpec& spec);

// Integers of 4 bits, as compressed-tensors packs them. json: a scheme of weights. where: how
// messages begin. Errors: as above.
absl::Status ReadPackedScheme(const Json& json, const std::string& where,
                              WeightQuantization& weights);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_CONFIG_HF_INT4_H_
