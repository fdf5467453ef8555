// SPDX-License-Identifier: Apache-2.0
// Merges the splits of rows in a launch of its own, block style: one row and one query head at a
// time, for all query tokens of the row, in split order. No engine runs it: there, the last split
// to arrive merges in the launch that computes the splits. Source: the reduction kernel of "The
// Anatomy of a Triton Attention Kernel", section 4.5.
#ifndef REPRISE_KERNELS_ATTENTION_ATTENTION_MERGE_BODY_H_
#define REPRISE_KERNELS_ATTENTION_ATTENTION_MERGE_BODY_H_

#include "kernels/attention/attention_portable_body.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

template <typename T>
REPRISE_FN void AttentionMergeBody(Block& b, const AttentionMergeArgs& merge) {
  const AttentionArgs& a = merge.attention;
  const auto heads = static_cast<uint32_t>(a.num_heads);
  const uint32_t total = *a.num_items * heads;
  for (uint32_t index = static_cast<uint32_t>(b.x()); index < total;
       index += static_cast<uint32_t>(b.grid_x())) {
    AttentionWork w;
    w.item = a.items[index / heads];
    if (w.item.num_splits == 1 || w.item.split != 0) continue;
    w.kv_head = static_cast<int>(index % heads);  // in groups of one query head
    w.group = 1;
    w.first_q = a.query_start[w.item.entry] + w.item.q_begin;
    MergeSplits<T, T>(b, a, w, merge.max_unit);
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_ATTENTION_ATTENTION_MERGE_BODY_H_
