// SPDX-License-Identifier: Apache-2.0
#include "engine/attention_tree_text.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "models/config/json_input.h"
#include "runtime/status_macros.h"

namespace reprise::engine {
namespace {

using kernels::AttentionFeature;
using kernels::BatchChoice;
using kernels::ChoiceTree;
using kernels::RowChoice;
using kernels::TreeBranch;
using models::Json;
using models::JsonFields;
using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kSchema = "reprise-attention-tree/1";
constexpr int64_t kMaxWord = std::numeric_limits<uint32_t>::max();
constexpr size_t kMaxNameBytes = 64;
constexpr runtime::DType kDTypes[] = {runtime::DType::kBf16, runtime::DType::kF16,
                                      runtime::DType::kF32, runtime::DType::kE4m3,
                                      runtime::DType::kE5m2};

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

absl::Status RefuseUnknown(const Json& object, const std::string& path,
                           std::initializer_list<const char*> allowed) {
  for (const auto& [key, value] : object.items()) {
    const bool known = std::any_of(allowed.begin(), allowed.end(),
                                   [&key = key](const char* name) { return key == name; });
    if (!known)
      return absl::InvalidArgumentError(absl::StrCat("attention tree: ", path, ": got key ",
                                                     models::ShowJson(key), ", allowed ",
                                                     absl::StrJoin(allowed, ", ")));
  }
  return absl::OkStatus();
}

// ---- one number of a leaf, for both directions ----

template <typename Choice>
struct ChoiceField {
  const char* name;
  uint32_t& (*word)(Choice&);
};
constexpr ChoiceField<RowChoice> kRowFields[] = {
    {"min_split_tokens", [](RowChoice& c) -> uint32_t& { return c.split.min_split_tokens; }},
    {"max_splits", [](RowChoice& c) -> uint32_t& { return c.split.max_splits; }},
    {"split_multiple", [](RowChoice& c) -> uint32_t& { return c.split.split_multiple; }},
    {"prompt_q_tokens", [](RowChoice& c) -> uint32_t& { return c.prompt_q_tokens; }},
    {"prompt_splits", [](RowChoice& c) -> uint32_t& { return c.prompt_splits; }},
};
constexpr ChoiceField<BatchChoice> kBatchFields[] = {
    {"shares", [](BatchChoice& c) -> uint32_t& { return c.shares; }},
    {"leaf_overhead", [](BatchChoice& c) -> uint32_t& { return c.leaf_overhead; }},
};
std::span<const ChoiceField<RowChoice>> FieldsOf(const RowChoice&) { return kRowFields; }
std::span<const ChoiceField<BatchChoice>> FieldsOf(const BatchChoice&) { return kBatchFields; }

// ---- from text ----

template <typename Choice>
class TreeReader {
 public:
  TreeReader(ChoiceTree<Choice>* tree, std::vector<std::string>* names)
      : tree_(*tree), names_(*names) {
    tree_.num_leaves = 0;
    names_.clear();
  }

  absl::StatusOr<TreeBranch> Read(const Json& value, const std::string& path) {
    if (!value.is_object())
      return absl::InvalidArgumentError(absl::StrCat("attention tree: ", path, ": got ",
                                                     models::ShowJson(value),
                                                     ", allowed a node or a leaf"));
    return value.contains("ask") ? ReadNode(value, path) : ReadLeaf(value, path);
  }

 private:
  absl::StatusOr<TreeBranch> ReadNode(const Json& value, const std::string& path) {
    REPRISE_RETURN_IF_ERROR(RefuseUnknown(value, path, {"ask", "below", "then", "else"}));
    const JsonFields fields(value, absl::StrCat("attention tree: ", path, "."));
    if (tree_.num_nodes == kernels::kMaxTreeNodes)
      return absl::InvalidArgumentError(absl::StrCat(
          "attention tree: ", path, ": got one more node, allowed ", kernels::kMaxTreeNodes));
    const uint32_t index = tree_.num_nodes++;
    kernels::TreeNode node;
    REPRISE_ASSIGN_OR_RETURN(node.feature, ReadFeature(fields));
    REPRISE_ASSIGN_OR_RETURN(const int64_t threshold, fields.Integer("below", 1, kMaxWord));
    node.threshold = static_cast<uint32_t>(threshold);
    for (const auto& [key, branch] :
         {std::pair{"then", &node.below}, std::pair{"else", &node.at_least}}) {
      const Json* const next = fields.Find(key);
      if (next == nullptr) return fields.Refuse(key, "a node or a leaf");
      REPRISE_ASSIGN_OR_RETURN(*branch, Read(*next, absl::StrCat(path, ".", key)));
    }
    tree_.nodes[index] = node;
    return TreeBranch::ToNode(index);
  }

  static absl::StatusOr<AttentionFeature> ReadFeature(const JsonFields& fields) {
    REPRISE_ASSIGN_OR_RETURN(const std::string name, fields.StringOr("ask", ""));
    const auto names = kernels::AttentionFeatureNames();
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end())
      return fields.Refuse("ask", absl::StrJoin(names, ", ", [](std::string* out, auto text) {
                             out->append(text);
                           }));
    return static_cast<AttentionFeature>(found - names.begin());
  }

  absl::StatusOr<TreeBranch> ReadLeaf(const Json& value, const std::string& path) {
    const JsonFields fields(value, absl::StrCat("attention tree: ", path, "."));
    REPRISE_ASSIGN_OR_RETURN(const std::string name, fields.StringOr("leaf", ""));
    const bool taken = std::find(names_.begin(), names_.end(), name) != names_.end();
    if (name.empty() || name.size() > kMaxNameBytes || taken)
      return fields.Refuse("leaf",
                           absl::StrCat("a name of its own, of 1 to ", kMaxNameBytes, " bytes"));
    if (tree_.num_leaves == kernels::kMaxTreeLeaves)
      return absl::InvalidArgumentError(absl::StrCat(
          "attention tree: ", path, ": got one more leaf, allowed ", kernels::kMaxTreeLeaves));
    Choice choice;
    size_t known = 1;
    for (const auto& field : FieldsOf(choice)) {
      uint32_t& word = field.word(choice);
      REPRISE_ASSIGN_OR_RETURN(const int64_t number,
                               fields.IntegerOr(field.name, word, 0, kMaxWord));
      word = static_cast<uint32_t>(number);
      known += value.contains(field.name) ? 1 : 0;
    }
    if (known != value.size()) return RefuseLeafKeys(value, path);
    const uint32_t index = tree_.num_leaves++;
    tree_.leaves[index] = choice;
    names_.push_back(name);
    return TreeBranch::ToLeaf(index);
  }

  static absl::Status RefuseLeafKeys(const Json& value, const std::string& path) {
    std::vector<absl::string_view> allowed = {"leaf"};
    for (const auto& field : FieldsOf(Choice())) allowed.push_back(field.name);
    for (const auto& [key, unused] : value.items()) {
      if (std::find(allowed.begin(), allowed.end(), key) != allowed.end()) continue;
      return absl::InvalidArgumentError(absl::StrCat("attention tree: ", path, ": got key ",
                                                     models::ShowJson(key), ", allowed ",
                                                     absl::StrJoin(allowed, ", ")));
    }
    return absl::InternalError("a leaf without an unknown key");
  }

  ChoiceTree<Choice>& tree_;
  std::vector<std::string>& names_;
};

template <typename Choice>
absl::Status ReadTree(const Json& text, const char* key, ChoiceTree<Choice>* tree,
                      std::vector<std::string>* names) {
  const JsonFields fields(text, "attention tree: ");
  const Json* const value = fields.Find(key);
  if (value == nullptr) return fields.Refuse(key, "a node or a leaf");
  REPRISE_ASSIGN_OR_RETURN(tree->root, TreeReader<Choice>(tree, names).Read(*value, key));
  return absl::OkStatus();
}

struct NumberMadeFor {
  const char* name;
  std::optional<int64_t> NamedAttentionTree::*number;
};
constexpr NumberMadeFor kNumbersMadeFor[] = {{"heads", &NamedAttentionTree::num_heads},
                                             {"kv_heads", &NamedAttentionTree::num_kv_heads},
                                             {"head_dim", &NamedAttentionTree::head_dim},
                                             {"block_size", &NamedAttentionTree::block_size},
                                             {"window", &NamedAttentionTree::window}};

absl::Status ReadMadeFor(const Json& text, NamedAttentionTree* named) {
  const Json* const value = JsonFields(text, "attention tree: ").Find("made_for");
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_object())
    return JsonFields(text, "attention tree: ").Refuse("made_for", "an object");
  REPRISE_RETURN_IF_ERROR(
      RefuseUnknown(*value, "made_for",
                    {"device", "heads", "kv_heads", "head_dim", "block_size", "window", "dtype"}));
  const JsonFields fields(*value, "attention tree: made_for.");
  if (fields.Find("device") != nullptr) {
    REPRISE_ASSIGN_OR_RETURN(named->device, fields.StringOr("device", ""));
  }
  for (const NumberMadeFor& field : kNumbersMadeFor) {
    if (fields.Find(field.name) == nullptr) continue;
    REPRISE_ASSIGN_OR_RETURN(named->*field.number, fields.Integer(field.name, 0, kMaxWord));
  }
  if (fields.Find("dtype") == nullptr) return absl::OkStatus();
  REPRISE_ASSIGN_OR_RETURN(const std::string dtype, fields.StringOr("dtype", ""));
  for (const runtime::DType candidate : kDTypes)
    if (runtime::NameOf(candidate) == dtype) named->dtype = candidate;
  return named->dtype.has_value() ? absl::OkStatus()
                                  : fields.Refuse("dtype", "bf16, f16, f32, fp8_e4m3, fp8_e5m2");
}

// ---- to text ----

template <typename Choice>
OrderedJson ToJson(const ChoiceTree<Choice>& tree, const std::vector<std::string>& names,
                   TreeBranch branch) {
  OrderedJson out = OrderedJson::object();
  if (branch.is_leaf()) {
    Choice choice = tree.leaves[branch.index()];
    out["leaf"] = names[branch.index()];
    for (const auto& field : FieldsOf(choice)) out[field.name] = field.word(choice);
    return out;
  }
  const kernels::TreeNode& node = tree.nodes[branch.index()];
  out["ask"] = kernels::AttentionFeatureNames()[static_cast<uint32_t>(node.feature)];
  out["below"] = node.threshold;
  out["then"] = ToJson(tree, names, node.below);
  out["else"] = ToJson(tree, names, node.at_least);
  return out;
}

// ---- what it was made for ----

absl::Status RefuseSite(const char* what, const std::string& made_for, const std::string& here) {
  return absl::FailedPreconditionError(absl::StrCat("attention tree: made for ", what, " ",
                                                    made_for, ", got ", here,
                                                    "; allowed: a tree that was made for this"));
}

}  // namespace

absl::StatusOr<NamedAttentionTree> ParseAttentionTree(std::string_view text) {
  if (text.size() > kMaxAttentionTreeBytes)
    return absl::InvalidArgumentError(absl::StrCat("attention tree: got ", text.size(),
                                                   " bytes, allowed ", kMaxAttentionTreeBytes));
  REPRISE_ASSIGN_OR_RETURN(const Json json, models::ParseJsonObject(text, "attention tree"));
  REPRISE_RETURN_IF_ERROR(RefuseUnknown(
      json, "the text", {"schema", "batch_invariant", "made_for", "rows", "batch", "notes"}));
  const JsonFields fields(json, "attention tree: ");
  REPRISE_ASSIGN_OR_RETURN(const std::string schema, fields.StringOr("schema", ""));
  if (schema != kSchema) return fields.Refuse("schema", absl::StrCat("\"", View(kSchema), "\""));
  NamedAttentionTree named;
  REPRISE_ASSIGN_OR_RETURN(named.batch_invariant, fields.BooleanOr("batch_invariant", true));
  REPRISE_RETURN_IF_ERROR(ReadMadeFor(json, &named));
  REPRISE_RETURN_IF_ERROR(ReadTree(json, "rows", &named.tree.rows, &named.row_leaves));
  REPRISE_RETURN_IF_ERROR(ReadTree(json, "batch", &named.tree.batch, &named.batch_leaves));
  named.tree.asks_for_batch = kernels::AsksForBatch(named.tree) ? 1 : 0;
  return named;
}

std::string AttentionTreeText(const NamedAttentionTree& named, std::string_view notes) {
  OrderedJson out = OrderedJson::object();
  out["schema"] = kSchema;
  out["batch_invariant"] = named.batch_invariant;
  OrderedJson made_for = OrderedJson::object();
  if (named.device.has_value()) made_for["device"] = *named.device;
  for (const NumberMadeFor& field : kNumbersMadeFor)
    if ((named.*field.number).has_value()) made_for[field.name] = *(named.*field.number);
  if (named.dtype.has_value()) made_for["dtype"] = runtime::NameOf(*named.dtype);
  if (!made_for.empty()) out["made_for"] = std::move(made_for);
  out["rows"] = ToJson(named.tree.rows, named.row_leaves, named.tree.rows.root);
  out["batch"] = ToJson(named.tree.batch, named.batch_leaves, named.tree.batch.root);
  if (!notes.empty()) out["notes"] = OrderedJson::parse(notes.begin(), notes.end(), nullptr, false);
  return out.dump(2) + "\n";
}

absl::Status CheckTreeFits(const NamedAttentionTree& named, const AttentionSite& site,
                           const kernels::AttentionTreeLimits& limits) {
  if (named.device.has_value() && *named.device != site.device)
    return RefuseSite("device", absl::StrCat("'", *named.device, "'"),
                      absl::StrCat("'", site.device, "'"));
  const int64_t here[] = {site.num_heads, site.kv.num_kv_heads, site.kv.head_dim,
                          site.kv.block_size};
  for (size_t i = 0; i < std::size(here); ++i) {
    const std::optional<int64_t>& made_for = named.*kNumbersMadeFor[i].number;
    if (made_for.has_value() && *made_for != here[i])
      return RefuseSite(kNumbersMadeFor[i].name, absl::StrCat(*made_for), absl::StrCat(here[i]));
  }
  if (named.window.has_value() &&
      std::find(site.windows.begin(), site.windows.end(), *named.window) == site.windows.end())
    return RefuseSite("window", absl::StrCat(*named.window), absl::StrJoin(site.windows, " and "));
  if (named.dtype.has_value() && *named.dtype != site.kv.dtype)
    return RefuseSite("dtype", std::string(runtime::NameOf(*named.dtype)),
                      std::string(runtime::NameOf(site.kv.dtype)));
  if (limits.batch_invariant && !named.batch_invariant)
    return absl::FailedPreconditionError(
        "attention tree: it says that it is not batch invariant; allowed: one that is, or an "
        "engine that is not");
  // What it says of itself binds it, too.
  kernels::AttentionTreeLimits own = limits;
  own.batch_invariant = named.batch_invariant;
  return kernels::CheckAttentionTree(named.tree, own,
                                     {.rows = named.row_leaves, .batch = named.batch_leaves});
}

}  // namespace reprise::engine
