// SPDX-License-Identifier: Apache-2.0
// The layers that a quantized checkpoint leaves as they were: lists of names and patterns in
// quantization_config, each with the rule by which its programs read it. Part of
// hf_quantization.cc's implementation.
#ifndef REPRISE_MODELS_CONFIG_HF_LEFT_OUT_H_
#define REPRISE_MODELS_CONFIG_HF_LEFT_OUT_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "models/config/json_input.h"
#include "models/config/model_spec.h"

namespace reprise::models {

// Which layers an entry names. "re:<expression>" is a regular expression from the name's begin on,
// whatever the rule.
enum class LeftOutRule : uint8_t {
  kName,       // the layer of this name
  kModule,     // layers whose path has it as one or several whole parts: "self_attn", "layers.0"
  kPart,       // layers whose path has it anywhere
  kWildcards,  // as kModule, and what the wildcards of a shell match
};

struct LeftOutList {
  const char* field;
  LeftOutRule rule;
};

// Sets WeightQuantization::left_out by the lists that are there; without anything left to quantise
// there is no weight_quantization. Names of what is never quantised, and of no layer of the model,
// change nothing. `spec` is one that ValidateModelSpec accepts, with a weight_quantization.
// Errors: InvalidArgument with field, got, allowed: on what is no list of names and patterns, on
// layers of one launch of which some are left out, and on experts.
absl::Status ReadLeftOut(const JsonFields& quantization, std::span<const LeftOutList> lists,
                         ModelSpec& spec);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_CONFIG_HF_LEFT_OUT_H_
