// SPDX-License-Identifier: Apache-2.0
#include "models/config/block_linears.h"

#include "absl/strings/str_cat.h"
#include "models/config/architectures.h"

namespace reprise::models {
namespace {

void AddAttention(const Architecture& architecture, const std::string& name,
                  std::vector<NamedLinear>* linears) {
  NamedLinear in{.linear = BlockLinear::kAttentionIn, .names = {name + ".qkv_proj"}};
  if (!architecture.fused_tensors)
    in.names = {name + ".q_proj", name + ".k_proj", name + ".v_proj"};
  linears->push_back(in);
  linears->push_back({BlockLinear::kAttentionOut, {name + ".o_proj"}});
}

void AddMlp(const MlpTensors& tensors, const std::string& name, std::vector<NamedLinear>* linears) {
  NamedLinear in{.linear = BlockLinear::kMlpIn, .names = {absl::StrCat(name, ".", tensors.gate)}};
  if (tensors.up != nullptr) in.names.push_back(absl::StrCat(name, ".", tensors.up));
  linears->push_back(in);
  linears->push_back({BlockLinear::kMlpOut, {absl::StrCat(name, ".", tensors.down)}});
}

std::string NameOfLayer(int64_t layer, const char* entry) {
  return absl::StrCat("model.layers.", layer, ".", entry);
}

}  // namespace

std::vector<NamedLinear> LinearsOfBlock(const ModelSpec& spec, int64_t layer) {
  const Architecture& architecture = *FindArchitecture(spec.architecture);
  std::vector<NamedLinear> linears;
  for (const LayerEntry& entry : architecture.BlockOf(layer)) {
    const std::string name = NameOfLayer(layer, entry.name);
    const bool shares = entry.kind == LayerKind::kExperts && architecture.shared_mlp != nullptr;
    switch (entry.kind) {
      case LayerKind::kAttention:
        if (!spec.IsMamba(layer)) AddAttention(architecture, name, &linears);
        break;
      case LayerKind::kMamba:
        if (!spec.IsMamba(layer)) break;
        linears.push_back({BlockLinear::kAttentionIn, {name + ".in_proj"}});
        linears.push_back({BlockLinear::kAttentionOut, {name + ".out_proj"}});
        break;
      case LayerKind::kMlp:
      case LayerKind::kExperts:
        if (shares) {
          AddMlp(architecture.mlp_tensors, NameOfLayer(layer, architecture.shared_mlp), &linears);
        } else if (entry.kind == LayerKind::kMlp || !spec.HasExperts(layer)) {
          AddMlp(architecture.mlp_tensors, name, &linears);
        }
        break;
      case LayerKind::kNorm:
      case LayerKind::kPostNorm:
        break;
    }
  }
  return linears;
}

std::vector<std::string> ExpertNamesOfBlock(const ModelSpec& spec, int64_t layer) {
  const Architecture& architecture = *FindArchitecture(spec.architecture);
  const ExpertTensors& tensors = architecture.expert_tensors;
  std::vector<std::string> names;
  if (!spec.HasExperts(layer) || tensors.up == nullptr) return names;
  for (const LayerEntry& entry : architecture.BlockOf(layer)) {
    if (entry.kind != LayerKind::kExperts) continue;
    const std::string name = absl::StrCat(NameOfLayer(layer, entry.name), ".experts.");
    for (int64_t expert = 0; expert < spec.num_experts; ++expert)
      for (const char* tensor : {tensors.gate, tensors.up, tensors.down})
        names.push_back(absl::StrCat(name, expert, ".", tensor));
  }
  return names;
}

}  // namespace reprise::models
