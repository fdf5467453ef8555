// SPDX-License-Identifier: Apache-2.0
// Matrix fragments: D[16, N] += A[16, 16] B[16, N] by one warp, 16-bit elements, f32 sums. N is 16,
// or 8 where kTraits.matrix_columns is 8. One interface over three instruction sets:
//
//   matrix_mma.h   mma.sync m16n8k16 and ldmatrix   NVIDIA, 32 lanes
//   matrix_mfma.h  MFMA 16x16x16                    CDNA, 64 lanes
//   matrix_wmma.h  WMMA 16x16x16                    RDNA 3, 32 lanes
//
// A lane holds kLaneRows rows of D, and of each kLaneColumns<N> columns: element (h, j) is v[At(h,
// j)], in row MatrixRow(h) and column MatrixColumn(j). The kRowLanes lanes that hold the other
// columns of the same rows are reached by ReduceRow. Columns j, j + 1, .. of one run of kColumnRun
// are neighbours. kLaneHoldsPairs: a lane has two rows, the second eight below the first.
//
//   MatrixD<16> d; d.Clear();
//   TileReader<kChunks> reader;                 // rows of kChunks 16-byte chunks, SwizzledOffset
//   Multiply<T>(d, reader.A(a_tile, row0, k), reader.B<16>(b_tile, row0, k));   // k: 16 at a time
//
//   reader.A(tile, row0, k)            A[i, :] = tile row row0 + i, columns 16 k ..
//   reader.B<N>(tile, row0, k)         B[:, j] = tile row row0 + j, columns 16 k ..
//   reader.BTransposed(tile, row0, n)  B[i, j] = tile[row0 + i, 16 n + j]
//   ToOperand<T>(d)                    D as the A of the next product, rounded to T
//
// Tiles of 8-bit elements (E4m3), rows of kChunks 16-byte chunks likewise, two steps at a time:
//
//   Fp8TileReader<kChunks> bytes;
//   bytes.B<T>(tile, row0, pair, b)            b[s]: as B<16> of step k = 2 pair + s, as T
//   bytes.BTransposed(tile, row0, pair, b)     b[s]: as BTransposed of n = 2 pair + s, as F16
//   bytes.PackedA<T>(tile, row0, pair, a)      a[s]: as A of step k = 2 pair + s, as T, of tiles
//                                              of packed words in the order of packed_layout.h
//
// Where kFp8Interleaves, columns of a step of B come in another order, the same for all rows:
// column 4 q
// + i of B is row 2 q + i % 2 + 8 (i / 2) of b[s], so that A has to bring its columns in that order
// too; and of BTransposed column 4 q + i is column 2 q + i / 2 + 8 (i % 2) of D. Times
// kHalvesWorth, of PackedA kPackedE4m3Worth, values are what they stand for (fp8_halves.h).
//
// Tiles of 16 rows of 64 4-bit elements (W: Int4 or Mxfp4), as packed_layout.h has them, in four
// steps:
//
//   uint32_t zero[kFourBitRows];               FourBitZero<T, W> of row FourBitRow(i)
//   FourBitTile four;
//   four.Load(tile);                           for all of its steps
//   four.A<T, W>(k, zero)                      as A of step k, less zero points, as T; what scales
//                                              sums of its products: FourBitScale<T, W>
//                                              (mxfp4_pairs.h)
//
// tile: shared address, a multiple of the row size. row0: a multiple of 16 (8 for B<8>). A tile's
// row is a column of B, but for BTransposed.
#ifndef REPRISE_KERNELS_DEVICE_MATRIX_H_
#define REPRISE_KERNELS_DEVICE_MATRIX_H_

#include "kernels/device/fp8_halves.h"
#include "kernels/device/matrix_accumulator.h"
#include "kernels/device/mxfp4_pairs.h"
#include "kernels/device/thread.h"

// Fragments stand on the instructions.
#include REPRISE_MATRIX_HEADER
#include REPRISE_FRAGMENT_HEADER

namespace reprise::kernels::REPRISE_DEVICE_NS {

// op over the lanes that hold the same rows of D; the result in all of them, the same order in
// each.
template <typename Op>
REPRISE_FN float ReduceRow(float x, Op op) {
  REPRISE_UNROLL
  for (int mask = 1; mask < kRowLanes; mask <<= 1) x = op(x, ShuffleXor(x, mask));
  return x;
}

// Makes the lanes' sums those of whole rows.
REPRISE_FN void FinishRowSums(float (&sum)[kLaneRows]) {
  REPRISE_UNROLL
  for (int h = 0; h < kLaneRows; ++h)
    sum[h] = ReduceRow(sum[h], [](float x, float y) { return x + y; });
}

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#endif  // REPRISE_KERNELS_DEVICE_MATRIX_H_
