// SPDX-License-Identifier: Apache-2.0
// What one warp of the matrix-unit attention kernels computes: 16 query rows against tiles of K and
// V in shared memory, with a running softmax. Scores are in units of log2, times log2(e), so that
// exp is exp2.
#ifndef REPRISE_KERNELS_ATTENTION_WARP_SOFTMAX_H_
#define REPRISE_KERNELS_ATTENTION_WARP_SOFTMAX_H_

#include <type_traits>

#include "kernels/attention/attention_geometry.h"
#include "kernels/attention/score_switches.h"
#include "kernels/device/matrix.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// What to subtract before exp2: the maximum, or 0 for a row that has seen no token (all weights are
// then 0, not NaN).
REPRISE_FN float SoftmaxBase(float max) { return max == -Infinity() ? 0.0f : max; }

// Columns of an accumulator fragment that neighbour in memory, as one store.
using ColumnRun = Vec<float, kColumnRun>;

// T: of queries. K: of K and V, T or E4m3; of the latter, V's product is of f16.
template <typename T, int kHeadSize, int kTokens, typename K = T>
class WarpSoftmax {
 public:
  using Scores = MatrixD<16>[kTokens / 16];
  static constexpr int kColumns = kHeadSize / 16;              // accumulator fragments
  static constexpr int kRuns = kLaneColumns<16> / kColumnRun;  // of a row in a fragment

  // Starts over with the 16 query rows at shared address `query`. They are read once or, where
  // registers are short, in every Score.
  REPRISE_FN void Begin(uint32_t query) {
    query_ = query;
    if constexpr (kQueryInRegisters) {
      REPRISE_UNROLL
      for (int k = 0; k < kSteps; ++k) q_[k] = reader_.A(query_, 0, k);
    }
    REPRISE_UNROLL
    for (int c = 0; c < kColumns; ++c) acc_[c].Clear();
    REPRISE_UNROLL
    for (int h = 0; h < kLaneRows; ++h) {
      max_[h] = -Infinity();
      sum_[h] = 0.0f;
    }
  }

  // s = factor * Q K^T. keys: shared address of kTokens swizzled rows.
  REPRISE_FN void Score(uint32_t keys, float factor, Scores& s) const {
    constexpr int kStride = kIsFp8<K> ? 2 : 1;  // steps at a time
    REPRISE_UNROLL
    for (int t = 0; t < kTokens / 16; ++t) s[t].Clear();
    REPRISE_UNROLL
    for (int k = 0; k < kSteps; k += kStride) {
      const MatrixA q = Query(k), next = kStride == 2 ? Query(k + kStride - 1) : q;
      REPRISE_UNROLL
      for (int t = 0; t < kTokens / 16; ++t) {
        if constexpr (kIsFp8<K>) {
          MatrixB<16> b[2];
          bytes_.template B<T>(keys, t * 16, k / 2, b);
          Multiply<T>(s[t], q, b[0]);
          Multiply<T>(s[t], next, b[1]);
        } else {
          Multiply<T>(s[t], q, reader_.template B<16>(keys, t * 16, k));
        }
      }
    }
    REPRISE_UNROLL
    for (int t = 0; t < kTokens / 16; ++t) {
      REPRISE_UNROLL
      for (int i = 0; i < MatrixD<16>::kSize; ++i) s[t].v[i] *= factor;
    }
  }

  // Where the launch has a cap: of what Score gave with ScoreFactor.
  REPRISE_FN static void Cap(const AttentionArgs& a, Scores& s) {
    REPRISE_UNROLL
    for (int t = 0; t < kTokens / 16; ++t) CapScores(a, s[t].v);
  }

  // Where the launch has ALiBi: of row MatrixRow(h), whose head has this slope and whose query
  // token is at `position`; the tile's first token is `first`.
  REPRISE_FN static void AddAlibi(Scores& s, int h, uint32_t first, uint32_t position,
                                  float slope) {
    REPRISE_UNROLL
    for (int t = 0; t < kTokens / 16; ++t) {
      REPRISE_UNROLL
      for (int j = 0; j < kLaneColumns<16>; ++j)
        s[t].v[At(h, j)] +=
            AlibiBias(slope, first + static_cast<uint32_t>(t * 16 + MatrixColumn(j)), position);
    }
  }

  // Hides tokens outside (last - window, last] of a row; the tile's first token is `first`, last[h]
  // is for row MatrixRow(h). window: at most 2^31, so that one comparison does for both ends.
  REPRISE_FN static void Mask(Scores& s, uint32_t first, const uint32_t (&last)[kLaneRows],
                              uint32_t window) {
    REPRISE_UNROLL
    for (int t = 0; t < kTokens / 16; ++t) {
      REPRISE_UNROLL
      for (int h = 0; h < kLaneRows; ++h) {
        REPRISE_UNROLL
        for (int j = 0; j < kLaneColumns<16>; ++j)
          if (last[h] - (first + static_cast<uint32_t>(t * 16 + MatrixColumn(j))) >= window)
            s[t].v[At(h, j)] = -Infinity();
      }
    }
  }

  // Turns scores into weights relative to the running maximum, and rescales what is accumulated so
  // far.
  REPRISE_FN void Weigh(Scores& s) {
    REPRISE_UNROLL
    for (int h = 0; h < kLaneRows; ++h) {
      float top = max_[h];
      REPRISE_UNROLL
      for (int t = 0; t < kTokens / 16; ++t) {
        REPRISE_UNROLL
        for (int j = 0; j < kLaneColumns<16>; ++j) top = Max(top, s[t].v[At(h, j)]);
      }
      top = ReduceRow(top, [](float x, float y) { return Max(x, y); });
      const float base = SoftmaxBase(top);
      const float rescale = Exp2(max_[h] - base);
      max_[h] = top;
      float sum = 0.0f;
      REPRISE_UNROLL
      for (int t = 0; t < kTokens / 16; ++t) {
        REPRISE_UNROLL
        for (int j = 0; j < kLaneColumns<16>; ++j) {
          float& x = s[t].v[At(h, j)];
          x = Exp2(x - base);
          sum += x;
        }
      }
      sum_[h] = sum_[h] * rescale + sum;
      REPRISE_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        REPRISE_UNROLL
        for (int j = 0; j < kLaneColumns<16>; ++j) acc_[c].v[At(h, j)] *= rescale;
      }
    }
  }

  // acc += weights V. values: shared address of kTokens swizzled rows.
  REPRISE_FN void Accumulate(const Scores& s, uint32_t values) {
    REPRISE_UNROLL
    for (int t = 0; t < kTokens / 16; ++t) {
      if constexpr (kIsFp8<K>) {
        const MatrixA p = ToOperand<F16>(s[t]);
        REPRISE_UNROLL
        for (int c = 0; c < kColumns; c += 2) {
          MatrixB<16> b[2];
          bytes_.BTransposed(values, t * 16, c / 2, b);
          Multiply<F16>(acc_[c], p, b[0]);
          Multiply<F16>(acc_[c + 1], p, b[1]);
        }
      } else {
        const MatrixA p = ToOperand<T>(s[t]);
        REPRISE_UNROLL
        for (int c = 0; c < kColumns; ++c)
          Multiply<T>(acc_[c], p, reader_.BTransposed(values, t * 16, c));
      }
    }
  }

  // The rows' sums, complete in every lane. Call once, after the last tile.
  REPRISE_FN void FinishSums() { FinishRowSums(sum_); }

  // Of row MatrixRow(h).
  REPRISE_FN float max(int h) const { return max_[h]; }
  REPRISE_FN float sum(int h) const { return sum_[h]; }
  // Run `run` of row MatrixRow(h) in fragment c; not normalised. Its first column is RunColumn(c,
  // run).
  REPRISE_FN ColumnRun acc(int c, int h, int run) const {
    ColumnRun x;
    REPRISE_UNROLL
    for (int i = 0; i < kColumnRun; ++i)
      x.v[i] = acc_[c].v[At(h, kInterleaved ? i * kRuns + run : run * kColumnRun + i)];
    return x;
  }
  REPRISE_FN static int RunColumn(int c, int run) {
    if constexpr (kInterleaved) return c * 16 + 2 * MatrixColumn(0) + kColumnRun * run;
    return c * 16 + MatrixColumn(run * kColumnRun);
  }

 private:
  static constexpr int kSteps = kHeadSize / 16;
  // Where they leave room for the accumulator: not at head size 256 with mma.sync, nor at 128 with
  // WMMA, whose lanes hold every operand twice.
  static constexpr bool kQueryInRegisters = kSteps * sizeof(MatrixA) <= 32 * sizeof(uint32_t);
  static constexpr bool kInterleaved = kIsFp8<K> && kFp8Interleaves;

  struct Nothing {};

  REPRISE_FN MatrixA Query(int k) const {
    return kQueryInRegisters ? q_[kQueryInRegisters ? k : 0] : reader_.A(query_, 0, k);
  }

  TileReader<kHeadSize / 8> reader_;
  std::conditional_t<kIsFp8<K>, Fp8TileReader<kHeadSize / 16>, Nothing> bytes_;
  uint32_t query_ = 0;
  MatrixA q_[kQueryInRegisters ? kSteps : 1];
  MatrixD<16> acc_[kColumns];
  float max_[kLaneRows], sum_[kLaneRows];
};

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_ATTENTION_WARP_SOFTMAX_H_
