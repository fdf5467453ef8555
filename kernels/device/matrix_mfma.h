// SPDX-License-Identifier: Apache-2.0
// Fragments over MFMA 16x16x16 (v_mfma_f32_16x16x16_bf16_1k and _f16), 64 lanes; the contract is in
// matrix.h. Lane l, g = l / 16, q = l % 16:
//
//   A  four elements A[q][4g ..]
//
//   B  four elements B[4g ..][q]
//
//   D  d[i] = D[4g + i][q]
//
// Source: AMD, "CDNA2 Instruction Set Architecture", and its matrix instruction calculator.
#ifndef REPRISE_KERNELS_DEVICE_MATRIX_MFMA_H_
#define REPRISE_KERNELS_DEVICE_MATRIX_MFMA_H_

namespace reprise::kernels::REPRISE_DEVICE_NS {

inline constexpr int kLaneRows = 4;
inline constexpr int kRowLanes = 16;
inline constexpr int kColumnRun = 1;
inline constexpr bool kLaneHoldsPairs = false;
template <int N>
inline constexpr int kLaneColumns = 1;

REPRISE_FN int MatrixRow(int h) { return (Lane() >> 4) * 4 + h; }
REPRISE_FN int MatrixColumn(int) { return Lane() & 15; }
REPRISE_FN constexpr int At(int h, int) { return h; }

struct MatrixA {
  uint32_t r[2];
};
template <int N>
struct MatrixB {
  static_assert(N == 16);
  uint32_t r[2];
};
template <int N>
struct MatrixD : MatrixAccumulator<4> {
  static_assert(N == 16);
};

template <typename T, int N>
REPRISE_FN void Multiply(MatrixD<N>& d, const MatrixA& a, const MatrixB<N>& b) {
  Mfma16x16x16<T>(d.v, a.r, b.r);
}

// Lane l needs P[q][4g + j], which lane 16 (q / 4) + 4g + j holds as its element q % 4.
template <typename T>
REPRISE_FN MatrixA ToOperand(const MatrixD<16>& d) {
  const int q = Lane() & 15, g = Lane() >> 4;
  const uint32_t low = Pack2<T>(d.v[0], d.v[1]), high = Pack2<T>(d.v[2], d.v[3]);
  uint32_t element[4];
  REPRISE_UNROLL
  for (int j = 0; j < 4; ++j) {
    const int from = 16 * (q >> 2) + 4 * g + j;
    const uint32_t x = Shuffle(low, from), y = Shuffle(high, from);
    element[j] = (((q & 2) != 0 ? y : x) >> ((q & 1) * 16)) & 0xffffu;
  }
  return {{element[0] | (element[1] << 16), element[2] | (element[3] << 16)}};
}

template <int kChunks>
class TileReader {
 public:
  REPRISE_FN TileReader() {
    const uint32_t q = static_cast<uint32_t>(Lane()) & 15u, g = static_cast<uint32_t>(Lane()) >> 4;
    first_ = SwizzledOffset<kChunks>(q, g >> 1) + (g & 1u) * 8;
  }
  REPRISE_FN MatrixA A(uint32_t tile, int row0, int k) const {
    return LoadShared<MatrixA>(RowAt(tile, row0, k));
  }
  template <int N>
  REPRISE_FN MatrixB<N> B(uint32_t tile, int row0, int k) const {
    return LoadShared<MatrixB<N>>(RowAt(tile, row0, k));
  }
  REPRISE_FN MatrixB<16> BTransposed(uint32_t tile, int row0, int n) const {
    const uint32_t q = static_cast<uint32_t>(Lane()) & 15u, g = static_cast<uint32_t>(Lane()) >> 4;
    uint32_t x[4];
    REPRISE_UNROLL
    for (uint32_t j = 0; j < 4; ++j)
      x[j] = LoadShared<uint16_t>(tile +
                                  SwizzledOffset<kChunks>(static_cast<uint32_t>(row0) + 4 * g + j,
                                                          2 * static_cast<uint32_t>(n) + (q >> 3)) +
                                  (q & 7u) * 2);
    return {{x[0] | (x[1] << 16), x[2] | (x[3] << 16)}};
  }

 private:
  // A step along the columns is an xor: steps leave the lowest bit of the chunk alone.
  REPRISE_FN uint32_t RowAt(uint32_t tile, int row0, int k) const {
    return tile + (first_ ^ static_cast<uint32_t>(k * 32)) +
           static_cast<uint32_t>(row0) * kChunks * 16;
  }

  uint32_t first_;  // the lane's 8 bytes in the first 16 rows x 16 columns
};

inline constexpr bool kFp8Interleaves = false;

template <int kChunks>
class Fp8TileReader {
 public:
  template <typename T>
  REPRISE_FN void B(uint32_t tile, int row0, int pair, MatrixB<16> (&b)[2]) const {
    const uint32_t q = static_cast<uint32_t>(Lane()) & 15u, g = static_cast<uint32_t>(Lane()) >> 4;
    REPRISE_UNROLL
    for (uint32_t s = 0; s < 2; ++s) {
      const uint32_t x =
          LoadShared<uint32_t>(tile +
                               SwizzledOffset<kChunks>(static_cast<uint32_t>(row0) + q,
                                                       2 * static_cast<uint32_t>(pair) + s) +
                               4 * g);
      b[s].r[0] = HalvesAs<T>(E4m3Halves<0, 1>(x));
      b[s].r[1] = HalvesAs<T>(E4m3Halves<2, 3>(x));
    }
  }
  // Columns 4g .. of the lane are of two neighbouring words: the first pairs of the first eight
  // columns, the second pairs of the others.
  template <typename T>
  REPRISE_FN void PackedA(uint32_t tile, int row0, int pair, MatrixA (&a)[2]) const {
    const uint32_t q = static_cast<uint32_t>(Lane()) & 15u, g = static_cast<uint32_t>(Lane()) >> 4;
    REPRISE_UNROLL
    for (uint32_t s = 0; s < 2; ++s) {
      const auto words = LoadShared<Vec<uint32_t, 2>>(
          tile +
          SwizzledOffset<kChunks>(static_cast<uint32_t>(row0) + q,
                                  2 * static_cast<uint32_t>(pair) + s) +
          8 * (g & 1u));
      REPRISE_UNROLL
      for (int i = 0; i < 2; ++i)
        a[s].r[i] = PackedHalvesAs<T>(g < 2 ? PackedOnes(words.v[i]) : PackedTwos(words.v[i]));
    }
  }
  REPRISE_FN void BTransposed(uint32_t tile, int row0, int pair, MatrixB<16> (&b)[2]) const {
    const uint32_t q = static_cast<uint32_t>(Lane()) & 15u, g = static_cast<uint32_t>(Lane()) >> 4;
    REPRISE_UNROLL
    for (uint32_t s = 0; s < 2; ++s) {
      uint32_t x = 0;
      REPRISE_UNROLL
      for (uint32_t j = 0; j < 4; ++j)
        x |= static_cast<uint32_t>(LoadShared<uint8_t>(
                 tile +
                 SwizzledOffset<kChunks>(static_cast<uint32_t>(row0) + 4 * g + j,
                                         2 * static_cast<uint32_t>(pair) + s) +
                 q))
             << (8 * j);
      b[s].r[0] = E4m3Halves<0, 1>(x);
      b[s].r[1] = E4m3Halves<2, 3>(x);
    }
  }
};

// The lane's row of A.
inline constexpr int kFourBitRows = 1;
REPRISE_FN int FourBitRow(int) { return Lane() & 15; }

// Columns 4g .. of the lane are of two neighbouring lanes of the layout.
class FourBitTile {
 public:
  REPRISE_FN void Load(uint32_t tile) {
    const uint32_t q = static_cast<uint32_t>(Lane()) & 15u, g = static_cast<uint32_t>(Lane()) >> 4;
    first_ = tile + ((q & 7u) * 4 + (g & 1u) * 2) * 16;
    shift_ = (q >> 3) * 4 + (g >> 1) * 8;
  }
  template <typename T, typename W>
  REPRISE_FN MatrixA A(int step, const uint32_t (&zero)[kFourBitRows]) const {
    MatrixA a;
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t word = LoadShared<uint32_t>(first_ + i * 16 + static_cast<uint32_t>(step) * 4);
      a.r[i] = FourBitPair<T, W>(word >> shift_, zero[0]);
    }
    return a;
  }

 private:
  uint32_t first_, shift_;
};

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_DEVICE_MATRIX_MFMA_H_
