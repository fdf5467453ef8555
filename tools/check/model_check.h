// SPDX-License-Identifier: Apache-2.0
// What `reprise check` finds out of a model directory, and how it says so: a page of text and an
// object of JSON (docs/check.schema.json).
#ifndef REPRISE_TOOLS_CHECK_MODEL_CHECK_H_
#define REPRISE_TOOLS_CHECK_MODEL_CHECK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/engine_options.h"
#include "engine/engine_preview.h"
#include "models/config/config_report.h"
#include "nlohmann/json.hpp"
#include "runtime/device.h"
#include "tools/check/reference_logits.h"

namespace reprise::tools {

struct ComparedLogits {
  std::string file;
  uint64_t prompts = 0;
  LogitsDifference difference = {};
  double tolerance = 0.0;  // of LogitsDifference::relative
  // NaN is never close.
  bool passed() const { return difference.relative <= tolerance; }
};

struct ModelCheck {
  std::string directory;
  std::optional<models::ConfigReport> config = {};    // where the config could be read at all
  int64_t num_parameters = 0;                         // 0: the config has errors
  uint64_t num_tensors = 0, checkpoint_bytes = 0;     // 0: no weights file could be read
  uint64_t vision_tensors = 0, vision_bytes = 0;      // of these, of a part that is not run
  std::optional<engine::EnginePreview> preview = {};  // where there is such an engine
  std::optional<ComparedLogits> reference = {};       // where one was given, and the model runs
  std::vector<absl::Status> errors = {};              // everything for which it does not run

  bool runs() const { return errors.empty(); }
};

// Reads config.json and the headers of the weights, and looks at what an engine on `device` would
// launch; loads nothing.
ModelCheck CheckModel(const std::string& directory, runtime::Device& device,
                      const engine::DecodeEngineOptions& options);

// `width` columns wide at most.
std::string ModelCheckText(const ModelCheck& check, const runtime::DeviceProperties& device,
                           size_t width);
nlohmann::json ModelCheckToJson(const ModelCheck& check, const runtime::DeviceProperties& device);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_CHECK_MODEL_CHECK_H_
