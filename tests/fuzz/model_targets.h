// SPDX-License-Identifier: Apache-2.0
// Targets of targets.h that read files of models, each with what it takes to begin with.
#ifndef REPRISE_TESTS_FUZZ_MODEL_TARGETS_H_
#define REPRISE_TESTS_FUZZ_MODEL_TARGETS_H_

#include <string>
#include <string_view>
#include <vector>

namespace reprise::fuzz {

// config.json, and behind a byte of 0 a hf_quant_config.json.
bool TakeConfig(std::string_view bytes);
std::vector<std::string> ConfigSeeds();
// A .safetensors file, whatever is in it.
bool TakeSafetensors(std::string_view bytes);
std::vector<std::string> SafetensorsSeeds();
// model.safetensors.index.json, beside two shards.
bool TakeShardIndex(std::string_view bytes);
std::vector<std::string> ShardIndexSeeds();
// model.safetensors of one layer of 4 bits, loaded. The first byte says how it is published, and in
// which order it is read.
bool TakeInt4Layer(std::string_view bytes);
std::vector<std::string> Int4LayerSeeds();
// Logits of another implementation (`reprise check --reference`), beside their tensors.
bool TakeReferenceLogits(std::string_view bytes);
std::vector<std::string> ReferenceLogitsSeeds();

}  // namespace reprise::fuzz

#endif  // REPRISE_TESTS_FUZZ_MODEL_TARGETS_H_
