// SPDX-License-Identifier: Apache-2.0
// Mamba-2 layers of a config; see hf_mamba.h. What one leaves out means what transformers means by
// it in Granite-MoE-Hybrid and in Bamba.
#include "models/config/hf_mamba.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

constexpr int64_t kMaxSize = INT32_MAX;

absl::StatusOr<std::vector<bool>> ListedLayers(const JsonFields& fields, const ModelSpec& spec) {
  const Json* types = fields.Find("layer_types");
  const Json* const again = fields.Find("layers_block_type");
  if (types != nullptr && again != nullptr && *types != *again)
    return fields.Refuse("layers_block_type", "the same as layer_types");
  const char* const name = types != nullptr ? "layer_types" : "layers_block_type";
  if (types == nullptr) types = again;
  if (types == nullptr) return std::vector<bool>(static_cast<size_t>(spec.num_layers), true);
  if (!types->is_array() || types->size() != static_cast<size_t>(spec.num_layers))
    return fields.Refuse(
        name, absl::StrCat("a list of one type for each of ", spec.num_layers, " layers"));
  std::vector<bool> layers;
  for (const Json& type : *types) {
    // As configs are published, and as transformers from 5.17 on saves them.
    const bool is_mamba = type == "mamba" || type == "linear_attention";
    if (!is_mamba && type != "attention" && type != "full_attention")
      return fields.Refuse(name,
                           "'mamba' and 'attention', or 'linear_attention' and 'full_attention'");
    layers.push_back(is_mamba);
  }
  return layers;
}

// All but those that are listed.
absl::StatusOr<std::vector<bool>> UnlistedLayers(const JsonFields& fields, const ModelSpec& spec) {
  std::vector<bool> layers(static_cast<size_t>(spec.num_layers), true);
  const Json* const indices = fields.Find("attn_layer_indices");
  if (indices == nullptr) return layers;
  const std::string allowed = absl::StrCat("a list of layers from 0 to ", spec.num_layers - 1);
  if (!indices->is_array()) return fields.Refuse("attn_layer_indices", allowed);
  for (const Json& index : *indices) {
    if (!index.is_number_unsigned() || index.get<uint64_t>() >= layers.size())
      return fields.Refuse("attn_layer_indices", allowed);
    layers[index.get<size_t>()] = false;
  }
  return layers;
}

// A number, or infinity as transformers 5 writes it: JSON has none.
absl::StatusOr<double> Bound(const JsonFields& fields, const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (value.is_object() && value.size() == 1 && value.contains("__float__") &&
      value["__float__"] == "Infinity")
    return std::numeric_limits<double>::infinity();
  return fields.Refuse("time_step_limit", R"(numbers, or {"__float__": "Infinity"})");
}

absl::Status ReadTimeStepLimit(const JsonFields& fields, MambaSpec& mamba) {
  const Json* const limit = fields.Find("time_step_limit");
  if (limit == nullptr) return absl::OkStatus();
  const std::string allowed = "a list of two numbers from 0 on, the lower one first";
  if (!limit->is_array() || limit->size() != 2) return fields.Refuse("time_step_limit", allowed);
  REPRISE_ASSIGN_OR_RETURN(mamba.min_dt, Bound(fields, limit->at(0)));
  REPRISE_ASSIGN_OR_RETURN(mamba.max_dt, Bound(fields, limit->at(1)));
  if (!(mamba.min_dt >= 0.0 && mamba.min_dt < std::numeric_limits<double>::infinity() &&
        mamba.min_dt <= mamba.max_dt))
    return fields.Refuse("time_step_limit", allowed);
  return absl::OkStatus();
}

absl::StatusOr<MambaSpec> ReadSizes(const JsonFields& fields, const ModelSpec& spec) {
  MambaSpec mamba;
  REPRISE_ASSIGN_OR_RETURN(mamba.num_heads, fields.IntegerOr("mamba_n_heads", 128, 1, kMaxSize));
  REPRISE_ASSIGN_OR_RETURN(mamba.num_groups, fields.IntegerOr("mamba_n_groups", 1, 1, kMaxSize));
  REPRISE_ASSIGN_OR_RETURN(mamba.state_size, fields.IntegerOr("mamba_d_state", 256, 1, kMaxSize));
  REPRISE_ASSIGN_OR_RETURN(mamba.conv_width, fields.IntegerOr("mamba_d_conv", 4, 1, kMaxSize));
  REPRISE_ASSIGN_OR_RETURN(const int64_t expand, fields.IntegerOr("mamba_expand", 2, 1, kMaxSize));
  const int64_t inner = expand * spec.hidden_size;  // both below 2^31
  if (inner % mamba.num_heads != 0)
    return fields.Refuse(
        "mamba_n_heads",
        absl::StrCat("numbers that divide mamba_expand * hidden_size (", inner, ")"));
  mamba.head_dim = inner / mamba.num_heads;
  const Json* const head = fields.Find("mamba_d_head");
  if (head != nullptr && *head != "auto" && *head != mamba.head_dim)
    return fields.Refuse(
        "mamba_d_head", absl::StrCat("mamba_expand * hidden_size / mamba_n_heads (", mamba.head_dim,
                                     "), or 'auto'"));
  REPRISE_ASSIGN_OR_RETURN(mamba.conv_bias, fields.BooleanOr("mamba_conv_bias", true));
  REPRISE_ASSIGN_OR_RETURN(mamba.proj_bias, fields.BooleanOr("mamba_proj_bias", false));
  REPRISE_RETURN_IF_ERROR(ReadTimeStepLimit(fields, mamba));
  return mamba;
}

absl::Status ReadOptionalRope(const JsonFields& fields, ModelSpec& spec) {
  const Json* const type = fields.Find("position_embedding_type");
  if (type != nullptr && *type != "nope" && *type != "rope")
    return fields.Refuse("position_embedding_type", "null, 'nope' and 'rope'");
  spec.has_rope = type != nullptr && *type == "rope";
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadMamba(const JsonFields& fields, const Architecture& architecture,
                       ModelSpec& spec) {
  if (architecture.optional_rope) REPRISE_RETURN_IF_ERROR(ReadOptionalRope(fields, spec));
  if (architecture.state == StateRule::kNone) return absl::OkStatus();
  const bool elsewhere = architecture.state == StateRule::kMambaElsewhere;
  REPRISE_ASSIGN_OR_RETURN(std::vector<bool> layers,
                           elsewhere ? UnlistedLayers(fields, spec) : ListedLayers(fields, spec));
  const auto num_mamba = std::count(layers.begin(), layers.end(), true);
  // Where all have attention, the sizes mean nothing.
  if (num_mamba == 0) return absl::OkStatus();
  if (num_mamba == spec.num_layers)
    return elsewhere
               ? fields.Refuse("attn_layer_indices", "a list of one layer at least")
               : fields.Refuse("layer_types", "a list with 'attention' in one layer at least");
  REPRISE_ASSIGN_OR_RETURN(spec.mamba, ReadSizes(fields, spec));
  spec.mamba_layers = std::move(layers);
  return absl::OkStatus();
}

}  // namespace reprise::models
