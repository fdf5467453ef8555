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

// How a row of several query tokens becomes work items: see RowChoice.
struct PromptChoice {
  uint32_t q_tokens = 0;
  uint32_t splits = 1;

  bool operator==(const PromptChoice&) const = default;
};
// Query tokens of a work item: the kernel's most (0), a half and a quarter of it. Behind them,
// where `cut`, those that cut the KV of rows that fit one item.
std::vector<PromptChoice> PromptCandidates(const kernels::AttentionTreeLimits& limits, bool cut);
// To as many blocks as the plan finds even (shares 0), to the whole grid, three quarters of it, a
// half and a quarter. One, where rows are not dealt.
std::vector<kernels::BatchChoice> DealCandidates(const kernels::AttentionTreeLimits& limits);

// Fitted parts, leaves being indices into candidates.
struct FittedParts {
  CostTree splits;   // of rows of one query token
  CostTree prompts;  // of the others, by PromptCandidates with cut ones
  CostTree deal;
};

// The tree of these parts. Rows are asked for their query tokens first where prompts have a tree of
// more than one leaf, or one that cuts them, by the built-in rule; else the one choice for prompts
// stands in every leaf.
kernels::AttentionTree JoinParts(const FittedParts& parts,
                                 const kernels::AttentionTreeLimits& limits);
// By candidate: it alone in one part, the others as they are.
std::vector<kernels::AttentionTree> SplitTrees(const FittedParts& parts,
                                               const kernels::AttentionTreeLimits& limits);
std::vector<kernels::AttentionTree> PromptTrees(const FittedParts& parts,
                                                const kernels::AttentionTreeLimits& limits,
                                                bool cut);
std::vector<kernels::AttentionTree> DealTrees(const FittedParts& parts,
                                              const kernels::AttentionTreeLimits& limits);

// "256 x 32, prompts 8, cut in 4" ((smallest split) x (splits at most)); "even, overhead 64", "132
// blocks, overhead 64"; "prompts 8", "prompts whole", "prompts cut in 4".
std::string NameOf(const kernels::RowChoice& choice);
std::string NameOf(const PromptChoice& choice);
std::string NameOf(const kernels::BatchChoice& choice);
// The same with names for its leaves, each once: " (2)" behind the second of a name.
engine::NamedAttentionTree NameLeaves(const kernels::AttentionTree& tree);

// What leads to each leaf, by index: "128 <= visible_tokens < 512, query_tokens >= 2"; "always".
std::vector<std::string> WaysToRowLeaves(const kernels::AttentionTree& tree);
std::vector<std::string> WaysToBatchLeaves(const kernels::AttentionTree& tree);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_TUNE_TREE_CHOICES_H_
