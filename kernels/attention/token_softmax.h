// SPDX-License-Identifier: Apache-2.0
// What one warp of the bulk decode kernel computes: up to eight query heads against chunks of 16 KV
// tokens, with a running softmax. Tokens are the rows of the products and heads their columns,
// which wastes little where a group has few heads: scores = K Q^T, then out^T += V^T weights.
// Scores are in units of log2, as in warp_softmax.h.
//
// Over KV of 8 bits, E4M3, products are of f16, which one instruction makes of an element: what is
// loaded as a pair of bytes becomes neighbours of a fragment, so that dimensions lie in another
// order. Queries in bf16 become f16 times a power of two that puts the largest of a head below
// 2^15: of numbers down to 2^-28 of that no bit is lost. Weights are f16 too.
//
// Weights are relative to a base that follows the running maximum from afar: it is raised only when
// a score exceeds it by more than kBaseSlack, so most chunks rescale nothing. When it is raised
// follows from the head's own scores alone.
#ifndef REPRISE_KERNELS_ATTENTION_TOKEN_SOFTMAX_H_
#define REPRISE_KERNELS_ATTENTION_TOKEN_SOFTMAX_H_

#include "kernels/attention/decode_bulk_geometry.h"
#include "kernels/attention/warp_softmax.h"
#include "kernels/device/matrix.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// Weights are at most 2^8, which f16 holds as well.
inline constexpr float kBaseSlack = 8.0f;

// T: of queries. K: of KV, T or E4m3.
template <typename T, int kHeadSize, typename K = T>
class TokenSoftmax {
 public:
  static constexpr int kSteps = kHeadSize / 16;
  static constexpr bool kFp8 = kIsFp8<K>;
  static_assert(!kFp8 || (std::is_same_v<K, E4m3> && kHeadSize % 128 == 0));

  REPRISE_FN TokenSoftmax() {
    const uint32_t lane = static_cast<uint32_t>(Lane());
    const uint32_t row = lane & 7u, second = (lane >> 3) & 1u, fourth = lane >> 4;
    keys_first_ = SwizzledOffset<8>(row + 8 * second, fourth);
    values_first_ = SwizzledOffset<8>(row + 8 * fourth, second);
  }

  // Starts over with the query rows at shared address `query`, eight plain rows of kHeadSize; those
  // beyond the group may hold anything finite.
  REPRISE_FN void Begin(uint32_t query) {
    const uint32_t lane = static_cast<uint32_t>(Lane());
    if constexpr (kFp8) {
      const uint32_t at = query + (lane >> 2) * BulkRowBytes(kHeadSize) + (lane & 3u) * 8;
      REPRISE_UNROLL
      for (int k = 0; k < kSteps; ++k) {
        const auto four = LoadShared<Vec<uint32_t, 2>>(at + static_cast<uint32_t>(k) * 32);
        q_[k][0] = four.v[0];
        q_[k][1] = four.v[1];
      }
      ScaleQueries();
      return Clear();
    }
    const uint32_t at = query + (lane & 7u) * BulkRowBytes(kHeadSize) + (lane >> 3) * 16;
    REPRISE_UNROLL
    for (int k = 0; k < kSteps; k += 2) {
      uint32_t r[4];
      LoadMatrix4(r, at + static_cast<uint32_t>(k) * 32);
      q_[k][0] = r[0];
      q_[k][1] = r[1];
      q_[k + 1][0] = r[2];
      q_[k + 1][1] = r[3];
    }
    Clear();
  }

  // Takes the lane's column of query rows, Column(), from global memory; nullptr: zeros.
  REPRISE_FN void LoadColumn(const T* query) {
    constexpr int kToSecond = kFp8 ? 1 : 4;
    const auto* const from =
        reinterpret_cast<const uint32_t*>(query) + (Lane() & 3) * (kFp8 ? 2 : 1);
    REPRISE_UNROLL
    for (int k = 0; k < kSteps; ++k) {
      REPRISE_UNROLL
      for (int half = 0; half < 2; ++half)
        q_[k][half] = query == nullptr ? 0u : from[8 * k + kToSecond * half];
    }
    if constexpr (kFp8) ScaleQueries();
  }
  REPRISE_FN static int Column() { return Lane() >> 2; }

  // Starts over with the same queries.
  REPRISE_FN void Clear() {
    REPRISE_UNROLL
    for (int k = 0; k < kSteps; ++k) {
      REPRISE_UNROLL
      for (float& x : acc_[k]) x = 0.0f;
    }
    REPRISE_UNROLL
    for (int i = 0; i < 2; ++i) {
      base_[i] = -Infinity();
      sum_[i] = 0.0f;
    }
  }

  // The tokens of a chunk that count: rows [begin, end) of its 16.
  struct Seen {
    uint32_t begin, end;
    REPRISE_FN bool all() const { return begin == 0 && end == kBulkChunk; }
  };

  // Takes a chunk: shared addresses of K and V in panels (KvLayout), multiples of 1024. Rows that
  // do not count hold anything finite. adjust(s) makes scores of factor * q . k: s[2 h + i], of
  // token Token(h) and head Head(i).
  template <typename Adjust>
  REPRISE_FN void Take(uint32_t keys, uint32_t values, float factor, const Seen& seen,
                       Adjust adjust) {
    float s[4];
    Score(keys, factor, s);
    adjust(s);
    if (!seen.all()) Hide(seen, s);
    const float top[2] = {Max(s[0], s[2]), Max(s[1], s[3])};
    if (AnyLane(top[0] > base_[0] + kBaseSlack || top[1] > base_[1] + kBaseSlack)) Raise(top);
    const float base[2] = {SoftmaxBase(base_[0]), SoftmaxBase(base_[1])};
    REPRISE_UNROLL
    for (int i = 0; i < 4; ++i) s[i] = Exp2(s[i] - base[i % 2]);
    sum_[0] += s[0] + s[2];
    sum_[1] += s[1] + s[3];
    const uint32_t weights[2] = {TransposeMatrix(Pack2<Product>(s[0], s[1])),
                                 TransposeMatrix(Pack2<Product>(s[2], s[3]))};
    if constexpr (kFp8) {
      REPRISE_UNROLL
      for (int pair = 0; pair < kSteps / 2; ++pair) {
        uint32_t x[4];
        LoadMatrix4Transposed(x, PanelAddress(values, values_first_, pair));
        REPRISE_UNROLL
        for (int step = 0; step < 2; ++step) {
          const uint32_t v[4] = {E4m3Halves<0, 2>(x[step]), E4m3Halves<1, 3>(x[step]),
                                 E4m3Halves<0, 2>(x[2 + step]), E4m3Halves<1, 3>(x[2 + step])};
          MmaSync16x8x16<F16>(acc_[2 * pair + step], v, weights[0], weights[1]);
        }
      }
    } else {
      REPRISE_UNROLL
      for (int k = 0; k < kSteps; ++k) {
        uint32_t v[4];
        LoadMatrix4Transposed(v, PanelAddress(values, values_first_, k));
        MmaSync16x8x16<T>(acc_[k], v, weights[0], weights[1]);
      }
    }
  }

  // The heads' sums, complete in every lane. Call once, after the last chunk.
  REPRISE_FN void FinishSums() {
    REPRISE_UNROLL
    for (float& x : sum_) {
      REPRISE_UNROLL
      for (int mask = 4; mask < kWarpSize; mask <<= 1) x += ShuffleXor(x, mask);
    }
  }

  // Of head Head(i), i = 0, 1: what its weights are relative to, their sum, and the weighted sum of
  // V in dimensions 16 k + Dimension(h), h = 0, 1; not normalised.
  REPRISE_FN static int Head(int i) { return (Lane() & 3) * 2 + i; }
  REPRISE_FN static int Dimension(int h) {
    return kFp8 ? (Lane() >> 2) * 2 + h : (Lane() >> 2) + 8 * h;
  }
  // Of a chunk, of which a score is.
  REPRISE_FN static int Token(int h) { return (Lane() >> 2) + 8 * h; }
  REPRISE_FN float base(int i) const { return base_[i]; }
  REPRISE_FN float sum(int i) const { return sum_[i]; }
  REPRISE_FN float acc(int k, int h, int i) const { return acc_[k][2 * h + i]; }

 private:
  using Product = std::conditional_t<kFp8, F16, T>;

  // Tokens Token(h) of heads Head(i): s[2 h + i]. Even and odd steps are summed apart, so that
  // a product waits for the one before the last.
  REPRISE_FN void Score(uint32_t keys, float factor, float (&s)[4]) const {
    float odd[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    REPRISE_UNROLL
    for (float& x : s) x = 0.0f;
    if constexpr (kFp8) {
      REPRISE_UNROLL
      for (int pair = 0; pair < kSteps / 2; ++pair) {
        uint32_t x[4];
        LoadMatrix4(x, PanelAddress(keys, keys_first_, pair));
        REPRISE_UNROLL
        for (int step = 0; step < 2; ++step) {
          const int k = 2 * pair + step;
          const uint32_t a[4] = {E4m3Halves<0, 1>(x[2 * step]), E4m3Halves<0, 1>(x[2 * step + 1]),
                                 E4m3Halves<2, 3>(x[2 * step]), E4m3Halves<2, 3>(x[2 * step + 1])};
          MmaSync16x8x16<F16>(step == 0 ? s : odd, a, q_[k][0], q_[k][1]);
        }
      }
      REPRISE_UNROLL
      for (int i = 0; i < 4; ++i) s[i] = (s[i] + odd[i]) * (factor * query_worth_[i % 2]);
    } else {
      REPRISE_UNROLL
      for (int k = 0; k < kSteps; ++k) {
        uint32_t a[4];
        LoadMatrix4(a, PanelAddress(keys, keys_first_, k));
        MmaSync16x8x16<T>(k % 2 == 0 ? s : odd, a, q_[k][0], q_[k][1]);
      }
      REPRISE_UNROLL
      for (int i = 0; i < 4; ++i) s[i] = (s[i] + odd[i]) * factor;
    }
  }

  // Queries in bf16, as they were loaded, become f16; what that leaves to do is query_worth_.
  REPRISE_FN void ScaleQueries() {
    query_worth_[0] = query_worth_[1] = 1.0f;
    if constexpr (std::is_same_v<T, Bf16>) {
      float top = 0.0f;
      REPRISE_UNROLL
      for (int k = 0; k < kSteps; ++k) {
        REPRISE_UNROLL
        for (const uint32_t pair : q_[k])
          top = Max(top, Max(FloatOf(pair << 16 & 0x7fffffffu), FloatOf(pair & 0x7fff0000u)));
      }
      top = Max(top, ShuffleXor(top, 1));
      top = Max(top, ShuffleXor(top, 2));
      // Of f32: biased by 127. The largest becomes 2^14 or up to twice that.
      const uint32_t exponent = BitsOf(top) >> 23;
      const uint32_t bounded = exponent < 20 ? 20 : exponent;
      const float scale = FloatOf((268 - bounded) << 23), worth = FloatOf((bounded - 14) << 23);
      REPRISE_UNROLL
      for (int k = 0; k < kSteps; ++k) {
        REPRISE_UNROLL
        for (uint32_t& pair : q_[k])
          pair = Pack2<F16>(FloatOf(pair << 16) * scale, FloatOf(pair & 0xffff0000u) * scale);
      }
      REPRISE_UNROLL
      for (int i = 0; i < 2; ++i) query_worth_[i] = Shuffle(worth, Head(i) * 4);
    }
  }

  REPRISE_FN static void Hide(const Seen& seen, float (&s)[4]) {
    REPRISE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint32_t token = static_cast<uint32_t>(Token(i / 2));
      if (token < seen.begin || token >= seen.end) s[i] = -Infinity();
    }
  }

  // Raises the bases of the heads that need it to their largest scores so far. The other heads are
  // multiplied by one.
  REPRISE_FN void Raise(const float (&tops)[2]) {
    REPRISE_UNROLL
    for (int i = 0; i < 2; ++i) {
      float top = Max(tops[i], base_[i]);
      REPRISE_UNROLL
      for (int mask = 4; mask < kWarpSize; mask <<= 1) top = Max(top, ShuffleXor(top, mask));
      if (!(top > base_[i] + kBaseSlack)) top = base_[i];
      const float rescale = Exp2(base_[i] - SoftmaxBase(top));
      base_[i] = top;
      sum_[i] *= rescale;
      REPRISE_UNROLL
      for (int k = 0; k < kSteps; ++k) {
        acc_[k][i] *= rescale;
        acc_[k][2 + i] *= rescale;
      }
    }
  }

  // The lane's address for a load of step k: a panel holds four steps.
  REPRISE_FN static uint32_t PanelAddress(uint32_t tile, uint32_t first, int k) {
    constexpr uint32_t kPanelBytes = kBulkChunk * 128;
    return (tile + static_cast<uint32_t>(k / 4) * kPanelBytes + first) ^
           static_cast<uint32_t>(k % 4 * 32);
  }

  // Where the lane points a load of four 8x8 matrices of K (rows 0 to 7 and 8 to 15, then the next
  // eight columns) and, transposed, of V (columns first).
  uint32_t keys_first_, values_first_;
  uint32_t q_[kSteps][2];
  float query_worth_[2];  // over KV of 8 bits, of heads Head(i)
  float acc_[kSteps][4];
  float base_[2], sum_[2];
};

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_ATTENTION_TOKEN_SOFTMAX_H_
