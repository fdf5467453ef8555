// SPDX-License-Identifier: Apache-2.0
#include "models/config/hf_left_out.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "models/config/block_linears.h"
#include "models/config/name_pattern.h"
#include "runtime/status_macros.h"

namespace reprise::models {
namespace {

constexpr std::string_view kExpression = "re:";

// Whether an entry is of what no checkpoint of ours has quantised, named by itself or by a regular
// expression for all of its kind. "gate" is a router then, and no part of "gate_proj".
bool IsNeverQuantised(const std::string& entry, bool experts) {
  if (entry == "lm_head" || entry == "re:.*lm_head") return true;
  if (!experts) return false;
  const std::string name = absl::StrReplaceAll(entry, {{"\\.", "."}, {"re:", ""}, {"$", ""}});
  for (const char* router : {"gate", "mlp.gate", "block_sparse_moe.gate"})
    if (name == router || absl::EndsWith(name, absl::StrCat(".", router)) ||
        absl::EndsWith(name, absl::StrCat(".*", router)))
      return true;
  return absl::EndsWith(name, "_layernorm") || absl::EndsWith(name, "_norm") ||
         name == "model.norm";
}

// Whether `path` has `part` in it, from dot to dot. A dot at an end of `part` is one of these.
bool HasParts(std::string_view path, std::string_view part) {
  while (part.starts_with('.')) part.remove_prefix(1);
  while (part.ends_with('.')) part.remove_suffix(1);
  if (part.empty()) return false;
  for (size_t at = path.find(part); at != std::string_view::npos; at = path.find(part, at + 1)) {
    const size_t end = at + part.size();
    if ((at == 0 || path[at - 1] == '.') && (end == path.size() || path[end] == '.')) return true;
  }
  return false;
}

class Entry {
 public:
  // Errors: InvalidArgument with what is wrong with a regular expression.
  static absl::StatusOr<Entry> Of(const std::string& text, LeftOutRule rule) {
    Entry entry(text, rule);
    if (std::string_view(text).starts_with(kExpression)) {
      REPRISE_ASSIGN_OR_RETURN(
          entry.pattern_,
          NamePattern::Expression(std::string_view(text).substr(kExpression.size())));
      entry.is_expression_ = true;
    } else if (rule == LeftOutRule::kWildcards) {
      entry.pattern_ = NamePattern::Wildcards(text);
    }
    return entry;
  }

  bool Names(const std::string& layer) const {
    if (pattern_.has_value() && pattern_->Matches(layer)) return true;
    if (is_expression_) return false;
    switch (rule_) {
      case LeftOutRule::kName:
        return layer == text_;
      case LeftOutRule::kModule:
      case LeftOutRule::kWildcards:
        return HasParts(layer, text_);
      case LeftOutRule::kPart:
        return !text_.empty() && absl::StrContains(layer, text_);
    }
    return false;
  }

 private:
  Entry(std::string text, LeftOutRule rule) : text_(std::move(text)), rule_(rule) {}

  std::string text_;
  LeftOutRule rule_;
  std::optional<NamePattern> pattern_;
  bool is_expression_ = false;
};

// The entries of all lists, and the field that they stand in.
class Entries {
 public:
  static absl::StatusOr<Entries> Read(const JsonFields& quantization,
                                      std::span<const LeftOutList> lists, const ModelSpec& spec) {
    Entries entries;
    entries.beside_vision_ = spec.beside_vision;
    const bool experts = spec.num_experts != 0;
    for (const LeftOutList& list : lists) {
      const Json* const json = quantization.Find(list.field);
      if (json == nullptr) continue;
      const auto refuse = [&](const std::string& why) {
        return quantization.Refuse(
            list.field,
            absl::StrCat("a list of names of layers and, as \"re:<expression>\", of regular "
                         "expressions",
                         why));
      };
      if (!json->is_array()) return refuse("");
      for (const Json& value : *json) {
        if (!value.is_string()) return refuse("");
        const auto& text = value.get_ref<const std::string&>();
        if (IsNeverQuantised(text, experts)) continue;
        auto entry = Entry::Of(text, list.rule);
        if (!entry.ok())
          return refuse(absl::StrCat("; in ", ShowJson(value),
                                     " there is what is none: ", entry.status().message()));
        entries.all_.push_back({*std::move(entry), list.field});
      }
    }
    return entries;
  }

  bool empty() const { return all_.empty(); }
  // The field that leaves the layer out, or nullptr. Beside a vision part it may have the names
  // that the text part has in the model as a whole.
  const char* FieldOf(const std::string& layer) const {
    const char* field = FieldOfName(layer);
    if (field == nullptr && beside_vision_) field = FieldOfName("language_model." + layer);
    if (field == nullptr && beside_vision_) field = FieldOfName("model.language_" + layer);
    return field;
  }

 private:
  const char* FieldOfName(const std::string& layer) const {
    const auto at = std::find_if(all_.begin(), all_.end(),
                                 [&](const auto& entry) { return entry.first.Names(layer); });
    return at == all_.end() ? nullptr : at->second;
  }

  std::vector<std::pair<Entry, const char*>> all_;
  bool beside_vision_ = false;
};

absl::Status CheckExperts(const ModelSpec& spec, int64_t layer, const Entries& entries,
                          const std::string& prefix) {
  for (const std::string& name : ExpertNamesOfBlock(spec, layer))
    if (const char* const field = entries.FieldOf(name); field != nullptr)
      return absl::InvalidArgumentError(
          absl::StrCat(prefix, field, ": got '", name,
                       "' among the layers left out, allowed none of experts, which are all stored "
                       "in one format"));
  return absl::OkStatus();
}

// Whether all layers of it are left out; an error where some are.
absl::StatusOr<bool> IsLeftOut(const NamedLinear& linear, const Entries& entries,
                               const std::string& prefix) {
  const std::string* out = nullptr;
  const std::string* kept = nullptr;
  const char* field = nullptr;
  for (const std::string& name : linear.names) {
    const char* const by = entries.FieldOf(name);
    (by != nullptr ? out : kept) = &name;
    if (by != nullptr) field = by;
  }
  if (out != nullptr && kept != nullptr)
    return absl::InvalidArgumentError(
        absl::StrCat(prefix, field, ": got '", *out, "' among the layers left out and '", *kept,
                     "' not, allowed both or none: they are run as one"));
  return out != nullptr;
}

}  // namespace

absl::Status ReadLeftOut(const JsonFields& quantization, std::span<const LeftOutList> lists,
                         ModelSpec& spec) {
  REPRISE_ASSIGN_OR_RETURN(const Entries entries, Entries::Read(quantization, lists, spec));
  if (entries.empty()) return absl::OkStatus();
  std::vector<uint8_t> left_out(static_cast<size_t>(spec.num_layers), 0);
  bool any = false, all = true;
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    REPRISE_RETURN_IF_ERROR(CheckExperts(spec, layer, entries, quantization.prefix()));
    all = all && !spec.HasExperts(layer);
    for (const NamedLinear& linear : LinearsOfBlock(spec, layer)) {
      REPRISE_ASSIGN_OR_RETURN(const bool out, IsLeftOut(linear, entries, quantization.prefix()));
      any = any || out;
      all = all && out;
      if (out) left_out[static_cast<size_t>(layer)] |= WeightQuantization::BitOf(linear.linear);
    }
  }
  if (all) {
    spec.weight_quantization.reset();
  } else if (any) {
    spec.weight_quantization->left_out = std::move(left_out);
  }
  return absl::OkStatus();
}

}  // namespace reprise::models
