// SPDX-License-Identifier: Apache-2.0
// Which architecture a config.json is of, and where in it that architecture's fields stand: in the
// one object that it is; or, of a model with a vision part (VisionModel), in its object
// `text_config`. Part of hf_config.cc's implementation.
#ifndef REPRISE_MODELS_CONFIG_HF_PARTS_H_
#define REPRISE_MODELS_CONFIG_HF_PARTS_H_

#include <initializer_list>

#include "absl/status/statusor.h"
#include "models/config/architectures.h"
#include "models/config/json_input.h"

namespace reprise::models {

inline constexpr char kTextConfig[] = "text_config";

class ConfigParts {
 public:
  // `config` must outlive this. Errors: InvalidArgument where it does not say one architecture, or
  // has no text_config where it should; Unimplemented for an architecture that we lack.
  static absl::StatusOr<ConfigParts> Of(const Json& config);

  // Of the decoder.
  const Architecture& architecture() const { return *architecture_; }
  // Null where the whole config is of the decoder: then both parts are the same.
  const VisionModel* vision() const { return vision_; }
  // As in the config's `architectures`.
  const char* class_name() const;
  const Json& top() const { return *top_; }
  const Json& text() const { return *text_; }
  const JsonFields& top_fields() const { return top_fields_; }
  const JsonFields& text_fields() const { return text_fields_; }

  // What may stand at both places. Of text and images together the checkpoint's type and the ids
  // that end an answer are said at the top, as transformers reads them; whether embeddings are tied
  // is the text part's. The place that has one of `names`, that one first.
  const JsonFields& TopFirst(std::initializer_list<const char*> names) const;
  const JsonFields& TextFirst(std::initializer_list<const char*> names) const;

 private:
  ConfigParts(const Architecture& architecture, const VisionModel* vision, const Json& top,
              const Json& text);

  const Architecture* architecture_;
  const VisionModel* vision_;
  const Json* top_;
  const Json* text_;
  JsonFields top_fields_, text_fields_;
};

}  // namespace reprise::models

#endif  // REPRISE_MODELS_CONFIG_HF_PARTS_H_
