// SPDX-License-Identifier: Apache-2.0
// What three vendors' matrix instructions compute: matrices are put together from the lanes'
// registers by the published lane maps, and each lane gets its own elements, in double, rounded
// once. Written from the vendors' documents (which kernels/device/cuda/matrix.h and
// kernels/device/hip/matrix.h name), not from the fragments built on top.
//
// Compiled without the emulator's hooks and without sanitizers: it takes a third of a test's time
// otherwise, and what it reads has been handed over by then.
#ifndef REPRISE_TESTS_EMULATOR_MATRIX_UNIT_H_
#define REPRISE_TESTS_EMULATOR_MATRIX_UNIT_H_

#include <cstddef>
#include <cstdint>

namespace reprise::emulator {

// Each adds the product's elements of `lane` to its d. `all`: what Exchange returned, every lane's
// registers of 16-bit elements, bf16 or f16.

// m16n8k16, 32 lanes. Registers as exchanged: a[0..3], b0, b1, that is elements 0..7 of A and 8..11
// of B. Four elements of d.
void MultiplyMma(bool bf16, const std::byte* all, int lane, float* d);
// 16x16x16, 64 lanes. Registers as exchanged: a[0..1], b[0..1]. Four elements of d.
void MultiplyMfma(bool bf16, const std::byte* all, int lane, float* d);
// 16x16x16, 32 lanes. Registers as exchanged: a[0..7], then b[0..7]. Eight elements of d. The unit
// reads A and B of both halves of the warp and wants them equal; which half it takes for what is
// not promised, so each element here takes A from its own half and B from the other.
void MultiplyWmma(bool bf16, const std::byte* all, int lane, float* d);

// A product of a warpgroup, as one of its warps sees it: 16 rows of A. Rows in shared memory are of
// 128 bytes, with 16-byte chunk c at c ^ (row % 8).
enum class GroupElement : uint8_t { kBf16, kF16, kE4m3 };
struct GroupOperands {
  GroupElement element;
  bool by_rows, add;
  bool a_in_registers;
  int columns;
  // In shared memory: the warp's first row of A. In registers: rows lane / 4 of A and the one 8
  // further. By rows: row 0 of B, a column of the product. Of each 16 elements of rows in shared
  // memory, two chunks from these on.
  const std::byte* a;
  int a_chunk, b_chunk;
  uint16_t rows[2][16];
  // Else: the first of 16 rows of B, whose column j is element j % 64 of panel j / 64.
  const std::byte* b;
  size_t panel_bytes;
};
// all: what Exchange returned, a[0..3] of m16n8k16.
void TakeRowsOfA(const std::byte* all, int lane, GroupOperands& operands);
// d: the lane's elements, columns / 8 times the four of m16n8k16.
void MultiplyGroup(const GroupOperands& operands, int lane, float* d);

}  // namespace reprise::emulator

#endif  // REPRISE_TESTS_EMULATOR_MATRIX_UNIT_H_
