// SPDX-License-Identifier: Apache-2.0
// The matrix instructions of three vendors' units, emulated: every lane gives its registers,
// matrices are put together by the published lane maps, and every lane computes its own elements,
// in double, rounded once. Written from the vendors' documents (which kernels/device/matrix_mma.h,
// matrix_mfma.h and matrix_wmma.h name), not from the fragments built on top.
#ifndef REPRISE_TESTS_EMULATOR_DEVICE_MATRIX_H_
#define REPRISE_TESTS_EMULATOR_DEVICE_MATRIX_H_

#include "kernels/device/thread.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// See kernels/device/hip/matrix.h.
inline uint32_t Opaque(uint32_t x) { return x; }
inline void EndOfSchedule() {}

// Element `i` of a lane's registers of 16-bit elements.
template <typename T>
double ElementOf(const std::byte* all, int lane, int i) {
  T x;
  std::memcpy(&x, all + static_cast<size_t>(lane) * emulator::kExchangeBytes + i * 2, sizeof(T));
  return ToFloat(x);
}

#if defined(REPRISE_EMULATE_MMA)

// Rows of matrices, as ldmatrix reads them: lane `8 * matrix + row` points at eight elements.
template <int kMatrices, bool kTransposed>
void LoadMatrices(uint32_t* r, uint32_t shared) {
  const std::byte* all = emulator::Exchange(&shared, sizeof(shared));
  for (int m = 0; m < kMatrices; ++m) {
    uint16_t pair[2];
    for (int e = 0; e < 2; ++e) {
      const int across = Lane() % 4 * 2 + e, along = Lane() / 4;
      const int row = kTransposed ? across : along, column = kTransposed ? along : across;
      uint32_t address;
      std::memcpy(&address, all + static_cast<size_t>(8 * m + row) * emulator::kExchangeBytes, 4);
      pair[e] = LoadShared<uint16_t>(address + static_cast<uint32_t>(column) * 2);
    }
    r[m] = static_cast<uint32_t>(pair[0]) | (static_cast<uint32_t>(pair[1]) << 16);
  }
}
inline void LoadMatrix4(uint32_t (&r)[4], uint32_t shared) { LoadMatrices<4, false>(r, shared); }
inline void LoadMatrix4Transposed(uint32_t (&r)[4], uint32_t shared) {
  LoadMatrices<4, true>(r, shared);
}
inline void LoadMatrix2(uint32_t (&r)[2], uint32_t shared) { LoadMatrices<2, false>(r, shared); }

// m16n8k16. Registers as exchanged: a[0..3], b0, b1, that is elements 0..7 of A and 8..11 of B.
template <typename T>
void MmaSync16x8x16(float* d, const uint32_t* a, uint32_t b0, uint32_t b1) {
  const uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
  const std::byte* all = emulator::Exchange(mine, sizeof(mine));
  // Row i, column k of A: lane (i % 8) * 4 + (k % 8) / 2, element 2 * (i / 8) + 4 * (k / 8) + k
  // % 2.
  const auto at_a = [&](int i, int k) {
    return ElementOf<T>(all, i % 8 * 4 + k % 8 / 2, 2 * (i / 8) + 4 * (k / 8) + k % 2);
  };
  // Row k, column j of B: lane j * 4 + (k % 8) / 2, element 2 * (k / 8) + k % 2.
  const auto at_b = [&](int k, int j) {
    return ElementOf<T>(all, j * 4 + k % 8 / 2, 8 + 2 * (k / 8) + k % 2);
  };
  for (int e = 0; e < 4; ++e) {
    const int i = Lane() / 4 + 8 * (e / 2), j = Lane() % 4 * 2 + e % 2;
    double sum = d[e];
    for (int k = 0; k < 16; ++k) sum += at_a(i, k) * at_b(k, j);
    d[e] = static_cast<float>(sum);
  }
}

#elif defined(REPRISE_EMULATE_MFMA)

// 16x16x16, 64 lanes. Registers as exchanged: a[0..1], b[0..1].
template <typename T>
void Mfma16x16x16(float* d, const uint32_t* a, const uint32_t* b) {
  const uint32_t mine[4] = {a[0], a[1], b[0], b[1]};
  const std::byte* all = emulator::Exchange(mine, sizeof(mine));
  const int j = Lane() % 16;
  for (int e = 0; e < 4; ++e) {
    const int i = Lane() / 16 * 4 + e;
    double sum = d[e];
    // k lies in lane group k / 4, element k % 4, of both operands.
    for (int k = 0; k < 16; ++k)
      sum +=
          ElementOf<T>(all, k / 4 * 16 + i, k % 4) * ElementOf<T>(all, k / 4 * 16 + j, 4 + k % 4);
    d[e] = static_cast<float>(sum);
  }
}

#else

// 16x16x16, 32 lanes. Registers as exchanged: a[0..7], then b[0..7]. The unit reads A and B of both
// halves of the warp and wants them equal; which half it takes for what is not promised, so each
// element here takes A from its own half and B from the other.
template <typename T>
void Wmma16x16x16(float* d, const uint32_t* a, const uint32_t* b) {
  uint32_t mine[16];
  for (int i = 0; i < 8; ++i) {
    mine[i] = a[i];
    mine[8 + i] = b[i];
  }
  static_assert(sizeof(mine) <= emulator::kExchangeBytes);
  const std::byte* all = emulator::Exchange(mine, sizeof(mine));
  const int j = Lane() % 16, half = Lane() / 16;
  for (int e = 0; e < 8; ++e) {
    const int i = 2 * e + half;
    double sum = d[e];
    for (int k = 0; k < 16; ++k)
      sum += ElementOf<T>(all, half * 16 + i, k) * ElementOf<T>(all, (1 - half) * 16 + j, 16 + k);
    d[e] = static_cast<float>(sum);
  }
}

#endif

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_TESTS_EMULATOR_DEVICE_MATRIX_H_
