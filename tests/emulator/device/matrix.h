// SPDX-License-Identifier: Apache-2.0
// The matrix instructions of three vendors' units, emulated: every lane gives its registers and
// computes its own elements (tests/emulator/matrix_unit.h).
#ifndef REPRISE_TESTS_EMULATOR_DEVICE_MATRIX_H_
#define REPRISE_TESTS_EMULATOR_DEVICE_MATRIX_H_

#include <type_traits>

#include "kernels/device/thread.h"
#include "tests/emulator/matrix_unit.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

// See kernels/device/hip/matrix.h.
inline uint32_t Opaque(uint32_t x) { return x; }
inline void EndOfSchedule() {}

template <typename T>
constexpr bool kIsBf16 = std::is_same_v<T, Bf16>;

#if defined(REPRISE_EMULATE_MMA)

// Rows of matrices, as ldmatrix reads them: lane `8 * matrix + row` points at eight elements. They
// are read in pairs, of which a transposed matrix takes one: the row is read whole anyway, and the
// checks of two bytes cost several times those of a word.
template <int kMatrices, bool kTransposed>
void LoadMatrices(uint32_t* r, uint32_t shared) {
  const std::byte* all = emulator::Exchange(&shared, sizeof(shared));
  // The word of row `row` that holds element `column`.
  const auto load = [all](int m, int row, int column) {
    uint32_t address;
    std::memcpy(&address, all + static_cast<size_t>(8 * m + row) * emulator::kExchangeBytes, 4);
    return LoadShared<uint32_t>(address + static_cast<uint32_t>(column / 2) * 4);
  };
  const int across = Lane() % 4 * 2, along = Lane() / 4;
  for (int m = 0; m < kMatrices; ++m) {
    if constexpr (kTransposed) {
      const int shift = along % 2 * 16;
      r[m] = (load(m, across, along) >> shift & 0xffffu) | load(m, across + 1, along) >> shift
                                                                                             << 16;
    } else {
      r[m] = load(m, along, across);
    }
  }
}
inline void LoadMatrix4(uint32_t (&r)[4], uint32_t shared) { LoadMatrices<4, false>(r, shared); }
inline void LoadMatrix4Transposed(uint32_t (&r)[4], uint32_t shared) {
  LoadMatrices<4, true>(r, shared);
}
inline void LoadMatrix2(uint32_t (&r)[2], uint32_t shared) { LoadMatrices<2, false>(r, shared); }

inline uint32_t TransposeMatrix(uint32_t x) {
  const std::byte* all = emulator::Exchange(&x, sizeof(x));
  uint16_t pair[2];
  for (int e = 0; e < 2; ++e) {
    const int row = Lane() % 4 * 2 + e, column = Lane() / 4;
    const size_t lane = static_cast<size_t>(row) * 4 + static_cast<size_t>(column) / 2;
    std::memcpy(&pair[e], all + lane * emulator::kExchangeBytes + column % 2 * 2, 2);
  }
  return static_cast<uint32_t>(pair[0]) | (static_cast<uint32_t>(pair[1]) << 16);
}

// m16n8k16. Registers as exchanged: a[0..3], b0, b1, that is elements 0..7 of A and 8..11 of B.
template <typename T>
void MmaSync16x8x16(float* d, const uint32_t* a, uint32_t b0, uint32_t b1) {
  const uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
  const std::byte* all = emulator::Exchange(mine, sizeof(mine));
  emulator::MultiplyMma(kIsBf16<T>, all, Lane(), d);
}

#elif defined(REPRISE_EMULATE_MFMA)

// 16x16x16, 64 lanes. Registers as exchanged: a[0..1], b[0..1].
template <typename T>
void Mfma16x16x16(float* d, const uint32_t* a, const uint32_t* b) {
  const uint32_t mine[4] = {a[0], a[1], b[0], b[1]};
  const std::byte* all = emulator::Exchange(mine, sizeof(mine));
  emulator::MultiplyMfma(kIsBf16<T>, all, Lane(), d);
}

#else

// 16x16x16, 32 lanes. Registers as exchanged: a[0..7], then b[0..7].
template <typename T>
void Wmma16x16x16(float* d, const uint32_t* a, const uint32_t* b) {
  uint32_t mine[16];
  for (int i = 0; i < 8; ++i) {
    mine[i] = a[i];
    mine[8 + i] = b[i];
  }
  static_assert(sizeof(mine) <= emulator::kExchangeBytes);
  const std::byte* all = emulator::Exchange(mine, sizeof(mine));
  emulator::MultiplyWmma(kIsBf16<T>, all, Lane(), d);
}

#endif

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_TESTS_EMULATOR_DEVICE_MATRIX_H_
