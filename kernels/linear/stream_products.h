// SPDX-License-Identifier: Apache-2.0
// The products of linear_stream_body.h, of one warp: weights of a slot of the ring, of 16, 8 or 4
// bits, times tokens in registers.
#ifndef REPRISE_KERNELS_LINEAR_STREAM_PRODUCTS_H_
#define REPRISE_KERNELS_LINEAR_STREAM_PRODUCTS_H_

#include <type_traits>

#include "kernels/device/matrix.h"
#include "kernels/linear/stream_geometry.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// T, W, kTokens, kFine: those of StreamLinear.
template <typename T, typename W, int kTokens, bool kFine>
class StreamProducts {
 public:
  static constexpr bool kFp8 = std::is_same_v<W, E4m3>;
  static constexpr bool kInt4 = std::is_same_v<W, Int4>;
  static constexpr bool kScaled = kFp8 || kInt4;
  static constexpr int kBits = kElementBits<W>;
  static constexpr uint32_t kTileBytes = kPackedTileElements * kBits / 8;

  // least, of kFine: whether a scale is of kLeastScaleInputs; else it is of a tile's inputs.
  REPRISE_FN explicit StreamProducts(bool least) : least_(least) {}

  // Scales that so many tiles of K have, for one output.
  REPRISE_FN uint32_t NumScales(uint32_t tiles) const {
    if constexpr (!kFine) return (tiles + kTilesOfScale - 1) / kTilesOfScale;
    return least_ ? tiles * (kPackedTileInputs / kLeastScaleInputs) : tiles;
  }

  // d, or `scaled` where weights have scales, += the products of the tiles of half `of_slot` of a
  // slot that has so many tiles. ring: the slot's address in shared memory. slot_scales: its
  // scales.
  REPRISE_FN void MultiplyHalf(uint32_t ring, const float* slot_scales, int of_slot, int tiles,
                               const MatrixB<kTokens>* tokens, MatrixD<kTokens>& d,
                               MatrixD<kTokens>& scaled) const {
    const int first = of_slot * kStreamSlotTiles, left = tiles - first;
    const uint32_t weights = ring + static_cast<uint32_t>(first) * kTileBytes;
    const float* scales = nullptr;
    if constexpr (kScaled)
      scales = slot_scales + NumScales(static_cast<uint32_t>(first)) * kPackedTileOutputs;
    if constexpr (kInt4 && !kFine) {
      MultiplyInt4<kScaleInputs>(weights, scales, left, tokens, scaled);
    } else if constexpr (kInt4) {
      if (least_) {
        MultiplyInt4<kLeastScaleInputs>(weights, scales, left, tokens, scaled);
      } else {
        MultiplyInt4<kPackedTileInputs>(weights, scales, left, tokens, scaled);
      }
    } else if (left >= kStreamSlotTiles) {
      // Of a whole half what does not hang together runs side by side.
      MultiplyTiles<true>(weights, scales, left, tokens, d, scaled);
    } else {
      MultiplyTiles<false>(weights, scales, left, tokens, d, scaled);
    }
  }

 private:
  static constexpr int kTilesOfScale = kScaleInputs / kPackedTileInputs;  // but where kFine
  static constexpr int kTileSteps = kPackedTileInputs / 16;               // products of a tile
  static constexpr int kRowChunks = kPackedTileInputs / kPackedChunk;     // of 16 bytes, of a row

  // Of weights of 16 and 8 bits, half a part, of which `tiles` tiles are there.
  template <bool kWhole>
  REPRISE_FN void MultiplyTiles(uint32_t weights, const float* scales, int tiles,
                                const MatrixB<kTokens>* tokens, MatrixD<kTokens>& d,
                                MatrixD<kTokens>& scaled) const {
    const TileReader<kRowChunks> reader;
    REPRISE_UNROLL
    for (int t = 0; t < kStreamSlotTiles; ++t, tokens += kTileSteps) {
      if (!kWhole && t >= tiles) continue;
      if constexpr (kFp8) {
        if (t % kTilesOfScale == 0) d.Clear();
        MultiplyFp8(d, weights, t, tokens);
        if (t % kTilesOfScale == kTilesOfScale - 1 || (!kWhole && t == tiles - 1))
          Scale(d, scales + t / kTilesOfScale * kPackedTileOutputs, scaled);
      } else {
        REPRISE_UNROLL
        for (int i = 0; i < kTileSteps; ++i)
          Multiply<T>(d, reader.A(weights, t * kPackedTileOutputs, i), tokens[i]);
      }
    }
  }
  REPRISE_FN static void MultiplyFp8(MatrixD<kTokens>& d, uint32_t weights, int tile,
                                     const MatrixB<kTokens>* tokens) {
    const Fp8TileReader<kPackedTileInputs / 16> reader;
    REPRISE_UNROLL
    for (int pair = 0; pair < kTileSteps / 2; ++pair) {
      MatrixA a[2];
      reader.template PackedA<T>(weights, tile * kPackedTileOutputs, pair, a);
      Multiply<T>(d, a[0], tokens[2 * pair]);
      Multiply<T>(d, a[1], tokens[2 * pair + 1]);
    }
  }
  // The same of 4 bits, without a branch for tiles that are not there: whatever lies in their
  // place, their tokens are zero, and so are scales of which none is there. Two scales at a time,
  // in turns: a product need not wait for the one before it. Sums are those of one after the other.
  template <int kInputs>
  REPRISE_FN static void MultiplyInt4(uint32_t weights, const float* scales, int tiles,
                                      const MatrixB<kTokens>* tokens, MatrixD<kTokens>& to) {
    constexpr int kScaleSteps = kInputs / 16;
    constexpr int kPairTiles = 2 * kInputs / kPackedTileInputs;
    static_assert(kFourBitRows == kLaneRows);  // of A and of D
    REPRISE_UNROLL
    for (int tile = 0; tile < kStreamSlotTiles; tile += kPairTiles) {
      FourBitTile elements[kPairTiles];
      REPRISE_UNROLL
      for (int t = 0; t < kPairTiles; ++t)
        elements[t].Load(weights + static_cast<uint32_t>(tile + t) * kTileBytes);
      MatrixD<kTokens> d[2];
      uint32_t words[2][kLaneRows], zero[2][kLaneRows];
      REPRISE_UNROLL
      for (int p = 0; p < 2; ++p) {
        d[p].Clear();
        const int scale = tile * kPackedTileInputs / kInputs + p;
        const bool there = scale * kInputs < tiles * kPackedTileInputs;
        REPRISE_UNROLL
        for (int h = 0; h < kLaneRows; ++h) {
          words[p][h] = there ? BitsOf(scales[scale * kPackedTileOutputs + MatrixRow(h)]) : 0;
          zero[p][h] = Int4Zero<T>(words[p][h]);
        }
      }
      REPRISE_UNROLL
      for (int i = 0; i < kScaleSteps; ++i) {
        REPRISE_UNROLL
        for (int p = 0; p < 2; ++p) {
          const int step = p * kScaleSteps + i;
          Multiply<T>(d[p],
                      elements[step / kTileSteps].template A<T, Int4>(step % kTileSteps, zero[p]),
                      tokens[tile * kTileSteps + step]);
        }
      }
      REPRISE_UNROLL
      for (int p = 0; p < 2; ++p) {
        REPRISE_UNROLL
        for (int h = 0; h < kLaneRows; ++h) AddScaled(d[p], h, Int4Scale<T>(words[p][h]), to);
      }
    }
  }
  // to += d times the scales of its rows.
  REPRISE_FN static void Scale(const MatrixD<kTokens>& d, const float* scales,
                               MatrixD<kTokens>& to) {
    REPRISE_UNROLL
    for (int h = 0; h < kLaneRows; ++h)
      AddScaled(d, h, scales[MatrixRow(h)] * kPackedE4m3Worth, to);
  }
  // Of the lane's row h.
  REPRISE_FN static void AddScaled(const MatrixD<kTokens>& d, int h, float scale,
                                   MatrixD<kTokens>& to) {
    REPRISE_UNROLL
    for (int j = 0; j < kLaneColumns<kTokens>; ++j)
      to.v[At(h, j)] = MultiplyAdd(d.v[At(h, j)], scale, to.v[At(h, j)]);
  }

  const bool least_;
};

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_LINEAR_STREAM_PRODUCTS_H_
