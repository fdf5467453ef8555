// SPDX-License-Identifier: Apache-2.0
#include "models/weights/text_part.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace reprise::models {

// What names of each part begin with.
struct TensorNaming {
  std::string_view text, head;
  std::string_view vision[2];
};

namespace {

constexpr std::string_view kText = "model.", kHead = "lm_head.";  // as layers declare them
constexpr char kEmbedding[] = "embed_tokens.weight";              // every text part has it
constexpr TensorNaming kNamings[] = {
    {.text = "language_model.model.",
     .head = "language_model.lm_head.",
     .vision = {"vision_tower.", "multi_modal_projector."}},
    {.text = "model.language_model.",
     .head = "lm_head.",
     .vision = {"model.vision_tower.", "model.multi_modal_projector."}},
};

bool IsOfVision(const TensorNaming& naming, std::string_view name) {
  return std::any_of(std::begin(naming.vision), std::end(naming.vision),
                     [name](std::string_view start) { return name.starts_with(start); });
}

// The naming that the checkpoint's text part has; null: neither.
const TensorNaming* NamingOf(const std::vector<std::string>& names) {
  for (const TensorNaming& naming : kNamings)
    for (const std::string& name : names)
      if (name.starts_with(naming.text)) return &naming;
  return nullptr;
}

}  // namespace

absl::StatusOr<TextPart> TextPart::Of(const Checkpoint& checkpoint) {
  const std::vector<std::string> names = checkpoint.Names();
  const TensorNaming* const naming = NamingOf(names);
  if (naming == nullptr)
    return absl::NotFoundError(
        absl::StrCat("tensor '", std::string(kNamings[0].text), kEmbedding, "', or '",
                     std::string(kNamings[1].text), kEmbedding,
                     "': missing, wanted as the text part of a model with a vision part"));
  TextPart part(*naming);
  absl::flat_hash_map<std::string, const TensorView*> text;
  const auto add = [&](std::string_view plain, std::string_view start, const std::string& name) {
    text.emplace(std::string(plain).append(name, start.size()), checkpoint.Find(name));
  };
  for (const std::string& name : names) {
    if (name.starts_with(naming->text)) {
      add(kText, naming->text, name);
    } else if (name.starts_with(naming->head)) {
      add(kHead, naming->head, name);
    } else if (IsOfVision(*naming, name)) {
      ++part.num_vision_tensors_;
      part.vision_bytes_ += checkpoint.Find(name)->data.size();
    } else {
      part.strangers_.push_back(name);
    }
  }
  part.tensors_ = Checkpoint::Of(std::move(text));
  return part;
}

absl::Status TextPart::InNamesOfFiles(const absl::Status& error) const {
  if (error.ok()) return error;
  // Messages quote the names of tensors.
  const auto quoted = [](std::string_view start) { return absl::StrCat("'", std::string(start)); };
  return absl::Status(
      error.code(), absl::StrReplaceAll(error.message(), {{quoted(kText), quoted(naming_->text)},
                                                          {quoted(kHead), quoted(naming_->head)}}));
}

}  // namespace reprise::models
