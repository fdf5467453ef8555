// SPDX-License-Identifier: Apache-2.0
// An attention tree as people and files have it: JSON text with names, and what it was made for.
// docs/attention_tree.md has the format.
#ifndef REPRISE_ENGINE_ATTENTION_TREE_TEXT_H_
#define REPRISE_ENGINE_ATTENTION_TREE_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/attention/attention_tree.h"
#include "kernels/attention/kv_layout.h"
#include "runtime/device.h"
#include "runtime/dtype.h"

namespace reprise::engine {

// The largest text of a tree, in bytes.
inline constexpr size_t kMaxAttentionTreeBytes = 64 << 10;

// What attention looks like to its plan.
struct AttentionSite {
  std::string device;  // its name
  int64_t num_heads = 0;
  kernels::KvLayout kv = {};
  std::vector<uint32_t> windows = {0};  // of its layers, those that differ
};

struct NamedAttentionTree {
  kernels::AttentionTree tree;
  std::vector<std::string> row_leaves = {"default"};  // names, by index
  std::vector<std::string> batch_leaves = {"default"};
  bool batch_invariant = true;  // what it says of itself

  // What it was made for; what is not said fits anything.
  std::optional<std::string> device = {};
  std::optional<int64_t> num_heads = {}, num_kv_heads = {}, head_dim = {}, block_size = {},
                         window = {};
  std::optional<runtime::DType> dtype = {};  // of the KV cache
};

// Errors: InvalidArgument with the path in the text, what, got, allowed. Sizes and numbers are such
// that AttentionTree can hold them; whether kernels can do them CheckAttentionTree says.
absl::StatusOr<NamedAttentionTree> ParseAttentionTree(std::string_view text);

// Text that parses to the same tree, indented. notes: a JSON object that readers skip; "" for none.
std::string AttentionTreeText(const NamedAttentionTree& named, std::string_view notes = {});

// Whether the tree may serve there. Errors: FailedPrecondition where it was made for something
// else, or is not batch invariant and has to be; CheckAttentionTree's.
absl::Status CheckTreeFits(const NamedAttentionTree& named, const AttentionSite& site,
                           const kernels::AttentionTreeLimits& limits);

}  // namespace reprise::engine

#endif  // REPRISE_ENGINE_ATTENTION_TREE_TEXT_H_
