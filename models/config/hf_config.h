// SPDX-License-Identifier: Apache-2.0
// Reads a Hugging Face config.json (transformers 4 and 5 dialects) into a ModelSpec. One table per
// architecture says which fields are consumed, which are inert and which are refused unless
// neutral; any other field is refused by name. No weights are touched.
#ifndef REPRISE_MODELS_CONFIG_HF_CONFIG_H_
#define REPRISE_MODELS_CONFIG_HF_CONFIG_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "models/config/model_spec.h"

namespace reprise::models {

// `json`: the text of a config.json; `hf_quant_config`: that of a hf_quant_config.json, which says
// how weights are quantised where the former says nothing of it; empty: there is none. Errors:
// InvalidArgument with field, got, allowed; Unimplemented for an architecture we lack.
absl::StatusOr<ModelSpec> ParseHfConfig(std::string_view json,
                                        std::string_view hf_quant_config = {});

// Reads `directory`/config.json (and, where present, hf_quant_config.json, generation_config.json's
// eos_token_id and tokenizer_config.json's tokenizer_class: class "ByteTokenizer" means
// TokenEncoding::kBytes). The spec's name is the directory's base name. Errors: NotFound names the
// path.
absl::StatusOr<ModelSpec> ReadHfConfig(const std::string& directory);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_CONFIG_HF_CONFIG_H_
