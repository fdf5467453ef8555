// SPDX-License-Identifier: Apache-2.0
// What a checkpoint calls the linear layers of a model's blocks: the names that a config's lists of
// layers are held against. Layers say the same when they declare their weights
// (models/layers/layer.h).
#ifndef REPRISE_MODELS_CONFIG_BLOCK_LINEARS_H_
#define REPRISE_MODELS_CONFIG_BLOCK_LINEARS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "models/config/model_spec.h"
#include "models/config/weight_quantization.h"

namespace reprise::models {

struct NamedLinear {
  BlockLinear linear;
  // Of its tensors, without ".weight": of kAttentionIn those of q, k and v, or the one that is all.
  std::vector<std::string> names;
};

// Both want a spec that ValidateModelSpec accepts, and 0 <= layer < num_layers. Experts and their
// routers are not among the former; the latter has the linear layers of all experts, none where
// these are one tensor.
std::vector<NamedLinear> LinearsOfBlock(const ModelSpec& spec, int64_t layer);
std::vector<std::string> ExpertNamesOfBlock(const ModelSpec& spec, int64_t layer);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_CONFIG_BLOCK_LINEARS_H_
