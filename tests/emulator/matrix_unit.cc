// SPDX-License-Identifier: Apache-2.0
#include "tests/emulator/matrix_unit.h"

#include <cstdint>
#include <cstring>

#include "runtime/float_convert.h"
#include "tests/emulator/kernel_interface.h"

namespace reprise::emulator {
namespace {

constexpr int kDepth = 16;

// Element `i` of a lane's registers.
template <bool kBf16>
double ElementOf(const std::byte* all, int lane, int i) {
  uint16_t bits;
  std::memcpy(&bits, all + static_cast<size_t>(lane) * kExchangeBytes + i * 2, sizeof(bits));
  return kBf16 ? runtime::Bf16ToFloat(bits) : runtime::F16ToFloat(bits);
}

// d + the product of a row and a column.
float Accumulate(float d, const double (&row)[kDepth], const double (&column)[kDepth]) {
  double sum = d;
  for (int k = 0; k < kDepth; ++k) sum += row[k] * column[k];
  return static_cast<float>(sum);
}

template <bool kBf16>
void Mma(const std::byte* all, int lane, float* d) {
  double row[2][kDepth];     // of A: lane / 4, and 8 further
  double column[2][kDepth];  // of B: lane % 4 * 2, and the next
  for (int n = 0; n < 2; ++n) {
    const int i = lane / 4 + 8 * n, j = lane % 4 * 2 + n;
    for (int k = 0; k < kDepth; ++k) {
      // Row i, column k of A: lane (i % 8) * 4 + (k % 8) / 2, element 2 * (i / 8) + 4 * (k / 8) + k
      // % 2.
      row[n][k] = ElementOf<kBf16>(all, i % 8 * 4 + k % 8 / 2, 2 * (i / 8) + 4 * (k / 8) + k % 2);
      // Row k, column j of B: lane j * 4 + (k % 8) / 2, element 2 * (k / 8) + k % 2.
      column[n][k] = ElementOf<kBf16>(all, j * 4 + k % 8 / 2, 8 + 2 * (k / 8) + k % 2);
    }
  }
  for (int e = 0; e < 4; ++e) d[e] = Accumulate(d[e], row[e / 2], column[e % 2]);
}

template <bool kBf16>
void Mfma(const std::byte* all, int lane, float* d) {
  double row[kDepth], column[kDepth];
  // k lies in lane group k / 4, element k % 4, of both operands.
  const auto read = [all](int index, int first_element, double(&values)[kDepth]) {
    for (int k = 0; k < kDepth; ++k) {
      values[k] = ElementOf<kBf16>(all, k / 4 * 16 + index, first_element + k % 4);
    }
  };
  read(lane % 16, 4, column);
  for (int e = 0; e < 4; ++e) {
    read(lane / 16 * 4 + e, 0, row);
    d[e] = Accumulate(d[e], row, column);
  }
}

template <bool kBf16>
void Wmma(const std::byte* all, int lane, float* d) {
  const int half = lane / 16;
  double row[kDepth], column[kDepth];
  for (int k = 0; k < kDepth; ++k) {
    column[k] = ElementOf<kBf16>(all, (1 - half) * 16 + lane % 16, 16 + k);
  }
  for (int e = 0; e < 8; ++e) {
    for (int k = 0; k < kDepth; ++k) {
      row[k] = ElementOf<kBf16>(all, half * 16 + 2 * e + half, k);
    }
    d[e] = Accumulate(d[e], row, column);
  }
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

float DotProduct(bool bf16, float d, const uint16_t (&row)[kDepth],
                 const uint16_t (&column)[kDepth]) {
  double sum = d;
  for (int k = 0; k < kDepth; ++k)
    sum += bf16 ? double{runtime::Bf16ToFloat(row[k])} * runtime::Bf16ToFloat(column[k])
                : double{runtime::F16ToFloat(row[k])} * runtime::F16ToFloat(column[k]);
  return static_cast<float>(sum);
}

}  // namespace reprise::emulator
