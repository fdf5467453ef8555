// SPDX-License-Identifier: Apache-2.0
#include "tests/emulator/matrix_unit.h"

#include <cstdint>
#include <cstring>

#include "runtime/float_convert.h"
#include "tests/emulator/kernel_interface.h"

namespace reprise::emulator {
namespace {

constexpr int kDepth = 16;

// Sums of two elements of a result, side by side: that is twice as fast as one by one, and what is
// added up in which order is the same.
using Two [[gnu::vector_size(16)]] = double;

uint32_t WordAt(const std::byte* at) {
  uint32_t word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}
// Elements 2 * i and 2 * i + 1 of a lane's registers.
uint32_t WordOf(const std::byte* all, int lane, int i) {
  return WordAt(all + static_cast<size_t>(lane) * kExchangeBytes + i * 4);
}
template <bool kBf16>
double ValueOf(uint16_t bits) {
  return double{kBf16 ? runtime::Bf16ToFloat(bits) : runtime::F16ToFloat(bits)};
}
template <bool kBf16>
double Lower(uint32_t word) {
  return ValueOf<kBf16>(static_cast<uint16_t>(word));
}
template <bool kBf16>
double Upper(uint32_t word) {
  return ValueOf<kBf16>(static_cast<uint16_t>(word >> 16));
}

// Two neighbours of a row times those of two columns, or of a column times those of two rows.
template <bool kBf16>
void AddProducts(uint32_t one, uint32_t first, uint32_t second, Two& sum) {
  sum += Lower<kBf16>(one) * Two{Lower<kBf16>(first), Lower<kBf16>(second)};
  sum += Upper<kBf16>(one) * Two{Upper<kBf16>(first), Upper<kBf16>(second)};
}

template <bool kBf16>
void Mma(const std::byte* all, int lane, float* d) {
  // Of rows lane / 4 and 8 further, in columns lane % 4 * 2 and the next.
  Two upper = {d[0], d[1]}, lower = {d[2], d[3]};
  const int row = lane / 4 * 4, column = lane % 4 * 8;
  for (int k = 0; k < kDepth; k += 2) {
    const int of_lane = k % 8 / 2, half = k / 8;
    // Row i, column k of A: lane (i % 8) * 4 + (k % 8) / 2, element 2 * (i / 8) + 4 * (k / 8) + k
    // % 2. Row k, column j of B: lane j * 4 + (k % 8) / 2, element 8 + 2 * (k / 8) + k % 2.
    const uint32_t first = WordOf(all, column + of_lane, 4 + half);
    const uint32_t second = WordOf(all, column + 4 + of_lane, 4 + half);
    AddProducts<kBf16>(WordOf(all, row + of_lane, 2 * half), first, second, upper);
    AddProducts<kBf16>(WordOf(all, row + of_lane, 1 + 2 * half), first, second, lower);
  }
  for (int e = 0; e < 2; ++e) {
    d[e] = static_cast<float>(upper[e]);
    d[2 + e] = static_cast<float>(lower[e]);
  }
}

template <bool kBf16>
void Mfma(const std::byte* all, int lane, float* d) {
  Two sums[2] = {{d[0], d[1]}, {d[2], d[3]}};
  for (int k = 0; k < kDepth; k += 2) {
    // k lies in lane group k / 4, element k % 4, of both operands.
    const int group = k / 4 * 16, word = k % 4 / 2;
    const uint32_t column = WordOf(all, group + lane % 16, 2 + word);
    for (int e = 0; e < 4; e += 2) {
      const int row = group + lane / 16 * 4 + e;
      AddProducts<kBf16>(column, WordOf(all, row, word), WordOf(all, row + 1, word), sums[e / 2]);
    }
  }
  for (int e = 0; e < 4; ++e) d[e] = static_cast<float>(sums[e / 2][e % 2]);
}

template <bool kBf16>
void Wmma(const std::byte* all, int lane, float* d) {
  const int half = lane / 16;
  Two sums[4];
  for (int e = 0; e < 8; e += 2) sums[e / 2] = Two{d[e], d[e + 1]};
  for (int word = 0; word < kDepth / 2; ++word) {
    const uint32_t column = WordOf(all, (1 - half) * 16 + lane % 16, 8 + word);
    for (int e = 0; e < 8; e += 2) {
      const int row = half * 16 + 2 * e + half;
      AddProducts<kBf16>(column, WordOf(all, row, word), WordOf(all, row + 2, word), sums[e / 2]);
    }
  }
  for (int e = 0; e < 8; ++e) d[e] = static_cast<float>(sums[e / 2][e % 2]);
}

}  // namespace

void MultiplyMma(bool bf16, const std::byte* all, int lane, float* d) {
  bf16 ? Mma<true>(all, lane, d) : Mma<false>(all, lane, d);
}

void MultiplyMfma(bool bf16, const std::byte* all, int lane, float* d) {
  bf16 ? Mfma<true>(all, lane, d) : Mfma<false>(all, lane, d);
}

void MultiplyWmma(bool bf16, const std::byte* all, int lane, float* d) {
  bf16 ? Wmma<true>(all, lane, d) : Wmma<false>(all, lane, d);
}

void TakeRowsOfA(const std::byte* all, int lane, GroupOperands& operands) {
  for (int h = 0; h < 2; ++h) {
    for (int k = 0; k < kDepth; ++k) {
      // As in Mma.
      const size_t from = static_cast<size_t>(lane / 4 * 4 + k % 8 / 2) * kExchangeBytes;
      std::memcpy(&operands.rows[h][k], all + from + (2 * h + 4 * (k / 8) + k % 2) * 2, 2);
    }
  }
}

namespace {

// Of panels by rows alone: twice as many elements, of a byte each.
void MultiplyE4m3(const GroupOperands& o, int lane, float* d) {
  constexpr int kElements = 2 * kDepth;
  const auto load = [](const std::byte* panel, int row, int first_chunk, double* to) {
    for (int k = 0; k < kElements; ++k) {
      const int chunk = (first_chunk + k / 16) ^ (row % 8);
      to[k] = double{
          runtime::E4m3ToFloat(std::to_integer<uint8_t>(panel[row * 128 + chunk * 16 + k % 16]))};
    }
  };
  double rows[2][kElements], columns[2][kElements];
  for (int h = 0; h < 2; ++h) load(o.a, lane / 4 + 8 * h, o.a_chunk, rows[h]);
  for (int n = 0; n < o.columns / 8; ++n) {
    for (int e = 0; e < 2; ++e) load(o.b, n * 8 + lane % 4 * 2 + e, o.b_chunk, columns[e]);
    for (int e = 0; e < 4; ++e) {
      double sum = o.add ? double{d[n * 4 + e]} : 0.0;
      for (int k = 0; k < kElements; ++k) sum += rows[e / 2][k] * columns[e % 2][k];
      d[n * 4 + e] = static_cast<float>(sum);
    }
  }
}

// Elements k and k + 1 of a row of 128 bytes, k even.
uint32_t WordOfRow(const std::byte* panel, int row, int k) {
  const int chunk = (k / 8) ^ (row % 8);
  return WordAt(panel + row * 128 + chunk * 16 + k % 8 * 2);
}

template <bool kBf16>
void Multiply16(const GroupOperands& o, int lane, float* d) {
  double rows[2][kDepth];
  for (int h = 0; h < 2; ++h) {
    for (int k = 0; k < kDepth; k += 2) {
      const uint32_t word = o.a_in_registers
                                ? uint32_t{o.rows[h][k]} | uint32_t{o.rows[h][k + 1]} << 16
                                : WordOfRow(o.a, lane / 4 + 8 * h, o.a_chunk * 8 + k);
      rows[h][k] = Lower<kBf16>(word);
      rows[h][k + 1] = Upper<kBf16>(word);
    }
  }
  for (int n = 0; n < o.columns / 8; ++n, d += 4) {
    const int j = n * 8 + lane % 4 * 2;  // and the next
    const std::byte* const panel = o.b + static_cast<size_t>(j / 64) * o.panel_bytes;
    Two columns[kDepth];
    for (int k = 0; k < kDepth; k += 2) {
      if (o.by_rows) {
        const uint32_t first = WordOfRow(o.b, j, o.b_chunk * 8 + k);
        const uint32_t second = WordOfRow(o.b, j + 1, o.b_chunk * 8 + k);
        columns[k] = Two{Lower<kBf16>(first), Lower<kBf16>(second)};
        columns[k + 1] = Two{Upper<kBf16>(first), Upper<kBf16>(second)};
        continue;
      }
      for (int i = k; i < k + 2; ++i) {
        const uint32_t both = WordOfRow(panel, i, j % 64);
        columns[i] = Two{Lower<kBf16>(both), Upper<kBf16>(both)};
      }
    }
    for (int h = 0; h < 2; ++h) {
      Two sum = {};
      if (o.add) sum = Two{d[2 * h], d[2 * h + 1]};
      for (int k = 0; k < kDepth; ++k) sum += rows[h][k] * columns[k];
      for (int e = 0; e < 2; ++e) d[2 * h + e] = static_cast<float>(sum[e]);
    }
  }
}

}  // namespace

void MultiplyGroup(const GroupOperands& o, int lane, float* d) {
  switch (o.element) {
    case GroupElement::kE4m3:
      return MultiplyE4m3(o, lane, d);
    case GroupElement::kBf16:
      return Multiply16<true>(o, lane, d);
    case GroupElement::kF16:
      return Multiply16<false>(o, lane, d);
  }
}

}  // namespace reprise::emulator
