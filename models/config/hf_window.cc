// SPDX-License-Identifier: Apache-2.0
// Sliding windows of both dialects; see hf_window.h. transformers 4 says from which layer on they
// slide (max_window_layers), transformers 5 names the type of every layer (layer_types); where both
// are there, the list decides.
#include "models/config/hf_window.h"

#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

constexpr int64_t kMaxSize = INT32_MAX;
constexpr int64_t kDefaultMaxWindowLayers = 28;  // of Qwen2 and Qwen3 alike

// Absent: the architecture's. Null: none, 0.
absl::StatusOr<int64_t> WindowField(const Json& config, const JsonFields& fields,
                                    const Architecture& architecture) {
  const bool named = config.contains("sliding_window");
  return fields.IntegerOr("sliding_window", named ? 0 : architecture.default_sliding_window, 1,
                          kMaxSize);
}

// How many of the listed layers slide.
absl::StatusOr<int64_t> CountSlidingTypes(const JsonFields& fields, const ModelSpec& spec) {
  const Json& types = *fields.Find("layer_types");
  if (!types.is_array() || types.size() != static_cast<size_t>(spec.num_layers)) {
    return fields.Refuse(
        "layer_types", absl::StrCat("a list of one type for each of ", spec.num_layers, " layers"));
  }
  int64_t num_sliding = 0;
  for (const Json& type : types) {
    if (type != "full_attention" && type != "sliding_attention") {
      return fields.Refuse("layer_types", "'full_attention' and 'sliding_attention'");
    }
    num_sliding += type == "sliding_attention" ? 1 : 0;
  }
  return num_sliding;
}

absl::StatusOr<int64_t> CountSlidingLayers(const JsonFields& fields, const ModelSpec& spec) {
  if (fields.Find("layer_types") != nullptr) return CountSlidingTypes(fields, spec);
  REPRISE_ASSIGN_OR_RETURN(
      const int64_t first,
      fields.IntegerOr("max_window_layers", kDefaultMaxWindowLayers, 0, kMaxSize));
  return first < spec.num_layers ? spec.num_layers - first : 0;
}

// Qwen2 and Qwen3: sliding_window counts only where use_sliding_window says so.
absl::StatusOr<int64_t> SwitchedWindow(const Json& config, const JsonFields& fields,
                                       const Architecture& architecture, const ModelSpec& spec) {
  REPRISE_ASSIGN_OR_RETURN(const bool used, fields.BooleanOr("use_sliding_window", false));
  int64_t window = 0;
  if (used) {
    REPRISE_ASSIGN_OR_RETURN(window, WindowField(config, fields, architecture));
  }
  const bool listed = fields.Find("layer_types") != nullptr;
  if (window == 0) {
    if (!listed) return 0;
    REPRISE_ASSIGN_OR_RETURN(const int64_t num_sliding, CountSlidingTypes(fields, spec));
    if (num_sliding == 0) return 0;
    return fields.Refuse("layer_types", "'full_attention' alone, because no window is in use");
  }
  REPRISE_ASSIGN_OR_RETURN(const int64_t num_sliding, CountSlidingLayers(fields, spec));
  if (num_sliding == 0 || window >= spec.max_position_embeddings) return 0;
  if (num_sliding == spec.num_layers) return window;
  return absl::UnimplementedError(absl::StrCat(
      "config.json: ", listed ? "layer_types" : "max_window_layers", ": got a sliding window in ",
      num_sliding, " of ", spec.num_layers, " layers, allowed all of them or none"));
}

}  // namespace

absl::StatusOr<int64_t> ReadSlidingWindow(const Json& config, const Architecture& architecture,
                                          const ModelSpec& spec) {
  if (architecture.window == WindowRule::kNever) return 0;
  const JsonFields fields(config, "config.json: ");
  if (architecture.window == WindowRule::kSwitched)
    return SwitchedWindow(config, fields, architecture, spec);
  REPRISE_ASSIGN_OR_RETURN(const int64_t window, WindowField(config, fields, architecture));
  return window < spec.max_position_embeddings ? window : 0;
}

}  // namespace reprise::models
