// SPDX-License-Identifier: Apache-2.0
// What a thread of a group prefill block computes with: the running softmax of its warpgroup's 64
// query rows, and their products with tiles of K and V. Scores are in units of log2, as in
// warp_softmax.h. Part of attention_prefill_group_body.h.
#ifndef REPRISE_KERNELS_ATTENTION_PREFILL_GROUP_SOFTMAX_H_
#define REPRISE_KERNELS_ATTENTION_PREFILL_GROUP_SOFTMAX_H_

#include "kernels/attention/prefill_group_geometry.h"
#include "kernels/attention/warp_softmax.h"
#include "kernels/device/matrix_group.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

template <typename T, int kHeadSize>
class GroupSoftmax {
 public:
  using Warp = WarpSoftmax<T, kHeadSize, kGroupTile>;
  using Scores = typename Warp::Scores;
  static constexpr int kSums = kHeadSize / 16;  // fragments

  REPRISE_FN void Begin() {
    REPRISE_UNROLL
    for (int c = 0; c < kSums; ++c) acc_[c].Clear();
    REPRISE_UNROLL
    for (int h = 0; h < kLaneRows; ++h) {
      max_[h] = -Infinity();
      sum_[h] = 0.0f;
    }
  }

  // Starts scores = Q K^T.
  REPRISE_FN void StartScores(uint32_t query, uint32_t keys) {
    products_.Begin();
    REPRISE_UNROLL
    for (int k = 0; k < kHeadSize / 16; ++k) {
      const uint32_t panel = static_cast<uint32_t>(k / 4);
      products_.template MultiplyRows<T>(scores_, query + panel * kPrefillGroupRows * kKvPanelBytes,
                                         keys + panel * GroupPanelBytes(), k % 4, k != 0);
    }
    products_.Commit();
  }
  // Starts adding weights V to the sums.
  REPRISE_FN void StartSums(uint32_t values) {
    products_.Begin();
    REPRISE_UNROLL
    for (int t = 0; t < kGroupTile / 16; ++t)
      products_.template MultiplyColumns<T>(acc_, weights_[t],
                                            values + static_cast<uint32_t>(t) * 16 * kKvPanelBytes,
                                            GroupPanelBytes());
    products_.Commit();
  }
  // Where sums were started after them: the scores alone are waited for.
  REPRISE_FN void WaitForScores(bool sums_run) {
    if (sums_run) {
      products_.template Wait<1>(scores_);
    } else {
      products_.template Wait<0>(scores_);
    }
  }
  REPRISE_FN void WaitForSums() { products_.template Wait<0>(acc_); }

  // Hides columns of the tile but [begin[h], end[h]) from row MatrixRow(h). Both count from the
  // lane's first column, so that what an element is compared with is a constant.
  REPRISE_FN void Mask(const int (&begin)[kLaneRows], const int (&end)[kLaneRows]) {
    REPRISE_UNROLL
    for (int t = 0; t < kGroupTile / 16; ++t) {
      REPRISE_UNROLL
      for (int h = 0; h < kLaneRows; ++h) {
        REPRISE_UNROLL
        for (int j = 0; j < kLaneColumns<16>; ++j) {
          const int column = t * 16 + MatrixColumn(j) - MatrixColumn(0);
          if (column < begin[h] || column >= end[h]) scores_[t].v[At(h, j)] = -Infinity();
        }
      }
    }
  }

  // ALiBi's part, for row MatrixRow(h); first: of the lane's first column, from the query's token.
  REPRISE_FN void AddAlibi(int h, uint32_t first, float slope) {
    REPRISE_UNROLL
    for (int t = 0; t < kGroupTile / 16; ++t) {
      REPRISE_UNROLL
      for (int j = 0; j < kLaneColumns<16>; ++j)
        scores_[t].v[At(h, j)] += AlibiBias(
            slope, first + static_cast<uint32_t>(t * 16 + MatrixColumn(j) - MatrixColumn(0)), 0);
    }
  }

  // Turns scores, times a factor above 0, into weights relative to the running maximum.
  REPRISE_FN void Weigh(float factor) {
    REPRISE_UNROLL
    for (int h = 0; h < kLaneRows; ++h) {
      float top = -Infinity();
      REPRISE_UNROLL
      for (int t = 0; t < kGroupTile / 16; ++t) {
        REPRISE_UNROLL
        for (int j = 0; j < kLaneColumns<16>; ++j) top = Max(top, scores_[t].v[At(h, j)]);
      }
      top = Max(max_[h], ReduceRow(top, [](float x, float y) { return Max(x, y); }) * factor);
      const float base = SoftmaxBase(top);
      rescale_[h] = Exp2(max_[h] - base);
      max_[h] = top;
      float sum = 0.0f;
      REPRISE_UNROLL
      for (int t = 0; t < kGroupTile / 16; ++t) {
        REPRISE_UNROLL
        for (int j = 0; j < kLaneColumns<16>; ++j) {
          float& x = scores_[t].v[At(h, j)];
          x = Exp2(MultiplyAdd(x, factor, -base));
          sum += x;
        }
      }
      sum_[h] = MultiplyAdd(sum_[h], rescale_[h], sum);
    }
  }
  // Makes the weights operands, once no sums run.
  REPRISE_FN void TakeWeights() {
    REPRISE_UNROLL
    for (int t = 0; t < kGroupTile / 16; ++t) weights_[t] = ToOperand<T>(scores_[t]);
  }
  // Makes the sums relative to the maximum that the weights are relative to. Mostly that is the one
  // of the tile before.
  REPRISE_FN void Rescale() {
    if (!AnyLane(rescale_[0] != 1.0f || rescale_[1] != 1.0f)) return;
    REPRISE_UNROLL
    for (int h = 0; h < kLaneRows; ++h) {
      REPRISE_UNROLL
      for (int c = 0; c < kSums; ++c) {
        REPRISE_UNROLL
        for (int j = 0; j < kLaneColumns<16>; ++j) acc_[c].v[At(h, j)] *= rescale_[h];
      }
    }
  }

  // The rows' sums, complete in every lane. Call once, after the last tile.
  REPRISE_FN void FinishSums() { FinishRowSums(sum_); }

  // Of row MatrixRow(h).
  REPRISE_FN float max(int h) const { return max_[h]; }
  REPRISE_FN float sum(int h) const { return sum_[h]; }
  // f(column, sums) for all that the lane has of row MatrixRow(h), not normalised; columns count
  // from the lane's first.
  template <typename F>
  REPRISE_FN void ForRuns(int h, F f) const {
    REPRISE_UNROLL
    for (int i = 0; i < kSums * kRuns; ++i) {
      const int c = i / kRuns, run = i % kRuns * kColumnRun;
      ColumnRun x;
      REPRISE_UNROLL
      for (int j = 0; j < kColumnRun; ++j) x.v[j] = acc_[c].v[At(h, run + j)];
      f(c * 16 + MatrixColumn(run) - MatrixColumn(0), x);
    }
  }
  REPRISE_FN Scores& scores() { return scores_; }

 private:
  static constexpr int kRuns = Warp::kRuns;

  GroupProducts products_;
  Scores scores_;
  MatrixA weights_[kGroupTile / 16];
  MatrixD<16> acc_[kSums];
  float max_[kLaneRows], sum_[kLaneRows], rescale_[kLaneRows];
};

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_ATTENTION_PREFILL_GROUP_SOFTMAX_H_
