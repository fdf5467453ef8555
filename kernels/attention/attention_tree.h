// SPDX-License-Identifier: Apache-2.0
// What the host knows of an AttentionTree: the names of features, what a tree may hold, and how one
// comes to the device.
#ifndef REPRISE_KERNELS_ATTENTION_ATTENTION_TREE_H_
#define REPRISE_KERNELS_ATTENTION_ATTENTION_TREE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/attention/decision_tree.h"

namespace reprise::kernels {

// "visible_tokens", "query_tokens", "batch_rows", "decode_tokens", "longest_decode",
// "prompt_tokens", in the order of AttentionFeature.
std::span<const std::string_view> AttentionFeatureNames();

// What a tree has to keep to.
struct AttentionTreeLimits {
  uint32_t max_splits = SplitRule{}.max_splits;  // that there is room for
  uint32_t num_shares = 0;                       // of the grid; 0: rows are not dealt
  uint32_t max_prompt_q_tokens = 1;              // of the kernel
  bool batch_invariant = true;
};

// Names of leaves for errors, by index; where there are none, their indices stand for them.
struct AttentionTreeNames {
  std::span<const std::string> rows = {}, batch = {};
};

// Whether the plan may walk the tree: every walk ends in a leaf, and kernels can do what leaves
// say. Errors: InvalidArgument with the node or leaf, what, got, allowed; FailedPrecondition where
// rows are asked for a feature of the batch and limits.batch_invariant.
absl::Status CheckAttentionTree(const AttentionTree& tree, const AttentionTreeLimits& limits,
                                const AttentionTreeNames& names = {});

// Whether the rows' tree asks for features of rows alone.
bool IsBatchInvariant(const AttentionTree& tree);
// What AttentionTree.asks_for_batch has to be.
bool AsksForBatch(const AttentionTree& tree);

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_ATTENTION_ATTENTION_TREE_H_
