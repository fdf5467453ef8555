// SPDX-License-Identifier: Apache-2.0
// Fragments over WMMA 16x16x16 (v_wmma_f32_16x16x16_bf16 and _f16), 32 lanes; the contract is in
// matrix.h. Lane l, g = l / 16, q = l % 16; both halves of the warp hold the same A and B:
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

inline constexpr int kLaneRows = 8;
inline constexpr int kRowLanes = 16;
inline constexpr int kColumnRun = 1;
inline constexpr bool kLaneHoldsPairs = false;
template <int N>
inline constexpr int kLaneColumns = 1;

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
struct MatrixD : MatrixAccumulator<8> {
  static_assert(N == 16);
};

// Swaps registers j and j ^ kBit.
template <int kBit, int kSize>
REPRISE_FN void SwapIf(uint32_t (&r)[kSize], bool swap) {
  REPRISE_UNROLL
  for (int j = 0; j < kSize; ++j) {
    if ((j & kBit) != 0) continue;
    const uint32_t low = r[j], high = r[j | kBit];
    r[j] = swap ? high : low;
    r[j | kBit] = swap ? low : high;
  }
}

template <typename T, int N>
REPRISE_FN void Multiply(MatrixD<N>& d, const MatrixA& a, const MatrixB<N>& b) {
  Wmma16x16x16<T>(d.v, a.r, b.r);
}

// Lane l needs all of row q: element k is packed register q / 4 (half q / 2 % 2) of lane
// 16 (q % 2) + k. In round r a lane takes k = r ^ (q / 4), so that whoever asks a lane in one round
// asks for the same register: 16 shuffles, and registers swapped by two bits of the lane around
// them.
template <typename T>
REPRISE_FN MatrixA ToOperand(const MatrixD<16>& d) {
  const int lane = Lane(), q = lane & 15, i = q >> 2;
  uint32_t own[4];  // own[j]: packed register j ^ (lane % 4)
  REPRISE_UNROLL
  for (int j = 0; j < 4; ++j) own[j] = Pack2<T>(d.v[2 * j], d.v[2 * j + 1]);
  SwapIf<1>(own, (lane & 1) != 0);
  SwapIf<2>(own, (lane & 2) != 0);

  MatrixA a;  // element k in round k ^ i
  const uint32_t low_first = (i & 1) != 0 ? 16 : 0, shift = (q & 2) != 0 ? 16 : 0;
  REPRISE_UNROLL
  for (int pair = 0; pair < 8; ++pair) {
    const int from = 16 * (q & 1) + 2 * pair;
    const uint32_t x = Shuffle(own[2 * pair % 4], from ^ i) >> shift & 0xffffu;
    const uint32_t y = Shuffle(own[(2 * pair + 1) % 4], (from + 1) ^ i) >> shift & 0xffffu;
    a.r[pair] = x << low_first | y << (16 - low_first);
  }
  SwapIf<1>(a.r, (i & 2) != 0);
  return a;
}

// What differs between lanes is computed once; the rest of an address is a constant.
template <int kChunks>
class TileReader {
 public:
  REPRISE_FN TileReader() {
    const uint32_t q = static_cast<uint32_t>(Lane()) & 15u;
    row_ = SwizzledOffset<kChunks>(q, 0);
    column_[0] = (q >> 3) * 16 + (q & 7u) * 2;
    column_[1] = column_[0] ^ 16u;
  }
  REPRISE_FN MatrixA A(uint32_t tile, int row0, int k) const {
    EndOfSchedule();
    return Row<MatrixA>(tile, row0, k);
  }
  template <int N>
  REPRISE_FN MatrixB<N> B(uint32_t tile, int row0, int k) const {
    return Row<MatrixB<N>>(tile, row0, k);
  }
  // Of the chunk 2n + q / 8 the lane gives the lowest bit alone, so the flip of its other bits is a
  // constant of the row.
  REPRISE_FN MatrixB<16> BTransposed(uint32_t tile, int row0, int n) const {
    if (n % 2 == 0) EndOfSchedule();
    const uint32_t base[2] = {Opaque(tile + column_[0]), Opaque(tile + column_[1])};
    MatrixB<16> b;
    REPRISE_UNROLL
    for (uint32_t k = 0; k < 16; ++k) {
      const uint32_t flip = SwizzledOffset<kChunks>(k, 0) / 16 - k * kChunks;
      const uint32_t constant = (static_cast<uint32_t>(row0) + k) * kChunks * 16 +
                                (2 * static_cast<uint32_t>(n) ^ (flip & ~1u)) * 16;
      const uint32_t x = LoadShared<uint16_t>(base[flip & 1u] + constant);
      b.r[k / 2] = k % 2 == 0 ? x : b.r[k / 2] | (x << 16);
    }
    return b;
  }

 private:
  // The lane's row, sixteen elements: two chunks. A step along the columns is an xor of the chunk's
  // bits that rows flip, and a sum above them.
  template <typename Fragment>
  REPRISE_FN Fragment Row(uint32_t tile, int row0, int k) const {
    constexpr uint32_t kFlips = kChunks == 4 ? 4 : 8;
    Fragment f;
    REPRISE_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t chunk = 2 * static_cast<uint32_t>(k) + half;
      const uint32_t constant =
          static_cast<uint32_t>(row0) * kChunks * 16 + chunk / kFlips * kFlips * 16;
      const Vec<uint32_t, 4> x =
          LoadShared<Vec<uint32_t, 4>>(Opaque(tile + (row_ ^ chunk % kFlips * 16)) + constant);
      REPRISE_UNROLL
      for (int i = 0; i < 4; ++i) f.r[half * 4 + i] = x.v[i];
    }
    return f;
  }

  uint32_t row_;        // row q, chunk 0
  uint32_t column_[2];  // column q of a row that flips an even chunk, an odd one
};

inline constexpr bool kFp8Interleaves = false;

template <int kChunks>
class Fp8TileReader {
 public:
  template <typename T>
  REPRISE_FN void B(uint32_t tile, int row0, int pair, MatrixB<16> (&b)[2]) const {
    const uint32_t q = static_cast<uint32_t>(Lane()) & 15u;
    REPRISE_UNROLL
    for (uint32_t s = 0; s < 2; ++s) {
      const Vec<uint32_t, 4> x = LoadShared<Vec<uint32_t, 4>>(
          tile + SwizzledOffset<kChunks>(static_cast<uint32_t>(row0) + q,
                                         2 * static_cast<uint32_t>(pair) + s));
      REPRISE_UNROLL
      for (int i = 0; i < 4; ++i) {
        b[s].r[2 * i] = HalvesAs<T>(E4m3Halves<0, 1>(x.v[i]));
        b[s].r[2 * i + 1] = HalvesAs<T>(E4m3Halves<2, 3>(x.v[i]));
      }
    }
  }
  template <typename T>
  REPRISE_FN void PackedA(uint32_t tile, int row0, int pair, MatrixA (&a)[2]) const {
    const uint32_t q = static_cast<uint32_t>(Lane()) & 15u;
    REPRISE_UNROLL
    for (uint32_t s = 0; s < 2; ++s) {
      const Vec<uint32_t, 4> x = LoadShared<Vec<uint32_t, 4>>(
          tile + SwizzledOffset<kChunks>(static_cast<uint32_t>(row0) + q,
                                         2 * static_cast<uint32_t>(pair) + s));
      REPRISE_UNROLL
      for (int i = 0; i < 4; ++i) UnpackHalves<T>(x.v[i], a[s].r[i], a[s].r[4 + i]);
    }
  }
  REPRISE_FN void BTransposed(uint32_t tile, int row0, int pair, MatrixB<16> (&b)[2]) const {
    const uint32_t q = static_cast<uint32_t>(Lane()) & 15u;
    REPRISE_UNROLL
    for (uint32_t s = 0; s < 2; ++s) {
      REPRISE_UNROLL
      for (uint32_t k = 0; k < 16; k += 2) {
        uint32_t x[2];
        REPRISE_UNROLL
        for (uint32_t j = 0; j < 2; ++j)
          x[j] = LoadShared<uint8_t>(tile +
                                     SwizzledOffset<kChunks>(static_cast<uint32_t>(row0) + k + j,
                                                             2 * static_cast<uint32_t>(pair) + s) +
                                     q);
        b[s].r[k / 2] = E4m3Halves<0, 1>(x[0] | x[1] << 8);
      }
    }
  }
};

// The lane's row of A.
inline constexpr int kFourBitRows = 1;
REPRISE_FN int FourBitRow(int) { return Lane() & 15; }

// The sixteen columns of the lane are of four neighbouring lanes of the layout.
class FourBitTile {
 public:
  REPRISE_FN void Load(uint32_t tile) {
    const uint32_t q = static_cast<uint32_t>(Lane()) & 15u;
    first_ = tile + (q & 7u) * 4 * 16;
    shift_ = (q >> 3) * 4;
  }
  template <typename T, typename W>
  REPRISE_FN MatrixA A(int step, const uint32_t (&zero)[kFourBitRows]) const {
    MatrixA a;
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t word =
          LoadShared<uint32_t>(first_ + i * 16 + static_cast<uint32_t>(step) * 4) >> shift_;
      a.r[i] = FourBitPair<T, W>(word, zero[0]);
      a.r[4 + i] = FourBitPair<T, W>(word >> 8, zero[0]);
    }
    return a;
  }

 private:
  uint32_t first_, shift_;
};

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_DEVICE_MATRIX_WMMA_H_
