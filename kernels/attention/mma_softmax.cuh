// SPDX-License-Identifier: Apache-2.0
// What one warp of the tensor-core attention kernels computes: 16 query rows against tiles of K and
// V in shared memory, with a running softmax. Scores are in units of log2: scale * log2(e) * q . k,
// so that exp is ex2.
#ifndef REPRISE_KERNELS_ATTENTION_MMA_SOFTMAX_CUH_
#define REPRISE_KERNELS_ATTENTION_MMA_SOFTMAX_CUH_

#include "kernels/attention/mma_geometry.h"
#include "kernels/device/block.h"
#include "kernels/device/mma.cuh"

namespace reprise::kernels::on_cuda {

// What to subtract before ex2: the maximum, or 0 for a row that has seen no token (all weights are
// then 0, not NaN).
REPRISE_FN float SoftmaxBase(float max) { return max == -Infinity() ? 0.0f : max; }

// Fragment indices of a lane: rows g and g + 8 of 16, columns 2 q and 2 q + 1 of 8.
REPRISE_FN int FragmentRow() { return (static_cast<int>(threadIdx.x) & 31) >> 2; }
REPRISE_FN int FragmentColumn() { return (static_cast<int>(threadIdx.x) & 3) * 2; }

template <typename T, int kHeadSize, int kTokens>
class WarpSoftmax {
 public:
  using Scores = float[kTokens / 8][4];
  static constexpr int kColumns = kHeadSize / 8;  // accumulator fragments

  REPRISE_FN WarpSoftmax() {
    const uint32_t lane = threadIdx.x & 31u;
    const uint32_t row = lane & 7u, second = (lane >> 3) & 1u, fourth = lane >> 4;
    rows_first_ = SwizzledOffset<kChunks>(row + 8 * second, fourth);
    columns_first_ = SwizzledOffset<kChunks>(row + 8 * fourth, second);
  }

  // Starts over with the 16 query rows at shared address `query`. They are read once or, for head
  // size 256, in every Score.
  REPRISE_FN void Begin(uint32_t query) {
    query_ = query;
    if constexpr (kQueryInRegisters) {
      REPRISE_UNROLL
      for (int k = 0; k < kSteps; ++k) LoadQuery(q_[k], k);
    }
    REPRISE_UNROLL
    for (int c = 0; c < kColumns; ++c) REPRISE_UNROLL
    for (int i = 0; i < 4; ++i) acc_[c][i] = 0.0f;
    max_[0] = max_[1] = -Infinity();
    sum_[0] = sum_[1] = 0.0f;
  }

  // s = scale_log2 * Q K^T. keys: shared address of kTokens swizzled rows.
  REPRISE_FN void Score(uint32_t keys, float scale_log2, Scores& s) const {
    REPRISE_UNROLL
    for (int t = 0; t < kTokens / 8; ++t) REPRISE_UNROLL
    for (int i = 0; i < 4; ++i) s[t][i] = 0.0f;
    REPRISE_UNROLL
    for (int k = 0; k < kSteps; ++k) {
      uint32_t q[4];
      if constexpr (kQueryInRegisters) {
        REPRISE_UNROLL
        for (int i = 0; i < 4; ++i) q[i] = q_[k][i];
      } else {
        LoadQuery(q, k);
      }
      REPRISE_UNROLL
      for (int t = 0; t < kTokens / 16; ++t) {
        uint32_t b[4];
        LoadMatrix4(b, ((keys + columns_first_) ^ (k * 32)) + t * 16 * kRowBytes);
        Mma16x8x16<T>(s[2 * t], q, b[0], b[1]);
        Mma16x8x16<T>(s[2 * t + 1], q, b[2], b[3]);
      }
    }
    REPRISE_UNROLL
    for (int t = 0; t < kTokens / 8; ++t) REPRISE_UNROLL
    for (int i = 0; i < 4; ++i) s[t][i] *= scale_log2;
  }

  // Hides tokens behind the last that a row may see; the tile's first token is `first`, last[i] is
  // for row g + 8 i.
  REPRISE_FN static void Mask(Scores& s, uint32_t first, const uint32_t (&last)[2]) {
    REPRISE_UNROLL
    for (int t = 0; t < kTokens / 8; ++t) REPRISE_UNROLL
    for (int i = 0; i < 4; ++i)
      if (first + static_cast<uint32_t>(t * 8 + FragmentColumn() + i % 2) > last[i / 2])
        s[t][i] = -Infinity();
  }

  // Turns scores into weights relative to the running maximum, and rescales what is accumulated so
  // far.
  REPRISE_FN void Weigh(Scores& s) {
    REPRISE_UNROLL
    for (int h = 0; h < 2; ++h) {
      float top = max_[h];
      REPRISE_UNROLL
      for (int t = 0; t < kTokens / 8; ++t) top = fmaxf(top, fmaxf(s[t][2 * h], s[t][2 * h + 1]));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
      const float base = SoftmaxBase(top);
      const float rescale = Exp2(max_[h] - base);
      max_[h] = top;
      float sum = 0.0f;
      REPRISE_UNROLL
      for (int t = 0; t < kTokens / 8; ++t) REPRISE_UNROLL
      for (int i = 2 * h; i < 2 * h + 2; ++i) {
        s[t][i] = Exp2(s[t][i] - base);
        sum += s[t][i];
      }
      sum_[h] = sum_[h] * rescale + sum;
      REPRISE_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        acc_[c][2 * h] *= rescale;
        acc_[c][2 * h + 1] *= rescale;
      }
    }
  }

  // acc += weights V. values: shared address of kTokens swizzled rows.
  REPRISE_FN void Accumulate(const Scores& s, uint32_t values) {
    REPRISE_UNROLL
    for (int t = 0; t < kTokens / 16; ++t) {
      const uint32_t p[4] = {Pack2<T>(s[2 * t][0], s[2 * t][1]), Pack2<T>(s[2 * t][2], s[2 * t][3]),
                             Pack2<T>(s[2 * t + 1][0], s[2 * t + 1][1]),
                             Pack2<T>(s[2 * t + 1][2], s[2 * t + 1][3])};
      REPRISE_UNROLL
      for (int c = 0; c < kColumns; c += 2) {
        uint32_t b[4];
        LoadMatrix4Transposed(b, ((values + rows_first_) ^ (c * 16)) + t * 16 * kRowBytes);
        Mma16x8x16<T>(acc_[c], p, b[0], b[1]);
        Mma16x8x16<T>(acc_[c + 1], p, b[2], b[3]);
      }
    }
  }

  // The rows' sums, complete in every lane. Call once, after the last tile.
  REPRISE_FN void FinishSums() {
    REPRISE_UNROLL
    for (int h = 0; h < 2; ++h) {
      sum_[h] += __shfl_xor_sync(0xffffffffu, sum_[h], 1);
      sum_[h] += __shfl_xor_sync(0xffffffffu, sum_[h], 2);
    }
  }

  // Of row g + 8 h.
  REPRISE_FN float max(int h) const { return max_[h]; }
  REPRISE_FN float sum(int h) const { return sum_[h]; }
  // Row g + 8 h, columns 8 c + 2 q and the next; not normalised.
  REPRISE_FN float2 acc(int c, int h) const { return {acc_[c][2 * h], acc_[c][2 * h + 1]}; }

 private:
  static constexpr int kChunks = kHeadSize / 8;  // 16-byte chunks of a row
  static constexpr int kRowBytes = kHeadSize * 2;
  static constexpr int kSteps = kHeadSize / 16;
  // At head size 256 the accumulator alone takes 128 registers.
  static constexpr bool kQueryInRegisters = kHeadSize <= 128;

  REPRISE_FN void LoadQuery(uint32_t (&q)[4], int k) const {
    LoadMatrix4(q, (query_ + rows_first_) ^ (k * 32));
  }

  // Where a lane points LoadMatrix4 in the first 16 rows x 16 columns of a tile. A step along the
  // columns is an xor of the whole address: tiles start at multiples of their row size, and steps
  // leave the lowest bit of the chunk alone. (Offsets xored first and added to the tile would be
  // loop invariants, and take the registers that head size 256 has not got.) Matrices in the order
  // (row half, column half):
  uint32_t rows_first_;     // 00 10 01 11: a fragment of Q, or two of V, transposed
  uint32_t columns_first_;  // 00 01 10 11: two fragments of K
  uint32_t query_ = 0;
  uint32_t q_[kQueryInRegisters ? kSteps : 1][4];
  float acc_[kColumns][4];
  float max_[2], sum_[2];
};

}  // namespace reprise::kernels::on_cuda

#endif  // REPRISE_KERNELS_ATTENTION_MMA_SOFTMAX_CUH_
