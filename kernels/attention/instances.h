// SPDX-License-Identifier: Apache-2.0
// The compiled kernels of paged attention: portable; naive; the merge of splits; the host's own;
// per phase and format one for each padded head size on matrix units; with bulk copies, and with
// products of warpgroups, one for each head size. Columns: kernels/kernel_instance.h.
#ifndef REPRISE_KERNELS_ATTENTION_INSTANCES_H_
#define REPRISE_KERNELS_ATTENTION_INSTANCES_H_

#include "kernels/attention/attention_geometry.h"
#include "kernels/attention/decode_bulk_geometry.h"
#include "kernels/attention/prefill_group_geometry.h"
#include "kernels/kernel_instance.h"

#define REPRISE_ATTENTION_INSTANCES(X)                                                             \
  X(reprise_attention_portable_f32, kAttentionPortable, Block, AttentionPortableBody<float>,       \
    AttentionArgs, Threads(256), 0, F32, None, F32, 0, OnEveryDevice)                              \
  X(reprise_attention_portable_bf16, kAttentionPortable, Block, AttentionPortableBody<Bf16>,       \
    AttentionArgs, Threads(256), 0, Bf16, None, Bf16, 0, OnEveryDevice)                            \
  X(reprise_attention_portable_f16, kAttentionPortable, Block, AttentionPortableBody<F16>,         \
    AttentionArgs, Threads(256), 0, F16, None, F16, 0, OnEveryDevice)                              \
  X(reprise_attention_naive_f32, kAttentionNaive, Block, AttentionNaiveBody<float>, AttentionArgs, \
    Threads(256), 4, F32, None, F32, 0, OnEveryDevice)                                             \
  X(reprise_attention_naive_bf16, kAttentionNaive, Block, AttentionNaiveBody<Bf16>, AttentionArgs, \
    Threads(256), 4, Bf16, None, Bf16, 0, OnEveryDevice)                                           \
  X(reprise_attention_naive_f16, kAttentionNaive, Block, AttentionNaiveBody<F16>, AttentionArgs,   \
    Threads(256), 4, F16, None, F16, 0, OnEveryDevice)                                             \
  X(reprise_attention_merge_f32, kAttentionMerge, Block, AttentionMergeBody<float>,                \
    AttentionMergeArgs, Threads(256), 0, F32, None, F32, 0, OnEveryDevice)                         \
  X(reprise_attention_merge_bf16, kAttentionMerge, Block, AttentionMergeBody<Bf16>,                \
    AttentionMergeArgs, Threads(256), 0, Bf16, None, Bf16, 0, OnEveryDevice)                       \
  X(reprise_attention_merge_f16, kAttentionMerge, Block, AttentionMergeBody<F16>,                  \
    AttentionMergeArgs, Threads(256), 0, F16, None, F16, 0, OnEveryDevice)                         \
  X(reprise_attention_native_f32, kAttentionNative, Host, -, AttentionArgs, Threads(1), 0, F32,    \
    None, F32, 0, OnHost)                                                                          \
  X(reprise_attention_native_bf16, kAttentionNative, Host, -, AttentionArgs, Threads(1), 0, Bf16,  \
    None, Bf16, 0, OnHost)                                                                         \
  X(reprise_attention_native_f16, kAttentionNative, Host, -, AttentionArgs, Threads(1), 0, F16,    \
    None, F16, 0, OnHost)                                                                          \
  X(reprise_attention_portable_f32_fp8, kAttentionPortable, Block,                                 \
    AttentionPortableFp8Body<float>, AttentionArgs, Threads(256), 2, F32, None, Fp8, 0,            \
    OnEveryDevice)                                                                                 \
  X(reprise_attention_portable_bf16_fp8, kAttentionPortable, Block,                                \
    AttentionPortableFp8Body<Bf16>, AttentionArgs, Threads(256), 2, Bf16, None, Fp8, 0,            \
    OnEveryDevice)                                                                                 \
  X(reprise_attention_portable_f16_fp8, kAttentionPortable, Block, AttentionPortableFp8Body<F16>,  \
    AttentionArgs, Threads(256), 2, F16, None, Fp8, 0, OnEveryDevice)                              \
  X(reprise_attention_native_f32_fp8, kAttentionNative, Host, -, AttentionArgs, Threads(1), 0,     \
    F32, None, Fp8, 0, OnHost)                                                                     \
  X(reprise_attention_native_bf16_fp8, kAttentionNative, Host, -, AttentionArgs, Threads(1), 0,    \
    Bf16, None, Fp8, 0, OnHost)                                                                    \
  X(reprise_attention_native_f16_fp8, kAttentionNative, Host, -, AttentionArgs, Threads(1), 0,     \
    F16, None, Fp8, 0, OnHost)                                                                     \
  X(reprise_attention_decode_matrix_bf16_32, kAttentionDecodeMatrix, Thread,                       \
    (AttentionDecodeMatrixBody<Bf16, 32>), AttentionArgs, Warps(kMatrixWarps), 2, Bf16, None,      \
    Bf16, 32, HasMatrixHeadSize)                                                                   \
  X(reprise_attention_decode_matrix_bf16_64, kAttentionDecodeMatrix, Thread,                       \
    (AttentionDecodeMatrixBody<Bf16, 64>), AttentionArgs, Warps(kMatrixWarps), 2, Bf16, None,      \
    Bf16, 64, HasMatrixHeadSize)                                                                   \
  X(reprise_attention_decode_matrix_bf16_128, kAttentionDecodeMatrix, Thread,                      \
    (AttentionDecodeMatrixBody<Bf16, 128>), AttentionArgs, Warps(kMatrixWarps), 2, Bf16, None,     \
    Bf16, 128, HasMatrixHeadSize)                                                                  \
  X(reprise_attention_decode_matrix_bf16_256, kAttentionDecodeMatrix, Thread,                      \
    (AttentionDecodeMatrixBody<Bf16, 256>), AttentionArgs, Warps(kMatrixWarps), 2, Bf16, None,     \
    Bf16, 256, HasMatrixHeadSize)                                                                  \
  X(reprise_attention_decode_matrix_f16_32, kAttentionDecodeMatrix, Thread,                        \
    (AttentionDecodeMatrixBody<F16, 32>), AttentionArgs, Warps(kMatrixWarps), 2, F16, None, F16,   \
    32, HasMatrixHeadSize)                                                                         \
  X(reprise_attention_decode_matrix_f16_64, kAttentionDecodeMatrix, Thread,                        \
    (AttentionDecodeMatrixBody<F16, 64>), AttentionArgs, Warps(kMatrixWarps), 2, F16, None, F16,   \
    64, HasMatrixHeadSize)                                                                         \
  X(reprise_attention_decode_matrix_f16_128, kAttentionDecodeMatrix, Thread,                       \
    (AttentionDecodeMatrixBody<F16, 128>), AttentionArgs, Warps(kMatrixWarps), 2, F16, None, F16,  \
    128, HasMatrixHeadSize)                                                                        \
  X(reprise_attention_decode_matrix_f16_256, kAttentionDecodeMatrix, Thread,                       \
    (AttentionDecodeMatrixBody<F16, 256>), AttentionArgs, Warps(kMatrixWarps), 2, F16, None, F16,  \
    256, HasMatrixHeadSize)                                                                        \
  X(reprise_attention_decode_matrix_bf16_fp8_64, kAttentionDecodeMatrix, Thread,                   \
    (AttentionDecodeMatrixBody<Bf16, 64, E4m3>), AttentionArgs, Warps(kMatrixWarps), 2, Bf16,      \
    None, Fp8, 64, HasMatrixFp8HeadSize)                                                           \
  X(reprise_attention_prefill_matrix_bf16_fp8_64, kAttentionPrefillMatrix, Thread,                 \
    (AttentionPrefillMatrixBody<Bf16, 64, E4m3>), AttentionArgs, Warps(kMatrixWarps), 2, Bf16,     \
    None, Fp8, 64, HasMatrixFp8HeadSize)                                                           \
  X(reprise_attention_decode_matrix_bf16_fp8_128, kAttentionDecodeMatrix, Thread,                  \
    (AttentionDecodeMatrixBody<Bf16, 128, E4m3>), AttentionArgs, Warps(kMatrixWarps), 2, Bf16,     \
    None, Fp8, 128, HasMatrixFp8HeadSize)                                                          \
  X(reprise_attention_prefill_matrix_bf16_fp8_128, kAttentionPrefillMatrix, Thread,                \
    (AttentionPrefillMatrixBody<Bf16, 128, E4m3>), AttentionArgs, Warps(kMatrixWarps), 2, Bf16,    \
    None, Fp8, 128, HasMatrixFp8HeadSize)                                                          \
  X(reprise_attention_decode_matrix_f16_fp8_64, kAttentionDecodeMatrix, Thread,                    \
    (AttentionDecodeMatrixBody<F16, 64, E4m3>), AttentionArgs, Warps(kMatrixWarps), 2, F16, None,  \
    Fp8, 64, HasMatrixFp8HeadSize)                                                                 \
  X(reprise_attention_prefill_matrix_f16_fp8_64, kAttentionPrefillMatrix, Thread,                  \
    (AttentionPrefillMatrixBody<F16, 64, E4m3>), AttentionArgs, Warps(kMatrixWarps), 2, F16, None, \
    Fp8, 64, HasMatrixFp8HeadSize)                                                                 \
  X(reprise_attention_decode_matrix_f16_fp8_128, kAttentionDecodeMatrix, Thread,                   \
    (AttentionDecodeMatrixBody<F16, 128, E4m3>), AttentionArgs, Warps(kMatrixWarps), 2, F16, None, \
    Fp8, 128, HasMatrixFp8HeadSize)                                                                \
  X(reprise_attention_prefill_matrix_f16_fp8_128, kAttentionPrefillMatrix, Thread,                 \
    (AttentionPrefillMatrixBody<F16, 128, E4m3>), AttentionArgs, Warps(kMatrixWarps), 2, F16,      \
    None, Fp8, 128, HasMatrixFp8HeadSize)                                                          \
  X(reprise_attention_decode_bulk_bf16_64, kAttentionDecodeBulk, Thread,                           \
    (AttentionDecodeBulkBody<Bf16, 64, false>), AttentionArgs, Threads(kBulkThreads), 2, Bf16,     \
    None, Bf16, 64, HasBulkHeadSize)                                                               \
  X(reprise_attention_decode_bulk_bf16_128, kAttentionDecodeBulk, Thread,                          \
    (AttentionDecodeBulkBody<Bf16, 128, false>), AttentionArgs, Threads(kBulkThreads), 2, Bf16,    \
    None, Bf16, 128, HasBulkHeadSize)                                                              \
  X(reprise_attention_decode_bulk_bf16_192, kAttentionDecodeBulk, Thread,                          \
    (AttentionDecodeBulkBody<Bf16, 192, false>), AttentionArgs, Threads(kBulkThreads), 1, Bf16,    \
    None, Bf16, 192, HasBulkHeadSize)                                                              \
  X(reprise_attention_decode_bulk_bf16_256, kAttentionDecodeBulk, Thread,                          \
    (AttentionDecodeBulkBody<Bf16, 256, false>), AttentionArgs, Threads(kBulkThreads), 1, Bf16,    \
    None, Bf16, 256, HasBulkHeadSize)                                                              \
  X(reprise_attention_decode_bulk_f16_64, kAttentionDecodeBulk, Thread,                            \
    (AttentionDecodeBulkBody<F16, 64, false>), AttentionArgs, Threads(kBulkThreads), 2, F16, None, \
    F16, 64, HasBulkHeadSize)                                                                      \
  X(reprise_attention_decode_bulk_f16_128, kAttentionDecodeBulk, Thread,                           \
    (AttentionDecodeBulkBody<F16, 128, false>), AttentionArgs, Threads(kBulkThreads), 2, F16,      \
    None, F16, 128, HasBulkHeadSize)                                                               \
  X(reprise_attention_decode_bulk_f16_192, kAttentionDecodeBulk, Thread,                           \
    (AttentionDecodeBulkBody<F16, 192, false>), AttentionArgs, Threads(kBulkThreads), 1, F16,      \
    None, F16, 192, HasBulkHeadSize)                                                               \
  X(reprise_attention_decode_bulk_f16_256, kAttentionDecodeBulk, Thread,                           \
    (AttentionDecodeBulkBody<F16, 256, false>), AttentionArgs, Threads(kBulkThreads), 1, F16,      \
    None, F16, 256, HasBulkHeadSize)                                                               \
  X(reprise_attention_decode_bulk_tiles_bf16_64, kAttentionDecodeBulkTiles, Thread,                \
    (AttentionDecodeBulkBody<Bf16, 64, true>), AttentionArgs, Threads(kBulkThreads), 2, Bf16,      \
    None, Bf16, 64, HasBulkHeadSize)                                                               \
  X(reprise_attention_decode_bulk_tiles_bf16_128, kAttentionDecodeBulkTiles, Thread,               \
    (AttentionDecodeBulkBody<Bf16, 128, true>), AttentionArgs, Threads(kBulkThreads), 2, Bf16,     \
    None, Bf16, 128, HasBulkHeadSize)                                                              \
  X(reprise_attention_decode_bulk_tiles_bf16_192, kAttentionDecodeBulkTiles, Thread,               \
    (AttentionDecodeBulkBody<Bf16, 192, true>), AttentionArgs, Threads(kBulkThreads), 1, Bf16,     \
    None, Bf16, 192, HasBulkHeadSize)                                                              \
  X(reprise_attention_decode_bulk_tiles_bf16_256, kAttentionDecodeBulkTiles, Thread,               \
    (AttentionDecodeBulkBody<Bf16, 256, true>), AttentionArgs, Threads(kBulkThreads), 1, Bf16,     \
    None, Bf16, 256, HasBulkHeadSize)                                                              \
  X(reprise_attention_decode_bulk_tiles_f16_64, kAttentionDecodeBulkTiles, Thread,                 \
    (AttentionDecodeBulkBody<F16, 64, true>), AttentionArgs, Threads(kBulkThreads), 2, F16, None,  \
    F16, 64, HasBulkHeadSize)                                                                      \
  X(reprise_attention_decode_bulk_tiles_f16_128, kAttentionDecodeBulkTiles, Thread,                \
    (AttentionDecodeBulkBody<F16, 128, true>), AttentionArgs, Threads(kBulkThreads), 2, F16, None, \
    F16, 128, HasBulkHeadSize)                                                                     \
  X(reprise_attention_decode_bulk_tiles_f16_192, kAttentionDecodeBulkTiles, Thread,                \
    (AttentionDecodeBulkBody<F16, 192, true>), AttentionArgs, Threads(kBulkThreads), 1, F16, None, \
    F16, 192, HasBulkHeadSize)                                                                     \
  X(reprise_attention_decode_bulk_tiles_f16_256, kAttentionDecodeBulkTiles, Thread,                \
    (AttentionDecodeBulkBody<F16, 256, true>), AttentionArgs, Threads(kBulkThreads), 1, F16, None, \
    F16, 256, HasBulkHeadSize)                                                                     \
  X(reprise_attention_decode_bulk_bf16_fp8_128, kAttentionDecodeBulk, Thread,                      \
    (AttentionDecodeBulkBody<Bf16, 128, false, E4m3>), AttentionArgs, Threads(kBulkThreads), 2,    \
    Bf16, None, Fp8, 128, HasBulkFp8HeadSize)                                                      \
  X(reprise_attention_decode_bulk_f16_fp8_128, kAttentionDecodeBulk, Thread,                       \
    (AttentionDecodeBulkBody<F16, 128, false, E4m3>), AttentionArgs, Threads(kBulkThreads), 2,     \
    F16, None, Fp8, 128, HasBulkFp8HeadSize)                                                       \
  X(reprise_attention_decode_bulk_tiles_bf16_fp8_128, kAttentionDecodeBulkTiles, Thread,           \
    (AttentionDecodeBulkBody<Bf16, 128, true, E4m3>), AttentionArgs, Threads(kBulkThreads), 2,     \
    Bf16, None, Fp8, 128, HasBulkFp8HeadSize)                                                      \
  X(reprise_attention_decode_bulk_tiles_f16_fp8_128, kAttentionDecodeBulkTiles, Thread,            \
    (AttentionDecodeBulkBody<F16, 128, true, E4m3>), AttentionArgs, Threads(kBulkThreads), 2, F16, \
    None, Fp8, 128, HasBulkFp8HeadSize)                                                            \
  X(reprise_attention_prefill_group_bf16_64, kAttentionPrefillGroup, Thread,                       \
    (AttentionPrefillGroupBody<Bf16, 64>), AttentionArgs, Threads(kGroupThreads), 1, Bf16, None,   \
    Bf16, 64, HasGroupHeadSize)                                                                    \
  X(reprise_attention_prefill_group_bf16_128, kAttentionPrefillGroup, Thread,                      \
    (AttentionPrefillGroupBody<Bf16, 128>), AttentionArgs, Threads(kGroupThreads), 1, Bf16, None,  \
    Bf16, 128, HasGroupHeadSize)                                                                   \
  X(reprise_attention_prefill_group_f16_64, kAttentionPrefillGroup, Thread,                        \
    (AttentionPrefillGroupBody<F16, 64>), AttentionArgs, Threads(kGroupThreads), 1, F16, None,     \
    F16, 64, HasGroupHeadSize)                                                                     \
  X(reprise_attention_prefill_group_f16_128, kAttentionPrefillGroup, Thread,                       \
    (AttentionPrefillGroupBody<F16, 128>), AttentionArgs, Threads(kGroupThreads), 1, F16, None,    \
    F16, 128, HasGroupHeadSize)                                                                    \
  X(reprise_attention_prefill_matrix_bf16_32, kAttentionPrefillMatrix, Thread,                     \
    (AttentionPrefillMatrixBody<Bf16, 32>), AttentionArgs, Warps(kMatrixWarps), 2, Bf16, None,     \
    Bf16, 32, HasMatrixHeadSize)                                                                   \
  X(reprise_attention_prefill_matrix_bf16_64, kAttentionPrefillMatrix, Thread,                     \
    (AttentionPrefillMatrixBody<Bf16, 64>), AttentionArgs, Warps(kMatrixWarps), 2, Bf16, None,     \
    Bf16, 64, HasMatrixHeadSize)                                                                   \
  X(reprise_attention_prefill_matrix_bf16_128, kAttentionPrefillMatrix, Thread,                    \
    (AttentionPrefillMatrixBody<Bf16, 128>), AttentionArgs, Warps(kMatrixWarps), 2, Bf16, None,    \
    Bf16, 128, HasMatrixHeadSize)                                                                  \
  X(reprise_attention_prefill_matrix_bf16_256, kAttentionPrefillMatrix, Thread,                    \
    (AttentionPrefillMatrixBody<Bf16, 256>), AttentionArgs, Warps(kMatrixWarps), 1, Bf16, None,    \
    Bf16, 256, HasMatrixHeadSize)                                                                  \
  X(reprise_attention_prefill_matrix_f16_32, kAttentionPrefillMatrix, Thread,                      \
    (AttentionPrefillMatrixBody<F16, 32>), AttentionArgs, Warps(kMatrixWarps), 2, F16, None, F16,  \
    32, HasMatrixHeadSize)                                                                         \
  X(reprise_attention_prefill_matrix_f16_64, kAttentionPrefillMatrix, Thread,                      \
    (AttentionPrefillMatrixBody<F16, 64>), AttentionArgs, Warps(kMatrixWarps), 2, F16, None, F16,  \
    64, HasMatrixHeadSize)                                                                         \
  X(reprise_attention_prefill_matrix_f16_128, kAttentionPrefillMatrix, Thread,                     \
    (AttentionPrefillMatrixBody<F16, 128>), AttentionArgs, Warps(kMatrixWarps), 2, F16, None, F16, \
    128, HasMatrixHeadSize)                                                                        \
  X(reprise_attention_prefill_matrix_f16_256, kAttentionPrefillMatrix, Thread,                     \
    (AttentionPrefillMatrixBody<F16, 256>), AttentionArgs, Warps(kMatrixWarps), 1, F16, None, F16, \
    256, HasMatrixHeadSize)

namespace reprise::kernels {

inline constexpr KernelFamily kAttentionPortable = {"attention", "attention_portable"};
inline constexpr KernelFamily kAttentionNaive = {"attention", "attention_naive"};
inline constexpr KernelFamily kAttentionMerge = {"attention", "attention_merge"};
inline constexpr KernelFamily kAttentionNative = {"attention", "attention_native"};
inline constexpr KernelFamily kAttentionDecodeMatrix = {"attention", "attention_decode_matrix"};
inline constexpr KernelFamily kAttentionDecodeBulk = {"attention", "attention_decode_bulk"};
inline constexpr KernelFamily kAttentionDecodeBulkTiles = {"attention",
                                                           "attention_decode_bulk_tiles"};
inline constexpr KernelFamily kAttentionPrefillGroup = {"attention", "attention_prefill_group"};
inline constexpr KernelFamily kAttentionPrefillMatrix = {"attention", "attention_prefill_matrix"};

inline constexpr KernelInstance kAttentionInstances[] = {
    REPRISE_ATTENTION_INSTANCES(REPRISE_INSTANCE_FACTS)  //
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_ATTENTION_INSTANCES_H_
