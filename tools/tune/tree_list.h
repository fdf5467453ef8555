// SPDX-License-Identifier: Apache-2.0
// TreeList: trees to measure in one batch, each once, whoever asks for it.
#ifndef REPRISE_TOOLS_TUNE_TREE_LIST_H_
#define REPRISE_TOOLS_TUNE_TREE_LIST_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels/attention/decision_tree.h"

namespace reprise::tools {

class TreeList {
 public:
  // Its index.
  size_t Add(const kernels::AttentionTree& tree) {
    const auto found = std::find(trees_.begin(), trees_.end(), tree);
    const auto index = static_cast<size_t>(found - trees_.begin());
    if (found == trees_.end()) trees_.push_back(tree);
    return index;
  }
  std::vector<size_t> AddAll(const std::vector<kernels::AttentionTree>& trees) {
    std::vector<size_t> indices;
    for (const kernels::AttentionTree& tree : trees) indices.push_back(Add(tree));
    return indices;
  }
  const std::vector<kernels::AttentionTree>& trees() const { return trees_; }

 private:
  std::vector<kernels::AttentionTree> trees_;
};

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_TUNE_TREE_LIST_H_
