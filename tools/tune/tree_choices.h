// SPDX-License-Identifier: Apache-2.0
// What attention's plan could choose: the candidates of each part of a tree, and the tree that
// fitted parts make together.
#ifndef REPRISE_TOOLS_TUNE_TREE_CHOICES_H_
#define REPRISE_TOOLS_TUNE_TREE_CHOICES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/attention_tree_text.h"
#include "kernels/attention/attention_tree.h"
#include "kernels/attention/decision_tree.h"
#include "tools/tune/cost_tree.h"

namespace reprise::tools {

// The built-in choice first; all of them keep to `limits`.
std::vector<kernels::RowChoice> SplitCandidates(const kernels::AttentionTreeLimits& limits);
// Query tokens of a prompt's work item: the kernel's most (0), a half and a quarter of it.
std::vector<uint32_t> PromptCandidates(const kernels::AttentionTreeLimits& limits);
// One, where rows are not dealt.
std::vector<kernels::BatchChoice> DealCandidates(const kernels::AttentionTreeLimits& limits);

// Fitted parts, leaves being indices into candidates.
struct FittedParts {
  CostTree splits;   // of rows of one query token
  CostTree prompts;  // of the others
  CostTree deal;
};

// The tree of these parts. Rows are asked for their query tokens first where prompts have a tree of
// more than one leaf; else the one choice for prompts stands in every leaf.
kernels::AttentionTree JoinParts(const FittedParts& parts,
                                 const kernels::AttentionTreeLimits& limits);

// "256 x 32, prompts 8" ((smallest split) x (splits at most)); "all blocks, overhead 64".
std::string NameOf(const kernels::RowChoice& choice);
std::string NameOf(const kernels::BatchChoice& choice);
// The same with names for its leaves, each once: " (2)" behind the second of a name.
engine::NamedAttentionTree NameLeaves(const kernels::AttentionTree& tree);

// What leads to each leaf, by index: "128 <= visible_tokens < 512, query_tokens >= 2"; "always".
std::vector<std::string> WaysToRowLeaves(const kernels::AttentionTree& tree);
std::vector<std::string> WaysToBatchLeaves(const kernels::AttentionTree& tree);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_TUNE_TREE_CHOICES_H_
