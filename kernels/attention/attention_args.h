// SPDX-License-Identifier: Apache-2.0
// Arguments of the paged-attention op. See attention.h.
#ifndef REPRISE_KERNELS_ATTENTION_ATTENTION_ARGS_H_
#define REPRISE_KERNELS_ATTENTION_ATTENTION_ARGS_H_

#include <cstdint>

#include "kernels/attention/decode_share.h"
#include "kernels/attention/kv_layout.h"
#include "kernels/attention/plan.h"

namespace reprise::kernels {

struct AttentionArgs {
  const void* q = nullptr;         // [tokens, num_heads, head_dim] T, rope applied
  const void* kv_cache = nullptr;  // one layer, as `kv` says
  void* out = nullptr;             // [tokens, num_heads, head_dim] T

  // The step's work list; every item is done once per KV head.
  const AttentionWorkItem* items = nullptr;
  const uint32_t* num_items = nullptr;       // live count
  const uint32_t* query_start = nullptr;     // [entries] first query token
  const uint32_t* context_before = nullptr;  // [entries] KV tokens before this step
  const uint32_t* block_table = nullptr;     // [max_rows, max_blocks_per_row]
  uint32_t max_blocks_per_row = 0;

  // Partial results of items with num_splits > 1, at PartialIndex.
  float* partial_out = nullptr;  // [max_rows * max_splits, num_heads, head_dim] not normalised
  float* partial_max =
      nullptr;  // [max_rows * max_splits, num_heads] running maximum of scaled scores
  float* partial_sum = nullptr;  // [max_rows * max_splits, num_heads] sum exp(score - maximum)
  // [max_rows * num_kv_heads] zero before and after; nullptr: the splits of items stay partial
  // results, for AttentionMerge.
  uint32_t* arrivals = nullptr;
  // Bulk decode kernel: the step's deal in place of items. Its partial results are pieces of leaves
  // (decode_fold.h), at index entry * max_splits + leaf.
  const DecodeRow* decode_rows = nullptr;    // [entries + tiles]
  const uint32_t* prefix_members = nullptr;  // of tiles: the entries of the rows, or kNoMember
  const DecodeShare* shares = nullptr;       // [blocks of its grid]; nullptr: items are there
  uint32_t* piece_leaves = nullptr;          // [max_rows * max_splits, num_kv_heads]
  uint32_t max_splits = 0;
  // Bulk decode kernel: may read the deal, and KV of all tokens but the rows' newest, without
  // waiting for the kernel that is enqueued just before this one, which writes none of them.
  bool reads_ahead = false;

  int32_t num_heads = 0;  // of queries
  KvLayout kv = {};       // queries have its head_dim
  float scale = 0.0f;     // softmax scale
  // A query at position p sees positions in (p - window, p]; 0: all up to p. The items' ranges
  // begin where the window of their first query does.
  uint32_t window = 0;
  // What is done to scores besides, in this order; uniform over a launch. Scores are natural
  // logarithms, as softmax has them.
  float softcap = 0.0f;  // s -> softcap * tanh(s / softcap); 0: none
  // [num_heads] f32: s -> s + slope * (position of the key - position of the query); nullptr: none
  const float* alibi_slopes = nullptr;
  // [num_heads] f32: a score that joins the sum of its head's softmax, once for every query token,
  // and has no value; finite; nullptr: none
  const float* sinks = nullptr;
  // Portable candidate, set by the launch: query rows (query tokens x heads of a group) that a
  // block holds at a time, and the passes that the largest item takes so.
  int32_t pass_rows = 0;
  int32_t num_passes = 0;

  KvScales scales = {};  // of KV of 8 bits; none otherwise
};

// Merges the partial results that a launch without arrivals has left.
struct AttentionMergeArgs {
  AttentionArgs attention;  // of that launch; out and its items are what counts
  // What partial maxima are in: natural logarithms by this.
  float max_unit = 1.0f;
};

// Where the partial result of a split lies for one of the row's num_tokens query tokens and one
// head. On host and device.
constexpr int64_t PartialIndex(const AttentionArgs& a, uint32_t entry, uint32_t split,
                               uint32_t num_tokens, uint32_t token, int head) {
  return (static_cast<int64_t>(entry) * a.max_splits + split * num_tokens + token) * a.num_heads +
         head;
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_ATTENTION_ATTENTION_ARGS_H_
