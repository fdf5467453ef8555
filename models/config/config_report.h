// SPDX-License-Identifier: Apache-2.0
// ConfigReport: what becomes of every field of a config.json, and all that is wrong with it, for
// who wants to know before a model is loaded. Loading itself stops at the first error
// (hf_config.h).
#ifndef REPRISE_MODELS_CONFIG_CONFIG_REPORT_H_
#define REPRISE_MODELS_CONFIG_CONFIG_REPORT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/config/model_spec.h"

namespace reprise::models {

enum class FieldUse : uint8_t {
  kRead,     // became part of the model
  kIgnored,  // means nothing for inference
  kNeutral,  // would change the computation, and has a value that does not
  kRefused,
};
// "read", "ignored", "neutral", "refused".
std::string_view NameOf(FieldUse use);

struct FieldReport {
  std::string name;
  std::string value;  // JSON, cut to a length that fits a line
  FieldUse use = FieldUse::kRead;
  std::string why = {};  // of a refused one: what it got, and what is allowed
};

struct ConfigReport {
  std::string architecture;  // its class, as in the config's `architectures`
  ModelSpec spec = {};       // that of ReadHfConfig, where there are no errors
  // Of config.json, by name; of a model with a vision part those of text_config, behind it, too.
  std::vector<FieldReport> fields = {};
  // All that is refused: the first is what ReadHfConfig answers. What cannot be judged where
  // another field is wrong is left out.
  std::vector<absl::Status> errors = {};
};

// Reads what ReadHfConfig reads. Errors: those after which no field can be judged: no such file, no
// JSON, an architecture that we lack.
absl::StatusOr<ConfigReport> ReportHfConfig(const std::string& directory);

}  // namespace reprise::models

#endif  // REPRISE_MODELS_CONFIG_CONFIG_REPORT_H_
