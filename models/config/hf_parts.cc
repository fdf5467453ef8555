// SPDX-License-Identifier: Apache-2.0
// The architecture of a config, and where its fields stand; see hf_parts.h.
#include "models/config/hf_parts.h"

#include <algorithm>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

constexpr char kFile[] = "config.json: ";

absl::StatusOr<std::string> ClassName(const JsonFields& fields) {
  const Json* classes = fields.Find("architectures");
  if (classes == nullptr) return std::string();
  if (!classes->is_array() || classes->size() != 1 || !classes->front().is_string()) {
    return fields.Refuse("architectures", "a list of one name");
  }
  return classes->front().get<std::string>();
}

std::string Supported() {
  const auto name = [](std::string* out, const auto& known) {
    absl::StrAppend(out, "'", known.class_name, "' with model_type '", known.model_type, "'");
  };
  return absl::StrCat(absl::StrJoin(KnownArchitectures(), " or ", name), " or ",
                      absl::StrJoin(KnownVisionModels(), " or ", name));
}

// Null where there is none of these names in the table. A config saved without a model names no
// class; its model_type then decides.
template <typename Known>
absl::StatusOr<const Known*> FindNamed(std::span<const Known> table, const JsonFields& fields,
                                       const std::string& class_name,
                                       const std::string& model_type) {
  for (const Known& known : table) {
    const bool type_fits = model_type.empty() || model_type == known.model_type;
    if (type_fits && (class_name.empty() || class_name == known.class_name)) return &known;
    if (class_name == known.class_name) {
      return fields.Refuse("model_type", absl::StrCat("'", known.model_type, "' for architecture '",
                                                      known.class_name, "'"));
    }
  }
  return nullptr;
}

// The object text_config, of the architecture that the model's text part is of.
absl::StatusOr<const Json*> TextOf(const JsonFields& fields, const VisionModel& model,
                                   const Architecture& architecture) {
  const Json* const text = fields.Find(kTextConfig);
  if (text == nullptr || !text->is_object())
    return fields.Refuse(kTextConfig, "an object: the fields of the text part");
  const JsonFields within(*text, absl::StrCat(kFile, kTextConfig, "."));
  REPRISE_ASSIGN_OR_RETURN(const std::string type,
                           within.StringOr("model_type", architecture.model_type));
  if (type == architecture.model_type) return text;
  return absl::UnimplementedError(
      within
          .Refuse("model_type", absl::StrCat("'", architecture.model_type, "' for architecture '",
                                             model.class_name, "'"))
          .message());
}

const JsonFields& FirstWith(std::initializer_list<const char*> names, const JsonFields& first,
                            const JsonFields& second) {
  const auto has = [&](const char* name) { return first.Find(name) != nullptr; };
  return std::any_of(names.begin(), names.end(), has) ? first : second;
}

}  // namespace

ConfigParts::ConfigParts(const Architecture& architecture, const VisionModel* vision,
                         const Json& top, const Json& text)
    : architecture_(&architecture),
      vision_(vision),
      top_(&top),
      text_(&text),
      top_fields_(top, kFile),
      text_fields_(text, vision == nullptr ? kFile : absl::StrCat(kFile, kTextConfig, ".")) {}

absl::StatusOr<ConfigParts> ConfigParts::Of(const Json& config) {
  const JsonFields fields(config, kFile);
  REPRISE_ASSIGN_OR_RETURN(const std::string class_name, ClassName(fields));
  REPRISE_ASSIGN_OR_RETURN(const std::string model_type, fields.StringOr("model_type", ""));
  if (class_name.empty() && model_type.empty()) {
    return fields.Refuse("architectures", Supported());
  }
  REPRISE_ASSIGN_OR_RETURN(const Architecture* const known,
                           FindNamed(KnownArchitectures(), fields, class_name, model_type));
  if (known != nullptr) return ConfigParts(*known, nullptr, config, config);
  REPRISE_ASSIGN_OR_RETURN(const VisionModel* const vision,
                           FindNamed(KnownVisionModels(), fields, class_name, model_type));
  if (vision == nullptr)
    return absl::UnimplementedError(absl::StrCat("config.json: architectures: got ",
                                                 ShowJson(class_name), " with model_type ",
                                                 ShowJson(model_type), ", allowed ", Supported()));
  const Architecture& architecture = *FindArchitecture(vision->text);
  REPRISE_ASSIGN_OR_RETURN(const Json* const text, TextOf(fields, *vision, architecture));
  return ConfigParts(architecture, vision, config, *text);
}

const char* ConfigParts::class_name() const {
  return vision_ == nullptr ? architecture_->class_name : vision_->class_name;
}

const JsonFields& ConfigParts::TopFirst(std::initializer_list<const char*> names) const {
  return FirstWith(names, top_fields_, text_fields_);
}

const JsonFields& ConfigParts::TextFirst(std::initializer_list<const char*> names) const {
  return FirstWith(names, text_fields_, top_fields_);
}

}  // namespace reprise::models
