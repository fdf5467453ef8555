// SPDX-License-Identifier: Apache-2.0
// A published config.json, changed in a few fields, as tests of parsers have it.
#ifndef REPRISE_TESTS_MODELS_HF_CONFIG_EDITS_H_
#define REPRISE_TESTS_MODELS_HF_CONFIG_EDITS_H_

#include <initializer_list>
#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "models/config/hf_config.h"

namespace reprise::models {

// `base` with `changes` in it.
inline absl::StatusOr<ModelSpec> Parse(const char* base,
                                       const nlohmann::json& changes = nlohmann::json::object()) {
  nlohmann::json config = nlohmann::json::parse(base);
  config.update(changes);
  return ParseHfConfig(config.dump());
}

inline absl::StatusOr<ModelSpec> ParseWithout(const char* base,
                                              std::initializer_list<const char*> names) {
  nlohmann::json config = nlohmann::json::parse(base);
  for (const char* name : names) config.erase(name);
  return ParseHfConfig(config.dump());
}

inline absl::Status StatusOf(const char* base, const nlohmann::json& changes) {
  return Parse(base, changes).status();
}

}  // namespace reprise::models

#endif  // REPRISE_TESTS_MODELS_HF_CONFIG_EDITS_H_
