// SPDX-License-Identifier: Apache-2.0
// Sliding windows of both dialects; see hf_window.h. transformers 4 says from which layer on layers
// slide (max_window_layers), transformers 5 names the type of every layer (layer_types); where both
// are there, the list decides.
#include "models/config/hf_window.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

constexpr int64_t kMaxSize = INT32_MAX;
constexpr int64_t kDefaultMaxWindowLayers = 28;  // of Qwen2 and Qwen3 alike

// Absent: the architecture's. Null: none, 0.
absl::StatusOr<int64_t> WindowField(const JsonFields& fields, const Architecture& architecture) {
  const bool named = fields.Names("sliding_window");
  return fields.IntegerOr("sliding_window", named ? 0 : architecture.default_sliding_window, 1,
                          kMaxSize);
}

// Which of the listed layers slide.
absl::StatusOr<std::vector<bool>> ListedLayers(const JsonFields& fields, const ModelSpec& spec) {
  const Json& types = *fields.Find("layer_types");
  if (!types.is_array() || types.size() != static_cast<size_t>(spec.num_layers)) {
    return fields.Refuse(
        "layer_types", absl::StrCat("a list of one type for each of ", spec.num_layers, " layers"));
  }
  std::vector<bool> slides;
  for (const Json& type : types) {
    if (type != "full_attention" && type != "sliding_attention") {
      return fields.Refuse("layer_types", "'full_attention' and 'sliding_attention'");
    }
    slides.push_back(type == "sliding_attention");
  }
  return slides;
}

// All but every n-th.
absl::StatusOr<std::vector<bool>> PatternLayers(const JsonFields& fields,
                                                const Architecture& architecture,
                                                const ModelSpec& spec) {
  REPRISE_ASSIGN_OR_RETURN(
      const int64_t pattern,
      fields.IntegerOr("sliding_window_pattern", architecture.default_window_pattern, 1, kMaxSize));
  std::vector<bool> slides;
  for (int64_t layer = 0; layer < spec.num_layers; ++layer)
    slides.push_back((layer + 1) % pattern != 0);
  return slides;
}

// Which layers slide where there is a window.
absl::StatusOr<std::vector<bool>> SlidingLayers(const JsonFields& fields,
                                                const Architecture& architecture,
                                                const ModelSpec& spec) {
  if (fields.Find("layer_types") != nullptr) return ListedLayers(fields, spec);
  if (architecture.window == WindowRule::kPattern) return PatternLayers(fields, architecture, spec);
  int64_t first = 0;
  if (architecture.window == WindowRule::kSwitched) {
    REPRISE_ASSIGN_OR_RETURN(
        first, fields.IntegerOr("max_window_layers", kDefaultMaxWindowLayers, 0, kMaxSize));
  }
  std::vector<bool> slides(static_cast<size_t>(spec.num_layers), true);
  std::fill_n(slides.begin(), std::min(first, spec.num_layers), false);
  return slides;
}

bool Any(const std::vector<bool>& slides) {
  return std::find(slides.begin(), slides.end(), true) != slides.end();
}

}  // namespace

absl::Status ReadSlidingWindow(const JsonFields& fields, const Architecture& architecture,
                               ModelSpec& spec) {
  if (architecture.window == WindowRule::kNever) return absl::OkStatus();
  bool used = true;
  if (architecture.window == WindowRule::kSwitched) {
    REPRISE_ASSIGN_OR_RETURN(used, fields.BooleanOr("use_sliding_window", false));
  }
  int64_t window = 0;
  if (used) {
    REPRISE_ASSIGN_OR_RETURN(window, WindowField(fields, architecture));
  }
  const bool listed = fields.Find("layer_types") != nullptr;
  // A rope of the layers that slide needs them named, window or not.
  if (window == 0 && !listed && !architecture.local_rope) return absl::OkStatus();
  REPRISE_ASSIGN_OR_RETURN(std::vector<bool> slides, SlidingLayers(fields, architecture, spec));
  if (window == 0 && Any(slides)) {
    return listed
               ? fields.Refuse("layer_types", "'full_attention' alone, because no window is in use")
               : fields.Refuse("sliding_window", "an integer, for the layers that slide");
  }
  if (architecture.local_rope) spec.slides = slides;
  if (!Any(slides) || window >= spec.max_position_embeddings) return absl::OkStatus();
  spec.sliding_window = window;
  // Where all slide, a list says nothing more.
  if (std::find(slides.begin(), slides.end(), false) != slides.end())
    spec.slides = std::move(slides);
  return absl::OkStatus();
}

}  // namespace reprise::models
