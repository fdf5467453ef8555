// SPDX-License-Identifier: Apache-2.0
// The compiled kernels of linear: portable, the host's own, and per format one for each tile of
// rows on matrix units. Tile 0 of these takes batches beyond the widest tile: its blocks own whole
// tiles of features. Packed weights have kernels of their own, by what a device has: linear_stream
// takes few rows, linear_group more, linear_cluster some of those. Weights of 8 and 4 bits have
// families of their own, and so have those of 8 bits whose input is rounded. Columns:
// kernels/kernel_instance.h.
#ifndef REPRISE_KERNELS_LINEAR_INSTANCES_H_
#define REPRISE_KERNELS_LINEAR_INSTANCES_H_

#include "kernels/kernel_instance.h"
#include "kernels/linear/cluster_geometry.h"
#include "kernels/linear/group_geometry.h"
#include "kernels/linear/linear_geometry.h"
#include "kernels/linear/stream_geometry.h"

// Of clusters of blocks.
#define REPRISE_LINEAR_CLUSTER_INSTANCES(X)                                                      \
  X(reprise_linear_cluster_bf16_32, kLinearCluster, Thread, (ClusterLinearBody<Bf16, 32>),       \
    LinearGroupArgs, Threads(kLinearClusterThreads), 1, Bf16, Bf16, None, 32, HasLinearCluster)  \
  X(reprise_linear_cluster_bf16_64, kLinearCluster, Thread, (ClusterLinearBody<Bf16, 64>),       \
    LinearGroupArgs, Threads(kLinearClusterThreads), 1, Bf16, Bf16, None, 64, HasLinearCluster)  \
  X(reprise_linear_cluster_bf16_128, kLinearCluster, Thread, (ClusterLinearBody<Bf16, 128>),     \
    LinearGroupArgs, Threads(kLinearClusterThreads), 1, Bf16, Bf16, None, 128, HasLinearCluster) \
  X(reprise_linear_cluster_f16_32, kLinearCluster, Thread, (ClusterLinearBody<F16, 32>),         \
    LinearGroupArgs, Threads(kLinearClusterThreads), 1, F16, F16, None, 32, HasLinearCluster)    \
  X(reprise_linear_cluster_f16_64, kLinearCluster, Thread, (ClusterLinearBody<F16, 64>),         \
    LinearGroupArgs, Threads(kLinearClusterThreads), 1, F16, F16, None, 64, HasLinearCluster)    \
  X(reprise_linear_cluster_f16_128, kLinearCluster, Thread, (ClusterLinearBody<F16, 128>),       \
    LinearGroupArgs, Threads(kLinearClusterThreads), 1, F16, F16, None, 128, HasLinearCluster)

#define REPRISE_LINEAR_BLOCK_INSTANCES(X)                                                          \
  X(reprise_linear_portable_f32, kLinearPortable, Block, LinearPortableBody<float>, LinearArgs,    \
    Threads(256), 0, F32, F32, None, 0, OnEveryDevice)                                             \
  X(reprise_linear_portable_bf16, kLinearPortable, Block, LinearPortableBody<Bf16>, LinearArgs,    \
    Threads(256), 0, Bf16, Bf16, None, 0, OnEveryDevice)                                           \
  X(reprise_linear_portable_f16, kLinearPortable, Block, LinearPortableBody<F16>, LinearArgs,      \
    Threads(256), 0, F16, F16, None, 0, OnEveryDevice)                                             \
  X(reprise_linear_native_f32, kLinearNative, Host, -, LinearArgs, Threads(1), 0, F32, F32, None,  \
    0, OnHost)                                                                                     \
  X(reprise_linear_native_bf16, kLinearNative, Host, -, LinearArgs, Threads(1), 0, Bf16, Bf16,     \
    None, 0, OnHost)                                                                               \
  X(reprise_linear_native_f16, kLinearNative, Host, -, LinearArgs, Threads(1), 0, F16, F16, None,  \
    0, OnHost)                                                                                     \
  X(reprise_linear_matrix_bf16_8, kLinearMatrix, Thread, (MatrixLinearBody<Bf16, 8, false>),       \
    LinearArgs, Threads(kMatrixLinearThreads), 2, Bf16, Bf16, None, 8, HasMatrixTile)              \
  X(reprise_linear_matrix_bf16_16, kLinearMatrix, Thread, (MatrixLinearBody<Bf16, 16, false>),     \
    LinearArgs, Threads(kMatrixLinearThreads), 2, Bf16, Bf16, None, 16, HasMatrixTile)             \
  X(reprise_linear_matrix_bf16_32, kLinearMatrix, Thread, (MatrixLinearBody<Bf16, 32, false>),     \
    LinearArgs, Threads(kMatrixLinearThreads), 2, Bf16, Bf16, None, 32, HasMatrixTile)             \
  X(reprise_linear_matrix_bf16_64, kLinearMatrix, Thread, (MatrixLinearBody<Bf16, 64, false>),     \
    LinearArgs, Threads(kMatrixLinearThreads), 2, Bf16, Bf16, None, 64, HasMatrixTile)             \
  X(reprise_linear_matrix_bf16_128, kLinearMatrix, Thread, (MatrixLinearBody<Bf16, 128, false>),   \
    LinearArgs, Threads(kMatrixLinearThreads), 1, Bf16, Bf16, None, 128, HasMatrixTile)            \
  X(reprise_linear_matrix_bf16_whole, kLinearMatrix, Thread,                                       \
    (MatrixLinearBody<Bf16, MatrixMaxSplitRows(kTraits), true>), LinearArgs,                       \
    Threads(kMatrixLinearThreads), 1, Bf16, Bf16, None, 0, OnMatrixUnits)                          \
  X(reprise_linear_matrix_f16_8, kLinearMatrix, Thread, (MatrixLinearBody<F16, 8, false>),         \
    LinearArgs, Threads(kMatrixLinearThreads), 2, F16, F16, None, 8, HasMatrixTile)                \
  X(reprise_linear_matrix_f16_16, kLinearMatrix, Thread, (MatrixLinearBody<F16, 16, false>),       \
    LinearArgs, Threads(kMatrixLinearThreads), 2, F16, F16, None, 16, HasMatrixTile)               \
  X(reprise_linear_matrix_f16_32, kLinearMatrix, Thread, (MatrixLinearBody<F16, 32, false>),       \
    LinearArgs, Threads(kMatrixLinearThreads), 2, F16, F16, None, 32, HasMatrixTile)               \
  X(reprise_linear_matrix_f16_64, kLinearMatrix, Thread, (MatrixLinearBody<F16, 64, false>),       \
    LinearArgs, Threads(kMatrixLinearThreads), 2, F16, F16, None, 64, HasMatrixTile)               \
  X(reprise_linear_matrix_f16_128, kLinearMatrix, Thread, (MatrixLinearBody<F16, 128, false>),     \
    LinearArgs, Threads(kMatrixLinearThreads), 1, F16, F16, None, 128, HasMatrixTile)              \
  X(reprise_linear_matrix_f16_whole, kLinearMatrix, Thread,                                        \
    (MatrixLinearBody<F16, MatrixMaxSplitRows(kTraits), true>), LinearArgs,                        \
    Threads(kMatrixLinearThreads), 1, F16, F16, None, 0, OnMatrixUnits)                            \
  X(reprise_linear_packed_bf16_32, kLinearPacked, Thread, (PackedLinearBody<Bf16, Bf16, 32>),      \
    LinearArgs, Threads(kMatrixLinearThreads), 2, Bf16, Bf16, None, 32, HasPackedTile)             \
  X(reprise_linear_packed_bf16_64, kLinearPacked, Thread, (PackedLinearBody<Bf16, Bf16, 64>),      \
    LinearArgs, Threads(kMatrixLinearThreads), 2, Bf16, Bf16, None, 64, HasPackedTile)             \
  X(reprise_linear_packed_bf16_any, kLinearPacked, Thread,                                         \
    (PackedLinearBody<Bf16, Bf16, PackedMaxRows(kTraits, 16)>), LinearArgs,                        \
    Threads(kMatrixLinearThreads), 1, Bf16, Bf16, None, 0, OnMatrixUnits)                          \
  X(reprise_linear_group_bf16_16, kLinearGroup, Thread, (GroupLinearBody<Bf16, 16>),               \
    LinearGroupArgs, Threads(kLinearGroupThreads), 1, Bf16, Bf16, None, 16, HasLinearGroup)        \
  X(reprise_linear_group_bf16_32, kLinearGroup, Thread, (GroupLinearBody<Bf16, 32>),               \
    LinearGroupArgs, Threads(kLinearGroupThreads), 1, Bf16, Bf16, None, 32, HasLinearGroup)        \
  X(reprise_linear_group_bf16_64, kLinearGroup, Thread, (GroupLinearBody<Bf16, 64>),               \
    LinearGroupArgs, Threads(kLinearGroupThreads), 1, Bf16, Bf16, None, 64, HasLinearGroup)        \
  X(reprise_linear_group_bf16_128, kLinearGroup, Thread, (GroupLinearBody<Bf16, 128>),             \
    LinearGroupArgs, Threads(kLinearGroupThreads), 1, Bf16, Bf16, None, 128, HasLinearGroup)       \
  X(reprise_linear_group_f16_16, kLinearGroup, Thread, (GroupLinearBody<F16, 16>),                 \
    LinearGroupArgs, Threads(kLinearGroupThreads), 1, F16, F16, None, 16, HasLinearGroup)          \
  X(reprise_linear_group_f16_32, kLinearGroup, Thread, (GroupLinearBody<F16, 32>),                 \
    LinearGroupArgs, Threads(kLinearGroupThreads), 1, F16, F16, None, 32, HasLinearGroup)          \
  X(reprise_linear_group_f16_64, kLinearGroup, Thread, (GroupLinearBody<F16, 64>),                 \
    LinearGroupArgs, Threads(kLinearGroupThreads), 1, F16, F16, None, 64, HasLinearGroup)          \
  X(reprise_linear_group_f16_128, kLinearGroup, Thread, (GroupLinearBody<F16, 128>),               \
    LinearGroupArgs, Threads(kLinearGroupThreads), 1, F16, F16, None, 128, HasLinearGroup)         \
  X(reprise_linear_stream_bf16_2, kLinearStream, Thread, (StreamLinearBody<Bf16, Bf16, 2>),        \
    LinearArgs, Threads(kStreamThreads), 1, Bf16, Bf16, None, 2, HasStreamTile)                    \
  X(reprise_linear_stream_bf16_8, kLinearStream, Thread, (StreamLinearBody<Bf16, Bf16, 8>),        \
    LinearArgs, Threads(kStreamThreads), 1, Bf16, Bf16, None, 8, HasStreamTile)                    \
  X(reprise_linear_stream_bf16_16, kLinearStream, Thread, (StreamLinearBody<Bf16, Bf16, 16>),      \
    LinearArgs, Threads(kStreamThreads), 1, Bf16, Bf16, None, 16, HasStreamTile)                   \
  X(reprise_linear_packed_f16_32, kLinearPacked, Thread, (PackedLinearBody<F16, F16, 32>),         \
    LinearArgs, Threads(kMatrixLinearThreads), 2, F16, F16, None, 32, HasPackedTile)               \
  X(reprise_linear_packed_f16_64, kLinearPacked, Thread, (PackedLinearBody<F16, F16, 64>),         \
    LinearArgs, Threads(kMatrixLinearThreads), 2, F16, F16, None, 64, HasPackedTile)               \
  X(reprise_linear_packed_f16_any, kLinearPacked, Thread,                                          \
    (PackedLinearBody<F16, F16, PackedMaxRows(kTraits, 16)>), LinearArgs,                          \
    Threads(kMatrixLinearThreads), 1, F16, F16, None, 0, OnMatrixUnits)                            \
  X(reprise_linear_stream_f16_2, kLinearStream, Thread, (StreamLinearBody<F16, F16, 2>),           \
    LinearArgs, Threads(kStreamThreads), 1, F16, F16, None, 2, HasStreamTile)                      \
  X(reprise_linear_stream_f16_8, kLinearStream, Thread, (StreamLinearBody<F16, F16, 8>),           \
    LinearArgs, Threads(kStreamThreads), 1, F16, F16, None, 8, HasStreamTile)                      \
  X(reprise_linear_stream_f16_16, kLinearStream, Thread, (StreamLinearBody<F16, F16, 16>),         \
    LinearArgs, Threads(kStreamThreads), 1, F16, F16, None, 16, HasStreamTile)                     \
  X(reprise_linear_stream_fp8_bf16_2, kLinearStreamFp8, Thread, (StreamLinearBody<Bf16, E4m3, 2>), \
    LinearArgs, Threads(kStreamThreads), 1, Bf16, E4m3, None, 2, HasFp8StreamTile)                 \
  X(reprise_linear_stream_fp8_bf16_8, kLinearStreamFp8, Thread, (StreamLinearBody<Bf16, E4m3, 8>), \
    LinearArgs, Threads(kStreamThreads), 1, Bf16, E4m3, None, 8, HasFp8StreamTile)                 \
  X(reprise_linear_stream_fp8_bf16_16, kLinearStreamFp8, Thread,                                   \
    (StreamLinearBody<Bf16, E4m3, 16>), LinearArgs, Threads(kStreamThreads), 1, Bf16, E4m3, None,  \
    16, HasFp8StreamTile)                                                                          \
  X(reprise_linear_packed_fp8_bf16_32, kLinearPackedFp8, Thread,                                   \
    (PackedLinearBody<Bf16, E4m3, 32>), LinearArgs, Threads(kMatrixLinearThreads), 2, Bf16, E4m3,  \
    None, 32, HasPackedTile)                                                                       \
  X(reprise_linear_packed_fp8_bf16_any, kLinearPackedFp8, Thread,                                  \
    (PackedLinearBody<Bf16, E4m3, PackedMaxRows(kTraits, 8)>), LinearArgs,                         \
    Threads(kMatrixLinearThreads), 2, Bf16, E4m3, None, 0, OnMatrixUnits)                          \
  X(reprise_linear_stream_fp8_f16_2, kLinearStreamFp8, Thread, (StreamLinearBody<F16, E4m3, 2>),   \
    LinearArgs, Threads(kStreamThreads), 1, F16, E4m3, None, 2, HasFp8StreamTile)                  \
  X(reprise_linear_stream_fp8_f16_8, kLinearStreamFp8, Thread, (StreamLinearBody<F16, E4m3, 8>),   \
    LinearArgs, Threads(kStreamThreads), 1, F16, E4m3, None, 8, HasFp8StreamTile)                  \
  X(reprise_linear_stream_fp8_f16_16, kLinearStreamFp8, Thread, (StreamLinearBody<F16, E4m3, 16>), \
    LinearArgs, Threads(kStreamThreads), 1, F16, E4m3, None, 16, HasFp8StreamTile)                 \
  X(reprise_linear_packed_fp8_f16_32, kLinearPackedFp8, Thread, (PackedLinearBody<F16, E4m3, 32>), \
    LinearArgs, Threads(kMatrixLinearThreads), 2, F16, E4m3, None, 32, HasPackedTile)              \
  X(reprise_linear_packed_fp8_f16_any, kLinearPackedFp8, Thread,                                   \
    (PackedLinearBody<F16, E4m3, PackedMaxRows(kTraits, 8)>), LinearArgs,                          \
    Threads(kMatrixLinearThreads), 2, F16, E4m3, None, 0, OnMatrixUnits)                           \
  X(reprise_linear_group_fp8_bf16_16, kLinearGroupFp8, Thread,                                     \
    (GroupScaledLinearBody<Bf16, E4m3, 16>), LinearGroupArgs,                                      \
    Threads(LinearGroupScaledThreads(16)), 1, Bf16, E4m3, None, 16, HasLinearGroup)                \
  X(reprise_linear_group_fp8_bf16_32, kLinearGroupFp8, Thread,                                     \
    (GroupScaledLinearBody<Bf16, E4m3, 32>), LinearGroupArgs,                                      \
    Threads(LinearGroupScaledThreads(32)), 1, Bf16, E4m3, None, 32, HasLinearGroup)                \
  X(reprise_linear_group_fp8_bf16_64, kLinearGroupFp8, Thread,                                     \
    (GroupScaledLinearBody<Bf16, E4m3, 64>), LinearGroupArgs,                                      \
    Threads(LinearGroupScaledThreads(64)), 1, Bf16, E4m3, None, 64, HasLinearGroup)                \
  X(reprise_linear_group_fp8_bf16_128, kLinearGroupFp8, Thread,                                    \
    (GroupScaledLinearBody<Bf16, E4m3, 128>), LinearGroupArgs,                                     \
    Threads(LinearGroupScaledThreads(128)), 1, Bf16, E4m3, None, 128, HasLinearGroup)              \
  X(reprise_linear_group_fp8_f16_16, kLinearGroupFp8, Thread,                                      \
    (GroupScaledLinearBody<F16, E4m3, 16>), LinearGroupArgs,                                       \
    Threads(LinearGroupScaledThreads(16)), 1, F16, E4m3, None, 16, HasLinearGroup)                 \
  X(reprise_linear_group_fp8_f16_32, kLinearGroupFp8, Thread,                                      \
    (GroupScaledLinearBody<F16, E4m3, 32>), LinearGroupArgs,                                       \
    Threads(LinearGroupScaledThreads(32)), 1, F16, E4m3, None, 32, HasLinearGroup)                 \
  X(reprise_linear_group_fp8_f16_64, kLinearGroupFp8, Thread,                                      \
    (GroupScaledLinearBody<F16, E4m3, 64>), LinearGroupArgs,                                       \
    Threads(LinearGroupScaledThreads(64)), 1, F16, E4m3, None, 64, HasLinearGroup)                 \
  X(reprise_linear_group_fp8_f16_128, kLinearGroupFp8, Thread,                                     \
    (GroupScaledLinearBody<F16, E4m3, 128>), LinearGroupArgs,                                      \
    Threads(LinearGroupScaledThreads(128)), 1, F16, E4m3, None, 128, HasLinearGroup)               \
  X(reprise_linear_portable_fp8_f32, kLinearPortableFp8, Block, (LinearPortableBody<float, E4m3>), \
    LinearArgs, Threads(256), 0, F32, E4m3, None, 0, OnEveryDevice)                                \
  X(reprise_linear_native_fp8_f32, kLinearNativeFp8, Host, -, LinearArgs, Threads(1), 0, F32,      \
    E4m3, None, 0, OnHost)                                                                         \
  X(reprise_linear_portable_fp8_bf16, kLinearPortableFp8, Block, (LinearPortableBody<Bf16, E4m3>), \
    LinearArgs, Threads(256), 0, Bf16, E4m3, None, 0, OnEveryDevice)                               \
  X(reprise_linear_native_fp8_bf16, kLinearNativeFp8, Host, -, LinearArgs, Threads(1), 0, Bf16,    \
    E4m3, None, 0, OnHost)                                                                         \
  X(reprise_linear_portable_fp8_f16, kLinearPortableFp8, Block, (LinearPortableBody<F16, E4m3>),   \
    LinearArgs, Threads(256), 0, F16, E4m3, None, 0, OnEveryDevice)                                \
  X(reprise_linear_native_fp8_f16, kLinearNativeFp8, Host, -, LinearArgs, Threads(1), 0, F16,      \
    E4m3, None, 0, OnHost)                                                                         \
  X(reprise_linear_stream_int4_bf16_2, kLinearStreamInt4, Thread,                                  \
    (StreamLinearBody<Bf16, Int4, 2>), LinearArgs, Threads(kStreamThreads), 1, Bf16, Int4, None,   \
    2, HasInt4StreamTile)                                                                          \
  X(reprise_linear_stream_int4_bf16_8, kLinearStreamInt4, Thread,                                  \
    (StreamLinearBody<Bf16, Int4, 8>), LinearArgs, Threads(kStreamThreads), 1, Bf16, Int4, None,   \
    8, HasInt4StreamTile)                                                                          \
  X(reprise_linear_stream_fine_int4_bf16_2, kLinearStreamFineInt4, Thread,                         \
    (StreamLinearBody<Bf16, Int4, 2, true>), LinearArgs, Threads(kStreamThreads), 1, Bf16, Int4,   \
    None, 2, HasFineInt4StreamTile)                                                                \
  X(reprise_linear_stream_fine_int4_bf16_8, kLinearStreamFineInt4, Thread,                         \
    (StreamLinearBody<Bf16, Int4, 8, true>), LinearArgs, Threads(kStreamThreads), 1, Bf16, Int4,   \
    None, 8, HasFineInt4StreamTile)                                                                \
  X(reprise_linear_stream_int4_bf16_16, kLinearStreamInt4, Thread,                                 \
    (StreamLinearBody<Bf16, Int4, 16>), LinearArgs, Threads(kStreamThreads), 1, Bf16, Int4, None,  \
    16, HasInt4StreamTile)                                                                         \
  X(reprise_linear_stream_fine_int4_bf16_16, kLinearStreamFineInt4, Thread,                        \
    (StreamLinearBody<Bf16, Int4, 16, true>), LinearArgs, Threads(kStreamThreads), 1, Bf16, Int4,  \
    None, 16, HasFineInt4StreamTile)                                                               \
  X(reprise_linear_packed_int4_bf16_any, kLinearPackedInt4, Thread,                                \
    (PackedLinearBody<Bf16, Int4, PackedMaxRows(kTraits, 4)>), LinearArgs,                         \
    Threads(kMatrixLinearThreads), 2, Bf16, Int4, None, 0, OnMatrixUnits)                          \
  X(reprise_linear_stream_int4_f16_2, kLinearStreamInt4, Thread, (StreamLinearBody<F16, Int4, 2>), \
    LinearArgs, Threads(kStreamThreads), 1, F16, Int4, None, 2, HasInt4StreamTile)                 \
  X(reprise_linear_stream_int4_f16_8, kLinearStreamInt4, Thread, (StreamLinearBody<F16, Int4, 8>), \
    LinearArgs, Threads(kStreamThreads), 1, F16, Int4, None, 8, HasInt4StreamTile)                 \
  X(reprise_linear_stream_fine_int4_f16_2, kLinearStreamFineInt4, Thread,                          \
    (StreamLinearBody<F16, Int4, 2, true>), LinearArgs, Threads(kStreamThreads), 1, F16, Int4,     \
    None, 2, HasFineInt4StreamTile)                                                                \
  X(reprise_linear_stream_fine_int4_f16_8, kLinearStreamFineInt4, Thread,                          \
    (StreamLinearBody<F16, Int4, 8, true>), LinearArgs, Threads(kStreamThreads), 1, F16, Int4,     \
    None, 8, HasFineInt4StreamTile)                                                                \
  X(reprise_linear_stream_int4_f16_16, kLinearStreamInt4, Thread,                                  \
    (StreamLinearBody<F16, Int4, 16>), LinearArgs, Threads(kStreamThreads), 1, F16, Int4, None,    \
    16, HasInt4StreamTile)                                                                         \
  X(reprise_linear_stream_fine_int4_f16_16, kLinearStreamFineInt4, Thread,                         \
    (StreamLinearBody<F16, Int4, 16, true>), LinearArgs, Threads(kStreamThreads), 1, F16, Int4,    \
    None, 16, HasFineInt4StreamTile)                                                               \
  X(reprise_linear_packed_int4_f16_any, kLinearPackedInt4, Thread,                                 \
    (PackedLinearBody<F16, Int4, PackedMaxRows(kTraits, 4)>), LinearArgs,                          \
    Threads(kMatrixLinearThreads), 2, F16, Int4, None, 0, OnMatrixUnits)                           \
  X(reprise_linear_group_int4_bf16_16, kLinearGroupInt4, Thread,                                   \
    (GroupScaledLinearBody<Bf16, Int4, 16>), LinearGroupArgs,                                      \
    Threads(LinearGroupScaledThreads(16)), 1, Bf16, Int4, None, 16, HasLinearGroup)                \
  X(reprise_linear_group_int4_bf16_32, kLinearGroupInt4, Thread,                                   \
    (GroupScaledLinearBody<Bf16, Int4, 32>), LinearGroupArgs,                                      \
    Threads(LinearGroupScaledThreads(32)), 1, Bf16, Int4, None, 32, HasLinearGroup)                \
  X(reprise_linear_group_int4_bf16_64, kLinearGroupInt4, Thread,                                   \
    (GroupScaledLinearBody<Bf16, Int4, 64>), LinearGroupArgs,                                      \
    Threads(LinearGroupScaledThreads(64)), 1, Bf16, Int4, None, 64, HasLinearGroup)                \
  X(reprise_linear_group_int4_bf16_128, kLinearGroupInt4, Thread,                                  \
    (GroupScaledLinearBody<Bf16, Int4, 128>), LinearGroupArgs,                                     \
    Threads(LinearGroupScaledThreads(128)), 1, Bf16, Int4, None, 128, HasLinearGroup)              \
  X(reprise_linear_group_int4_f16_16, kLinearGroupInt4, Thread,                                    \
    (GroupScaledLinearBody<F16, Int4, 16>), LinearGroupArgs,                                       \
    Threads(LinearGroupScaledThreads(16)), 1, F16, Int4, None, 16, HasLinearGroup)                 \
  X(reprise_linear_group_int4_f16_32, kLinearGroupInt4, Thread,                                    \
    (GroupScaledLinearBody<F16, Int4, 32>), LinearGroupArgs,                                       \
    Threads(LinearGroupScaledThreads(32)), 1, F16, Int4, None, 32, HasLinearGroup)                 \
  X(reprise_linear_group_int4_f16_64, kLinearGroupInt4, Thread,                                    \
    (GroupScaledLinearBody<F16, Int4, 64>), LinearGroupArgs,                                       \
    Threads(LinearGroupScaledThreads(64)), 1, F16, Int4, None, 64, HasLinearGroup)                 \
  X(reprise_linear_group_int4_f16_128, kLinearGroupInt4, Thread,                                   \
    (GroupScaledLinearBody<F16, Int4, 128>), LinearGroupArgs,                                      \
    Threads(LinearGroupScaledThreads(128)), 1, F16, Int4, None, 128, HasLinearGroup)               \
  X(reprise_linear_portable_int4_f32, kLinearPortableInt4, Block,                                  \
    (LinearPortableBody<float, Int4>), LinearArgs, Threads(256), 0, F32, Int4, None, 0,            \
    OnEveryDevice)                                                                                 \
  X(reprise_linear_native_int4_f32, kLinearNativeInt4, Host, -, LinearArgs, Threads(1), 0, F32,    \
    Int4, None, 0, OnHost)                                                                         \
  X(reprise_linear_portable_int4_bf16, kLinearPortableInt4, Block,                                 \
    (LinearPortableBody<Bf16, Int4>), LinearArgs, Threads(256), 0, Bf16, Int4, None, 0,            \
    OnEveryDevice)                                                                                 \
  X(reprise_linear_native_int4_bf16, kLinearNativeInt4, Host, -, LinearArgs, Threads(1), 0, Bf16,  \
    Int4, None, 0, OnHost)                                                                         \
  X(reprise_linear_portable_int4_f16, kLinearPortableInt4, Block, (LinearPortableBody<F16, Int4>), \
    LinearArgs, Threads(256), 0, F16, Int4, None, 0, OnEveryDevice)                                \
  X(reprise_linear_native_int4_f16, kLinearNativeInt4, Host, -, LinearArgs, Threads(1), 0, F16,    \
    Int4, None, 0, OnHost)

// Of activations rounded to E4M3.
#define REPRISE_LINEAR_ROUNDED_INSTANCES(X)                                                        \
  X(reprise_linear_group_rounded_bf16_16, kLinearGroupRounded, Thread,                             \
    (GroupLinearBody<Bf16, 16, RoundedE4m3>), LinearGroupArgs, Threads(kLinearGroupThreads), 1,    \
    Bf16, E4m3Rounded, None, 16, HasLinearGroup)                                                   \
  X(reprise_linear_group_rounded_bf16_32, kLinearGroupRounded, Thread,                             \
    (GroupLinearBody<Bf16, 32, RoundedE4m3>), LinearGroupArgs, Threads(kLinearGroupThreads), 1,    \
    Bf16, E4m3Rounded, None, 32, HasLinearGroup)                                                   \
  X(reprise_linear_group_rounded_bf16_64, kLinearGroupRounded, Thread,                             \
    (GroupLinearBody<Bf16, 64, RoundedE4m3>), LinearGroupArgs, Threads(kLinearGroupThreads), 1,    \
    Bf16, E4m3Rounded, None, 64, HasLinearGroup)                                                   \
  X(reprise_linear_group_rounded_bf16_128, kLinearGroupRounded, Thread,                            \
    (GroupLinearBody<Bf16, 128, RoundedE4m3>), LinearGroupArgs, Threads(kLinearGroupThreads), 1,   \
    Bf16, E4m3Rounded, None, 128, HasLinearGroup)                                                  \
  X(reprise_linear_group_rounded_f16_16, kLinearGroupRounded, Thread,                              \
    (GroupLinearBody<F16, 16, RoundedE4m3>), LinearGroupArgs, Threads(kLinearGroupThreads), 1,     \
    F16, E4m3Rounded, None, 16, HasLinearGroup)                                                    \
  X(reprise_linear_group_rounded_f16_32, kLinearGroupRounded, Thread,                              \
    (GroupLinearBody<F16, 32, RoundedE4m3>), LinearGroupArgs, Threads(kLinearGroupThreads), 1,     \
    F16, E4m3Rounded, None, 32, HasLinearGroup)                                                    \
  X(reprise_linear_group_rounded_f16_64, kLinearGroupRounded, Thread,                              \
    (GroupLinearBody<F16, 64, RoundedE4m3>), LinearGroupArgs, Threads(kLinearGroupThreads), 1,     \
    F16, E4m3Rounded, None, 64, HasLinearGroup)                                                    \
  X(reprise_linear_group_rounded_f16_128, kLinearGroupRounded, Thread,                             \
    (GroupLinearBody<F16, 128, RoundedE4m3>), LinearGroupArgs, Threads(kLinearGroupThreads), 1,    \
    F16, E4m3Rounded, None, 128, HasLinearGroup)                                                   \
  X(reprise_linear_portable_rounded_f32, kLinearPortableRounded, Block,                            \
    (LinearPortableBody<float, RoundedE4m3>), LinearArgs, Threads(256), 0, F32, E4m3Rounded, None, \
    0, OnEveryDevice)                                                                              \
  X(reprise_linear_portable_rounded_bf16, kLinearPortableRounded, Block,                           \
    (LinearPortableBody<Bf16, RoundedE4m3>), LinearArgs, Threads(256), 0, Bf16, E4m3Rounded, None, \
    0, OnEveryDevice)                                                                              \
  X(reprise_linear_portable_rounded_f16, kLinearPortableRounded, Block,                            \
    (LinearPortableBody<F16, RoundedE4m3>), LinearArgs, Threads(256), 0, F16, E4m3Rounded, None,   \
    0, OnEveryDevice)

#define REPRISE_LINEAR_INSTANCES(X) \
  REPRISE_LINEAR_BLOCK_INSTANCES(X) \
  REPRISE_LINEAR_CLUSTER_INSTANCES(X) REPRISE_LINEAR_ROUNDED_INSTANCES(X)

namespace reprise::kernels {

inline constexpr KernelFamily kLinearPortable = {"linear", "linear_portable"};
inline constexpr KernelFamily kLinearNative = {"linear", "linear_native"};
inline constexpr KernelFamily kLinearMatrix = {"linear", "linear_matrix"};
inline constexpr KernelFamily kLinearPacked = {"linear", "linear_packed"};
inline constexpr KernelFamily kLinearGroup = {"linear", "linear_group"};
inline constexpr KernelFamily kLinearCluster = {"linear", "linear_cluster"};
inline constexpr KernelFamily kLinearStream = {"linear", "linear_stream"};
inline constexpr KernelFamily kLinearPortableFp8 = {"linear", "linear_portable_fp8"};
inline constexpr KernelFamily kLinearNativeFp8 = {"linear", "linear_native_fp8"};
inline constexpr KernelFamily kLinearPackedFp8 = {"linear", "linear_packed_fp8"};
inline constexpr KernelFamily kLinearGroupFp8 = {"linear", "linear_group_fp8"};
inline constexpr KernelFamily kLinearStreamFp8 = {"linear", "linear_stream_fp8"};
inline constexpr KernelFamily kLinearPortableRounded = {"linear", "linear_portable_rounded"};
inline constexpr KernelFamily kLinearGroupRounded = {"linear", "linear_group_rounded"};
inline constexpr KernelFamily kLinearPortableInt4 = {"linear", "linear_portable_int4"};
inline constexpr KernelFamily kLinearNativeInt4 = {"linear", "linear_native_int4"};
inline constexpr KernelFamily kLinearPackedInt4 = {"linear", "linear_packed_int4"};
inline constexpr KernelFamily kLinearGroupInt4 = {"linear", "linear_group_int4"};
inline constexpr KernelFamily kLinearStreamInt4 = {"linear", "linear_stream_int4"};
inline constexpr KernelFamily kLinearStreamFineInt4 = {"linear", "linear_stream_fine_int4"};

inline constexpr KernelInstance kLinearInstances[] = {
    REPRISE_LINEAR_INSTANCES(REPRISE_INSTANCE_FACTS)  //
};

// Of a family of linear_stream.
constexpr StreamSharedLayout StreamLayoutOf(const KernelInstance& instance) {
  return StreamLayout(instance.tile, BitsOf(instance.weight),
                      instance.family == &kLinearStreamFineInt4);
}

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_LINEAR_INSTANCES_H_
