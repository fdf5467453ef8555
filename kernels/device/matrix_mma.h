// SPDX-License-Identifier: Apache-2.0
// Fragments over mma.sync m16n8k16; the contract is in matrix.h. Lane l, g = l / 4, q = l % 4:
//
//   A  a[0] = A[g][2q..], a[1] = A[g + 8][2q..], a[2] = A[g][2q + 8..], a[3] = A[g + 8][2q + 8..]
//
//   B  b[0] = B[2q..][g], b[1] = B[2q + 8..][g]
//
//   D  d[0..1] = D[g][2q..], d[2..3] = D[g + 8][2q..]
//
// Two of 8 columns side by side make one of 16, and such a D, rounded, is an A. Source: PTX ISA,
// "Matrix Fragments for mma.m16n8k16 with floating point type".
#ifndef REPRISE_KERNELS_DEVICE_MATRIX_MMA_H_
#define REPRISE_KERNELS_DEVICE_MATRIX_MMA_H_

namespace reprise::kernels::REPRISE_DEVICE_NS {

inline constexpr int kLaneRows = 2;
inline constexpr int kRowLanes = 4;
inline constexpr int kColumnRun = 2;
inline constexpr bool kLaneHoldsPairs = true;
template <int N>
inline constexpr int kLaneColumns = N / 4;

REPRISE_FN int MatrixRow(int h) { return (Lane() >> 2) + 8 * h; }
REPRISE_FN int MatrixColumn(int j) { return j / 2 * 8 + (Lane() & 3) * 2 + j % 2; }
REPRISE_FN constexpr int At(int h, int j) { return j / 2 * 4 + 2 * h + j % 2; }

// Register i of a B has rows MatrixBRow(i) and the next of column MatrixBColumn(), of 8.
REPRISE_FN int MatrixBColumn() { return Lane() >> 2; }
REPRISE_FN int MatrixBRow(int i) { return (Lane() & 3) * 2 + 8 * i; }

struct MatrixA {
  uint32_t r[4];
};
template <int N>
struct MatrixB {
  uint32_t r[N / 4];
};
template <int N>
struct MatrixD : MatrixAccumulator<N / 2> {};

template <typename T, int N>
REPRISE_FN void Multiply(MatrixD<N>& d, const MatrixA& a, const MatrixB<N>& b) {
  REPRISE_UNROLL
  for (int n = 0; n < N / 8; ++n) MmaSync16x8x16<T>(d.v + 4 * n, a.r, b.r[2 * n], b.r[2 * n + 1]);
}

template <typename T>
REPRISE_FN MatrixA ToOperand(const MatrixD<16>& d) {
  return {{Pack2<T>(d.v[0], d.v[1]), Pack2<T>(d.v[2], d.v[3]), Pack2<T>(d.v[4], d.v[5]),
           Pack2<T>(d.v[6], d.v[7])}};
}

// A step along the columns is an xor of the whole address: tiles start at multiples of their row
// size, and steps leave the lowest bit of the chunk alone. (Offsets xored first and added to the
// tile would be loop invariants, and take registers that attention at head size 256 has not got.)
template <int kChunks>
class TileReader {
 public:
  REPRISE_FN TileReader() {
    const uint32_t lane = static_cast<uint32_t>(Lane());
    const uint32_t row = lane & 7u, second = (lane >> 3) & 1u, fourth = lane >> 4;
    rows_first_ = SwizzledOffset<kChunks>(row + 8 * second, fourth);
    columns_first_ = SwizzledOffset<kChunks>(row + 8 * fourth, second);
  }
  REPRISE_FN MatrixA A(uint32_t tile, int row0, int k) const {
    MatrixA a;
    LoadMatrix4(a.r, ((tile + rows_first_) ^ static_cast<uint32_t>(k * 32)) + RowBytes(row0));
    return a;
  }
  template <int N>
  REPRISE_FN MatrixB<N> B(uint32_t tile, int row0, int k) const {
    MatrixB<N> b;
    const uint32_t at = ((tile + columns_first_) ^ static_cast<uint32_t>(k * 32)) + RowBytes(row0);
    if constexpr (N == 16) {
      LoadMatrix4(b.r, at);
    } else {
      LoadMatrix2(b.r, at);
    }
    return b;
  }
  // B<8> of two steps, k, even, and k + 1, in one load. kRows: the tile has so many, 8 or a smaller
  // power of two, which the other columns repeat.
  template <int kRows>
  REPRISE_FN static void TwoB(uint32_t tile, int row0, int k, MatrixB<8>& first,
                              MatrixB<8>& second) {
    const uint32_t lane = static_cast<uint32_t>(Lane());
    static_assert(kRows <= 8 && (kRows & (kRows - 1)) == 0);
    const uint32_t at = tile + SwizzledOffset<kChunks>(lane & (kRows - 1u), lane >> 3);
    uint32_t r[4];
    LoadMatrix4(r, (at ^ static_cast<uint32_t>(k * 32)) + RowBytes(row0));
    first = {{r[0], r[1]}};
    second = {{r[2], r[3]}};
  }
  REPRISE_FN MatrixB<16> BTransposed(uint32_t tile, int row0, int n) const {
    MatrixB<16> b;
    LoadMatrix4Transposed(b.r,
                          ((tile + rows_first_) ^ static_cast<uint32_t>(n * 32)) + RowBytes(row0));
    return b;
  }

 private:
  REPRISE_FN static uint32_t RowBytes(int rows) {
    return static_cast<uint32_t>(rows) * kChunks * 16;
  }

  // Where the lane points a load of four 8x8 matrices, in the order (row half, column half):
  uint32_t rows_first_;     // 00 10 01 11
  uint32_t columns_first_;  // 00 01 10 11
};

inline constexpr bool kFp8Interleaves = true;

// A load of 16-bit elements brings a lane two neighbouring bytes of each. Of B those are four of a
// row, one fragment; transposed they are of two columns, one of even ones, one of odd ones.
template <int kChunks>
class Fp8TileReader {
 public:
  template <typename T>
  REPRISE_FN void B(uint32_t tile, int row0, int pair, MatrixB<16> (&b)[2]) const {
    const MatrixA x = reader_.A(tile, row0, pair);
    REPRISE_UNROLL
    for (int s = 0; s < 2; ++s) {
      REPRISE_UNROLL
      for (int i = 0; i < 2; ++i) {
        b[s].r[2 * i] = HalvesAs<T>(E4m3Halves<0, 1>(x.r[2 * s + i]));
        b[s].r[2 * i + 1] = HalvesAs<T>(E4m3Halves<2, 3>(x.r[2 * s + i]));
      }
    }
  }
  // The lane's word of a row has its columns 2q, 2q + 1, 2q + 8 and 2q + 9.
  template <typename T>
  REPRISE_FN void PackedA(uint32_t tile, int row0, int pair, MatrixA (&a)[2]) const {
    const MatrixA x = reader_.A(tile, row0, pair);
    REPRISE_UNROLL
    for (int s = 0; s < 2; ++s) {
      REPRISE_UNROLL
      for (int h = 0; h < 2; ++h) UnpackHalves<T>(x.r[2 * s + h], a[s].r[h], a[s].r[2 + h]);
    }
  }
  REPRISE_FN void BTransposed(uint32_t tile, int row0, int pair, MatrixB<16> (&b)[2]) const {
    const MatrixB<16> x = reader_.BTransposed(tile, row0, pair);
    REPRISE_UNROLL
    for (int s = 0; s < 2; ++s) {
      REPRISE_UNROLL
      for (int i = 0; i < 2; ++i) {
        b[s].r[i] = E4m3Halves<0, 2>(x.r[2 * s + i]);
        b[s].r[2 + i] = E4m3Halves<1, 3>(x.r[2 * s + i]);
      }
    }
  }

 private:
  TileReader<kChunks> reader_;
};

// The lane's rows of A, and of D.
inline constexpr int kFourBitRows = 2;
REPRISE_FN int FourBitRow(int i) { return (Lane() >> 2) + 8 * i; }

// A lane's own 16 bytes.
class FourBitTile {
 public:
  REPRISE_FN void Load(uint32_t tile) {
    words_ = LoadShared<Vec<uint32_t, 4>>(tile + static_cast<uint32_t>(Lane()) * 16);
  }
  template <typename T, typename W>
  REPRISE_FN MatrixA A(int step, const uint32_t (&zero)[kFourBitRows]) const {
    MatrixA a;
    FourBitPairs<T, W>(words_.v[step], zero, a.r);
    return a;
  }

 private:
  Vec<uint32_t, 4> words_;
};

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_DEVICE_MATRIX_MMA_H_
