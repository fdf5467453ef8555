// SPDX-License-Identifier: Apache-2.0
// Products of a warpgroup: D[64, N] += A[64, 16] B[16, N] by four warps together, the first of
// which has an index that is a multiple of four; 16-bit elements, f32 sums, N 64 or 128, by rows 16
// and 32 too. They run beside the threads until they are waited for, and read B, and A too, from
// shared memory by themselves. Where REPRISE_GROUP_PRODUCTS.
//
// D lies as MatrixD<16>[N / 16] of mma.sync (matrix_mma.h), and so does A in registers: warp w of
// the warpgroup has rows 16 w .. 16 w + 15, columns 16 c .. in element c, and ToOperand makes a D
// the A of the next product.
//
// Operands in shared memory lie in panels: rows of 64 elements, 128 bytes, the first at a multiple
// of 1024 bytes, with 16-byte chunk c of row r at c ^ (r % 8). So do pages of a swizzled KvLayout.
//
//   GroupProducts products;     // of the thread
//   products.Begin();
//   products.MultiplyRows<T>(d, a, b, k, k != 0);
//   products.Commit();
//   products.Wait<0>(d);
//
//   Begin()                     before the first product after registers of D or A were written
//   MultiplyRows<T>(d, a, b, k, add)
//                               A[i, :] = row i of panel `a`, B[:, j] = row j of panel `b`, of each
//                               the elements 16 k .. 16 k + 15. a, b: shared address of the panel's
//                               first row; `a` may be a MatrixA instead. add: false starts a sum.
//                               T E4m3: 32 elements of a byte each, 32 k .. 32 k + 31, of panels'
//                               rows of 128, `a` in shared memory; the tensor cores add products in
//                               fewer bits than f32 has
//   MultiplyColumns<T>(d, a, b, panel_bytes)
//                               B[i, j] = row i, element j % 64 of panel j / 64; panels are
//                               panel_bytes apart. b: shared address of the first of 16 rows, a
//                               multiple of 1024. a: MatrixA
//   Commit()                    closes a group of products
//   Wait<n>(d)                  all but the n newest groups are done, those of `d` among them
//
//   GiveRegisters<n>(), TakeRegisters<n>()
//                               from here on the warpgroup's threads have n registers, fewer or
//                               more than the kernel began with; what some give up, others can take
//
//   CopyTile<kRank>(to, map, at, barrier)
//                               as CopyBulk by one thread: the tile of a TiledMatrix of that rank
//                               (2 or 4) whose first element is at[0], at[1], .. there, not
//                               negative. to: at a multiple of 128 bytes, of 1024 where the matrix
//                               is swizzled, and then a panel. All bytes of the tile count for the
//                               barrier; elements beyond the matrix are zero. map: of the kernel's
//                               arguments
//   CopyTileOnce<kRank>(to, map, at, barrier)
//                               the same, for what is read once
//
// Blocks of a cluster (REPRISE_CLUSTER_KERNEL) reach each other's shared memory:
//
//   SyncCluster()               all threads of all of its blocks; orders their accesses
//   PeerAddress(address, block) of a shared address, the same place in the shared memory of that
//                               block of the cluster, or of its own, for the two below alone
//   StoreAtPeer(at_peer, x, barrier_at_peer)
//                               16 bytes, to a multiple of 16, which count for a barrier of the
//                               same block as those of bulk copies do
//   FinishSharedReads()         what the thread has read of shared memory is there
//   BarrierArriveAtPeer(barrier_at_peer)
//                               says that what was read may be overwritten: by one lane, behind a
//                               SyncWarp, before which all lanes that read call FinishSharedReads.
//                               It says nothing of what was written
//   BarrierWaitForPeers(barrier, phase)
//                               as BarrierWait, on a barrier that peers arrive at or store for
//
// Barriers are initialised before a SyncCluster. Before a block ends, it has waited for all that is
// sent to it: stores and arrivals.
//
// All threads of the warpgroup call each alike, copies apart. Until the wait, D and A in registers
// and what is read of shared memory stay untouched. What threads stored to shared memory is there
// for products after a FenceBulkCopies by those who stored and a barrier; what bulk copies and
// copies of tiles brought, after their barrier.
#ifndef REPRISE_KERNELS_DEVICE_MATRIX_GROUP_H_
#define REPRISE_KERNELS_DEVICE_MATRIX_GROUP_H_

#include "kernels/device/matrix.h"
#include "runtime/tile_map.h"

namespace reprise::kernels::REPRISE_DEVICE_NS {

inline constexpr int kGroupWarps = 4;
inline constexpr int kGroupRows = 16 * kGroupWarps;

}  // namespace reprise::kernels::REPRISE_DEVICE_NS

#include REPRISE_GROUP_HEADER

#endif  // REPRISE_KERNELS_DEVICE_MATRIX_GROUP_H_
