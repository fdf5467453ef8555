// SPDX-License-Identifier: Apache-2.0
// How a row's results come together in the bulk decode kernel, always in the same order: the warps
// of a block, each of which saw its own chunks of a leaf; then kNodeLeaves leaves, the first with
// the second, that with the third; then the nodes, likewise. A block does as much of it as it has
// seen, in registers, and what it cannot finish goes to memory as pieces: a whole node, the first
// leaves of one, or a single leaf. The last block to arrive at a row goes on from the pieces.
#ifndef REPRISE_KERNELS_ATTENTION_DECODE_FOLD_H_
#define REPRISE_KERNELS_ATTENTION_DECODE_FOLD_H_

#include "kernels/attention/attention_args.h"
#include "kernels/attention/decode_bulk_geometry.h"
#include "kernels/attention/split_merge.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Four neighbouring columns of one head's result over some tokens, not normalised.
struct FoldedColumns {
  Vec<float, 4> v;
  float max;  // what the weights are relative to, in units of log2
  float sum;  // of the weights
};

// `x`, then `y`. Written out, so that every place that folds rounds alike.
REPRISE_FN FoldedColumns Fold(const FoldedColumns& x, const FoldedColumns& y) {
  FoldedColumns r;
  r.max = Max(x.max, y.max);
  const float base = SoftmaxBase(r.max);
  const float of_x = Exp2(x.max - base), of_y = Exp2(y.max - base);
  r.sum = MultiplyAdd(y.sum, of_y, x.sum * of_x);
  REPRISE_UNROLL
  for (int c = 0; c < 4; ++c) r.v.v[c] = MultiplyAdd(y.v.v[c], of_y, x.v.v[c] * of_x);
  return r;
}

// Of no tokens. Folding it in, on either side, changes no bit of the other.
REPRISE_FN FoldedColumns NoColumns() { return {{}, -Infinity(), 0.0f}; }

// The running result of one thread: of the node that it is at, and of the nodes before.
struct RowFold {
  FoldedColumns node, row;

  REPRISE_FN void Begin() { node = row = NoColumns(); }
  // Appends leaves that end before `end` and lie in one node.
  REPRISE_FN void Append(const FoldedColumns& x, uint32_t end, uint32_t num_leaves) {
    node = Fold(node, x);
    if (end % kNodeLeaves != 0 && end != num_leaves) return;
    row = Fold(row, node);
    node = NoColumns();
  }
  // What has been appended, where that lies in one node or is the whole row.
  REPRISE_FN FoldedColumns piece() const { return Fold(row, node); }
};

REPRISE_FN FoldedColumns OrNone(bool some, FoldedColumns x) {
  const FoldedColumns none = NoColumns();
  x.max = some ? x.max : none.max;
  x.sum = some ? x.sum : none.sum;
  REPRISE_UNROLL
  for (int c = 0; c < 4; ++c) x.v.v[c] = some ? x.v.v[c] : none.v.v[c];
  return x;
}

// How many leaves the piece that begins at `leaf` has, one word per KV head. The piece itself
// stands at that leaf's place among the partial results.
REPRISE_FN uint32_t* PieceLeaves(const AttentionArgs& a, const BulkItem& item, uint32_t leaf) {
  return a.piece_leaves +
         (static_cast<int64_t>(item.entry) * a.max_splits + leaf) * a.kv.num_kv_heads +
         item.kv_head;
}

// Counts the item's leaves, which have been stored: whether they were the row's last. The counter
// is 0 again after the last.
REPRISE_FN bool CountArrival(const AttentionArgs& a, const BulkItem& item) {
  uint32_t* const arrivals =
      a.arrivals + static_cast<int64_t>(item.entry) * a.kv.num_kv_heads + item.kv_head;
  const uint32_t before = AtomicAddAcquireRelease(arrivals, item.num_leaves);
  const bool last = before + item.num_leaves == item.row.num_leaves;
  if (last) *arrivals = 0;
  return last;
}

REPRISE_FN void StorePiece(const AttentionArgs& a, const BulkItem& item, uint32_t leaf, int head,
                           int column, const FoldedColumns& x) {
  const int64_t at = PartialIndex(a, item.entry, leaf, 1, 0, head);
  StoreVec(a.partial_out + at * a.kv.head_dim + column, x.v);
  if (column != 0) return;
  a.partial_max[at] = x.max;
  a.partial_sum[at] = x.sum;
}

REPRISE_FN FoldedColumns LoadPiece(const AttentionArgs& a, int64_t at, int column) {
  FoldedColumns x;
  x.v = LoadFresh(
      reinterpret_cast<const Vec<float, 4>*>(a.partial_out + at * a.kv.head_dim + column));
  x.max = LoadFresh(a.partial_max + at);
  x.sum = LoadFresh(a.partial_sum + at);
  return x;
}

// Puts a row's pieces together and stores the result: every thread `thread` of kBulkComputeThreads
// some columns. Where pieces begin is not known before they are there, so every leaf's place is
// read, a batch of independent loads at a time, and what is no piece counts as no tokens.
// K: elements of KV.
template <typename T, typename K>
REPRISE_FN void FoldPieces(const AttentionArgs& a, const BulkItem& item, int group, int thread) {
  constexpr uint32_t kBatch = 2 * kNodeLeaves;
  const int columns = a.kv.head_dim / 4;
  const uint32_t end = item.row.num_leaves;
  for (int i = thread; i < group * columns; i += kBulkComputeThreads) {
    const int in_group = i / columns, column = (i - in_group * columns) * 4;
    const int head = static_cast<int>(item.kv_head) * group + in_group;
    FoldedColumns row = NoColumns();
    uint32_t next = 0;  // the leaf at which the next piece begins
    for (uint32_t first = 0; first < end; first += kBatch) {
      uint32_t count[kBatch];
      FoldedColumns x[kBatch];
      REPRISE_UNROLL
      for (uint32_t j = 0; j < kBatch; ++j) {
        const uint32_t leaf = first + j < end ? first + j : end - 1;
        count[j] = LoadFresh(PieceLeaves(a, item, leaf));
        x[j] = LoadPiece(a, PartialIndex(a, item.entry, leaf, 1, 0, head), column);
      }
      REPRISE_UNROLL
      for (uint32_t node = 0; node < kBatch; node += kNodeLeaves) {
        FoldedColumns sum = NoColumns();
        REPRISE_UNROLL
        for (uint32_t j = node; j < node + kNodeLeaves; ++j) {
          const bool begins = first + j == next && next < end;
          next += begins ? count[j] : 0;
          sum = Fold(sum, OrNone(begins, x[j]));
        }
        row = Fold(row, sum);
      }
    }
    StoreOutput4<T, K>(a, item.row.query, head, column, row.v, row.max, row.sum);
  }
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_ATTENTION_DECODE_FOLD_H_
