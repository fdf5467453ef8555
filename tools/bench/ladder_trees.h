// SPDX-License-Identifier: Apache-2.0
// Trees that rungs of the ladder decide by (docs/bench_attention.md): what an engine with such
// kernels would choose, as far as it is known when a graph is captured.
#ifndef REPRISE_TOOLS_BENCH_LADDER_TREES_H_
#define REPRISE_TOOLS_BENCH_LADDER_TREES_H_

#include <cstdint>

#include "engine/attention_tree_text.h"
#include "kernels/attention/decision_tree.h"

namespace reprise::tools {

// What is known when a graph is captured.
struct CapturedFor {
  const kernels::AttentionTree& tree;  // the benchmark's
  uint32_t max_rows = 1;
  uint32_t max_visible = 1;  // KV tokens that the longest row sees
  uint32_t max_splits = 32;  // that there is room for
  uint32_t num_kv_heads = 1;
  uint32_t block_size = 16;
  uint32_t num_multiprocessors = 1;
};

// The splits that a row is cut into where batches are small.
inline constexpr uint32_t kLadderSegments = 16;

// No row is split.
engine::NamedAttentionTree WholeRowsTree(const CapturedFor& captured);

// A row is cut into kLadderSegments of whole blocks where rows x KV heads are fewer than the
// device's multiprocessors, else not at all. Asks for the batch.
engine::NamedAttentionTree SegmentsTree(const CapturedFor& captured);

// What captured.tree chooses for a full batch of the longest rows, for every row: into how many
// splits one that decodes is cut, whatever its length, and the query tokens of a prompt's item.
engine::NamedAttentionTree FrozenTree(const CapturedFor& captured);

}  // namespace reprise::tools

#endif  // REPRISE_TOOLS_BENCH_LADDER_TREES_H_
