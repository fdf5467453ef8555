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

}  // namespace

void MultiplyGroup(const GroupOperands& o, int lane, float* d) {
  if (o.element == GroupElement::kE4m3) return MultiplyE4m3(o, lane, d);
  const auto load = [&](const std::byte* panel, int row, int element) {
    uint16_t bits;
    const int chunk = (element / 8) ^ (row % 8);
    std::memcpy(&bits, panel + row * 128 + chunk * 16 + element % 8 * 2, sizeof(bits));
    return bits;
  };
  const auto value = [&](uint16_t bits) {
    return double{o.element == GroupElement::kBf16 ? runtime::Bf16ToFloat(bits)
                                                   : runtime::F16ToFloat(bits)};
  };
  double rows[2][kDepth];
  for (int h = 0; h < 2; ++h)
    for (int k = 0; k < kDepth; ++k)
      rows[h][k] =
          value(o.a_in_registers ? o.rows[h][k] : load(o.a, lane / 4 + 8 * h, o.a_chunk * 8 + k));
  for (int n = 0; n < o.columns / 8; ++n) {
    double column[2][kDepth];
    for (int e = 0; e < 2; ++e) {
      const int j = n * 8 + lane % 4 * 2 + e;
      for (int k = 0; k < kDepth; ++k)
        column[e][k] =
            value(o.by_rows ? load(o.b, j, o.b_chunk * 8 + k)
                            : load(o.b + static_cast<size_t>(j / 64) * o.panel_bytes, k, j % 64));
    }
    for (int e = 0; e < 4; ++e)
      d[n * 4 + e] = Accumulate(o.add ? d[n * 4 + e] : 0.0f, rows[e / 2], column[e % 2]);
  }
}

}  // namespace reprise::emulator
