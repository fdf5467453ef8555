// SPDX-License-Identifier: Apache-2.0
// Fragments over WMMA 16x16x16 (v_wmma_f32_16x16x16_bf16 and _f16), 32 lanes; the contract is in
// matrix.h. Lane l, g = l / 16, q = l % 16; both halves of the wave hold the same A and B:
//
//   A  sixteen elements A[q][0 ..]
//
//   B  sixteen elements B[0 ..][q]
//
//   D  d[i] = D[2i + g][q]
//
// Source: AMD, "RDNA3 Instruction Set Architecture", and its matrix instruction calculator.
#ifndef REPRISE_KERNELS_DEVICE_MATRIX_WMMA_H_
#define REPRISE_KERNELS_DEVICE_MATRIX_WMMA_H_

namespace reprise::kernels::REPRISE_DEVICE_NS {

inline constexpr int kRowSlots = 8;
inline constexpr int kRowLanes = 16;
inline constexpr int kColumnRun = 1;
template <int N>
inline constexpr int kSlotColumns = 1;

REPRISE_FN int MatrixRow(int h) { return 2 * h + (Lane() >> 4); }
REPRISE_FN int MatrixColumn(int) { return Lane() & 15; }
REPRISE_FN constexpr int At(int h, int) { return h; }

struct MatrixA {
  uint32_t r[8];
};
template <int N>
struct MatrixB {
  static_assert(N == 16);
  uint32_t r[8];
};
template <int N>
struct MatrixD {
  static_assert(N == 16);
  static constexpr int kSize = 8;
  float v[kSize];
  REPRISE_FN void Clear() {
    REPRISE_UNROLL
    for (int i = 0; i < kSize; ++i) v[i] = 0.0f;
  }
};

template <typename T, int N>
REPRISE_FN void Multiply(MatrixD<N>& d, const MatrixA& a, const MatrixB<N>& b) {
  Wmma16x16x16<T>(d.v, a.r, b.r);
}

// Lane l needs all of row q, whose column k lane 16 (q % 2) + k holds as its element q / 2.
template <typename T>
REPRISE_FN MatrixA ToOperand(const MatrixD<16>& d) {
  const int q = Lane() & 15;
  uint32_t packed[4];
  REPRISE_UNROLL
  for (int i = 0; i < 4; ++i) packed[i] = Pack2<T>(d.v[2 * i], d.v[2 * i + 1]);
  MatrixA a;
  REPRISE_UNROLL
  for (int k = 0; k < 16; ++k) {
    const int from = 16 * (q & 1) + k;
    uint32_t x = 0;
    REPRISE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const uint32_t y = Shuffle(packed[i], from);
      if (q >> 2 == i) x = y;
    }
    x = (x >> (((q >> 1) & 1) * 16)) & 0xffffu;
    a.r[k / 2] = k % 2 == 0 ? x : a.r[k / 2] | (x << 16);
  }
  return a;
}

template <int kChunks>
class TileReader {
 public:
  REPRISE_FN TileReader() {}
  REPRISE_FN MatrixA A(uint32_t tile, int row0, int k) const { return Row<MatrixA>(tile, row0, k); }
  template <int N>
  REPRISE_FN MatrixB<N> B(uint32_t tile, int row0, int k) const {
    return Row<MatrixB<N>>(tile, row0, k);
  }
  REPRISE_FN MatrixB<16> BTransposed(uint32_t tile, int row0, int n) const {
    const uint32_t q = static_cast<uint32_t>(Lane()) & 15u;
    MatrixB<16> b;
    REPRISE_UNROLL
    for (uint32_t k = 0; k < 16; ++k) {
      const uint32_t x =
          LoadShared<uint16_t>(tile +
                               SwizzledOffset<kChunks>(static_cast<uint32_t>(row0) + k,
                                                       2 * static_cast<uint32_t>(n) + (q >> 3)) +
                               (q & 7u) * 2);
      b.r[k / 2] = k % 2 == 0 ? x : b.r[k / 2] | (x << 16);
    }
    return b;
  }

 private:
  // The lane's row, sixteen elements: two chunks.
  template <typename Fragment>
  REPRISE_FN static Fragment Row(uint32_t tile, int row0, int k) {
    const uint32_t row = static_cast<uint32_t>(row0) + (static_cast<uint32_t>(Lane()) & 15u);
    Fragment f;
    REPRISE_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      const Vec<uint32_t, 4> x = LoadShared<Vec<uint32_t, 4>>(
          tile + SwizzledOffset<kChunks>(row, 2 * static_cast<uint32_t>(k) + half));
      REPRISE_UNROLL
      for (int i = 0; i < 4; ++i) f.r[half * 4 + i] = x.v[i];
    }
    return f;
  }
};

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_DEVICE_MATRIX_WMMA_H_
