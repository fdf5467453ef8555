// SPDX-License-Identifier: Apache-2.0
// Experts of both dialects; see hf_experts.h. transformers 5 calls their number num_local_experts
// in every architecture, transformers 4 and published configs of Qwen3-MoE call it num_experts.
#include "models/config/hf_experts.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/experts/experts_geometry.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

constexpr int64_t kMaxSize = INT32_MAX;
constexpr int64_t kDefaultSharedSize = 1024;  // of Granite-MoE-Hybrid

absl::StatusOr<int64_t> NumExperts(const JsonFields& fields, const Architecture& architecture) {
  const Json* const local = fields.Find("num_local_experts");
  const Json* const plain = fields.Find("num_experts");
  if (local != nullptr && plain != nullptr && *local != *plain)
    return fields.Refuse("num_experts",
                         absl::StrCat("the same as num_local_experts (", ShowJson(*local), ")"));
  const int64_t least = architecture.experts == ExpertRule::kBesideMlp ? 0 : 1;
  return fields.IntegerOr(plain != nullptr ? "num_experts" : "num_local_experts",
                          architecture.default_experts, least, kernels::kMaxExperts);
}

// Which layers have experts: every decoder_sparse_step-th, without those of mlp_only_layers.
absl::StatusOr<std::vector<bool>> SparseLayers(const JsonFields& fields, const ModelSpec& spec) {
  REPRISE_ASSIGN_OR_RETURN(const int64_t step,
                           fields.IntegerOr("decoder_sparse_step", 1, 1, kMaxSize));
  std::vector<bool> sparse;
  for (int64_t layer = 0; layer < spec.num_layers; ++layer)
    sparse.push_back((layer + 1) % step == 0);
  const Json* const dense = fields.Find("mlp_only_layers");
  if (dense == nullptr) return sparse;
  const auto refuse = [&] {
    return fields.Refuse("mlp_only_layers",
                         absl::StrCat("a list of layers from 0 to ", spec.num_layers - 1));
  };
  if (!dense->is_array()) return refuse();
  for (const Json& layer : *dense) {
    if (!layer.is_number_unsigned() ||
        layer.get<uint64_t>() >= static_cast<uint64_t>(spec.num_layers))
      return refuse();
    sparse[layer.get<size_t>()] = false;
  }
  return sparse;
}

}  // namespace

absl::Status ReadExperts(const JsonFields& fields, const Architecture& architecture,
                         ModelSpec& spec) {
  if (architecture.experts == ExpertRule::kNone) return absl::OkStatus();
  REPRISE_ASSIGN_OR_RETURN(spec.num_experts, NumExperts(fields, architecture));
  spec.expert_intermediate_size = spec.intermediate_size;
  if (architecture.experts == ExpertRule::kBesideMlp) {
    REPRISE_ASSIGN_OR_RETURN(
        spec.intermediate_size,
        fields.IntegerOr("shared_intermediate_size", kDefaultSharedSize, 1, kMaxSize));
    // Of a model without experts the config's numbers mean nothing.
    if (spec.num_experts == 0) {
      spec.expert_intermediate_size = 0;
      return absl::OkStatus();
    }
  }
  REPRISE_ASSIGN_OR_RETURN(
      spec.experts_per_token,
      fields.IntegerOr("num_experts_per_tok", architecture.default_experts_per_token, 1, kMaxSize));
  if (const Json* const again = fields.Find("experts_per_token");
      again != nullptr && *again != spec.experts_per_token)
    return fields.Refuse("experts_per_token", absl::StrCat("the same as num_experts_per_tok (",
                                                           spec.experts_per_token, ")"));
  if (spec.experts_per_token > spec.num_experts)
    return fields.Refuse("num_experts_per_tok",
                         absl::StrCat("1 to the number of experts, ", spec.num_experts));
  spec.normalises_expert_shares = true;
  if (architecture.experts != ExpertRule::kSomeLayers) return absl::OkStatus();
  REPRISE_ASSIGN_OR_RETURN(spec.expert_intermediate_size,
                           fields.IntegerOr("moe_intermediate_size", 768, 1, kMaxSize));
  REPRISE_ASSIGN_OR_RETURN(spec.normalises_expert_shares,
                           fields.BooleanOr("norm_topk_prob", false));
  REPRISE_ASSIGN_OR_RETURN(std::vector<bool> sparse, SparseLayers(fields, spec));
  // Where all have experts, a list says nothing more.
  if (std::find(sparse.begin(), sparse.end(), false) != sparse.end())
    spec.sparse = std::move(sparse);
  return absl::OkStatus();
}

}  // namespace reprise::models
