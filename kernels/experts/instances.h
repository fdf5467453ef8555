// SPDX-License-Identifier: Apache-2.0
// The compiled kernels of mixtures of experts: the router, the sum over a token's experts, and
// linear layers: portable, the host's own, and on matrix units one for each tile of places; weights
// of 8 and 4 bits have families of their own.
// Columns: kernels/kernel_instance.h.
#ifndef REPRISE_KERNELS_EXPERTS_INSTANCES_H_
#define REPRISE_KERNELS_EXPERTS_INSTANCES_H_

#include "kernels/experts/experts_geometry.h"
#include "kernels/kernel_instance.h"

#define REPRISE_EXPERTS_INSTANCES(X)                                                               \
  X(reprise_experts_route, kExpertsRoute, Block, ExpertsRouteBody, ExpertsRouteArgs, Threads(256), \
    0, None, None, None, 0, OnEveryDevice)                                                         \
  X(reprise_experts_combine_f32, kExpertsCombine, Block, ExpertsCombineBody<float>,                \
    ExpertsCombineArgs, Threads(256), 0, F32, None, None, 0, OnEveryDevice)                        \
  X(reprise_experts_combine_bf16, kExpertsCombine, Block, ExpertsCombineBody<Bf16>,                \
    ExpertsCombineArgs, Threads(256), 0, Bf16, None, None, 0, OnEveryDevice)                       \
  X(reprise_experts_combine_f16, kExpertsCombine, Block, ExpertsCombineBody<F16>,                  \
    ExpertsCombineArgs, Threads(256), 0, F16, None, None, 0, OnEveryDevice)                        \
  X(reprise_experts_portable_f32, kExpertsPortable, Block, ExpertsPortableBody<float>,             \
    ExpertsLinearArgs, Threads(256), 0, F32, F32, None, 0, OnEveryDevice)                          \
  X(reprise_experts_portable_bf16, kExpertsPortable, Block, ExpertsPortableBody<Bf16>,             \
    ExpertsLinearArgs, Threads(256), 0, Bf16, Bf16, None, 0, OnEveryDevice)                        \
  X(reprise_experts_portable_f16, kExpertsPortable, Block, ExpertsPortableBody<F16>,               \
    ExpertsLinearArgs, Threads(256), 0, F16, F16, None, 0, OnEveryDevice)                          \
  X(reprise_experts_native_f32, kExpertsNative, Host, -, ExpertsLinearArgs, Threads(1), 0, F32,    \
    F32, None, 0, OnHost)                                                                          \
  X(reprise_experts_native_bf16, kExpertsNative, Host, -, ExpertsLinearArgs, Threads(1), 0, Bf16,  \
    Bf16, None, 0, OnHost)                                                                         \
  X(reprise_experts_native_f16, kExpertsNative, Host, -, ExpertsLinearArgs, Threads(1), 0, F16,    \
    F16, None, 0, OnHost)                                                                          \
  X(reprise_experts_packed_bf16_16, kExpertsPacked, Thread, (ExpertsPackedBody<Bf16, Bf16, 16>),   \
    ExpertsLinearArgs, Threads(kMatrixLinearThreads), 2, Bf16, Bf16, None, 16, HasExpertTile)      \
  X(reprise_experts_packed_bf16_64, kExpertsPacked, Thread, (ExpertsPackedBody<Bf16, Bf16, 64>),   \
    ExpertsLinearArgs, Threads(kMatrixLinearThreads), 2, Bf16, Bf16, None, 64, HasExpertTile)      \
  X(reprise_experts_packed_f16_16, kExpertsPacked, Thread, (ExpertsPackedBody<F16, F16, 16>),      \
    ExpertsLinearArgs, Threads(kMatrixLinearThreads), 2, F16, F16, None, 16, HasExpertTile)        \
  X(reprise_experts_packed_f16_64, kExpertsPacked, Thread, (ExpertsPackedBody<F16, F16, 64>),      \
    ExpertsLinearArgs, Threads(kMatrixLinearThreads), 2, F16, F16, None, 64, HasExpertTile)        \
  X(reprise_experts_portable_fp8_f32, kExpertsPortableFp8, Block,                                  \
    (ExpertsPortableBody<float, E4m3>), ExpertsLinearArgs, Threads(256), 0, F32, E4m3, None, 0,    \
    OnEveryDevice)                                                                                 \
  X(reprise_experts_portable_fp8_bf16, kExpertsPortableFp8, Block,                                 \
    (ExpertsPortableBody<Bf16, E4m3>), ExpertsLinearArgs, Threads(256), 0, Bf16, E4m3, None, 0,    \
    OnEveryDevice)                                                                                 \
  X(reprise_experts_portable_fp8_f16, kExpertsPortableFp8, Block,                                  \
    (ExpertsPortableBody<F16, E4m3>), ExpertsLinearArgs, Threads(256), 0, F16, E4m3, None, 0,      \
    OnEveryDevice)                                                                                 \
  X(reprise_experts_native_fp8_f32, kExpertsNativeFp8, Host, -, ExpertsLinearArgs, Threads(1), 0,  \
    F32, E4m3, None, 0, OnHost)                                                                    \
  X(reprise_experts_native_fp8_bf16, kExpertsNativeFp8, Host, -, ExpertsLinearArgs, Threads(1), 0, \
    Bf16, E4m3, None, 0, OnHost)                                                                   \
  X(reprise_experts_native_fp8_f16, kExpertsNativeFp8, Host, -, ExpertsLinearArgs, Threads(1), 0,  \
    F16, E4m3, None, 0, OnHost)                                                                    \
  X(reprise_experts_packed_fp8_bf16_16, kExpertsPackedFp8, Thread,                                 \
    (ExpertsPackedBody<Bf16, E4m3, 16>), ExpertsLinearArgs, Threads(kMatrixLinearThreads),         \
    ExpertBlocks(16, 8), Bf16, E4m3, None, 16, HasExpertTile)                                      \
  X(reprise_experts_packed_fp8_bf16_64, kExpertsPackedFp8, Thread,                                 \
    (ExpertsPackedBody<Bf16, E4m3, 64>), ExpertsLinearArgs, Threads(kMatrixLinearThreads), 2,      \
    Bf16, E4m3, None, 64, HasExpertTile)                                                           \
  X(reprise_experts_packed_fp8_f16_16, kExpertsPackedFp8, Thread,                                  \
    (ExpertsPackedBody<F16, E4m3, 16>), ExpertsLinearArgs, Threads(kMatrixLinearThreads),          \
    ExpertBlocks(16, 8), F16, E4m3, None, 16, HasExpertTile)                                       \
  X(reprise_experts_packed_fp8_f16_64, kExpertsPackedFp8, Thread,                                  \
    (ExpertsPackedBody<F16, E4m3, 64>), ExpertsLinearArgs, Threads(kMatrixLinearThreads), 2, F16,  \
    E4m3, None, 64, HasExpertTile)                                                                 \
  X(reprise_experts_portable_int4_f32, kExpertsPortableInt4, Block,                                \
    (ExpertsPortableBody<float, Int4>), ExpertsLinearArgs, Threads(256), 0, F32, Int4, None, 0,    \
    OnEveryDevice)                                                                                 \
  X(reprise_experts_portable_int4_bf16, kExpertsPortableInt4, Block,                               \
    (ExpertsPortableBody<Bf16, Int4>), ExpertsLinearArgs, Threads(256), 0, Bf16, Int4, None, 0,    \
    OnEveryDevice)                                                                                 \
  X(reprise_experts_portable_int4_f16, kExpertsPortableInt4, Block,                                \
    (ExpertsPortableBody<F16, Int4>), ExpertsLinearArgs, Threads(256), 0, F16, Int4, None, 0,      \
    OnEveryDevice)                                                                                 \
  X(reprise_experts_native_int4_f32, kExpertsNativeInt4, Host, -, ExpertsLinearArgs, Threads(1),   \
    0, F32, Int4, None, 0, OnHost)                                                                 \
  X(reprise_experts_native_int4_bf16, kExpertsNativeInt4, Host, -, ExpertsLinearArgs, Threads(1),  \
    0, Bf16, Int4, None, 0, OnHost)                                                                \
  X(reprise_experts_native_int4_f16, kExpertsNativeInt4, Host, -, ExpertsLinearArgs, Threads(1),   \
    0, F16, Int4, None, 0, OnHost)                                                                 \
  X(reprise_experts_packed_int4_bf16_16, kExpertsPackedInt4, Thread,                               \
    (ExpertsPackedBody<Bf16, Int4, 16>), ExpertsLinearArgs, Threads(kMatrixLinearThreads),         \
    ExpertBlocks(16, 4), Bf16, Int4, None, 16, HasExpertTile)                                      \
  X(reprise_experts_packed_int4_bf16_64, kExpertsPackedInt4, Thread,                               \
    (ExpertsPackedBody<Bf16, Int4, 64>), ExpertsLinearArgs, Threads(kMatrixLinearThreads), 2,      \
    Bf16, Int4, None, 64, HasExpertTile)                                                           \
  X(reprise_experts_packed_int4_f16_16, kExpertsPackedInt4, Thread,                                \
    (ExpertsPackedBody<F16, Int4, 16>), ExpertsLinearArgs, Threads(kMatrixLinearThreads),          \
    ExpertBlocks(16, 4), F16, Int4, None, 16, HasExpertTile)                                       \
  X(reprise_experts_packed_int4_f16_64, kExpertsPackedInt4, Thread,                                \
    (ExpertsPackedBody<F16, Int4, 64>), ExpertsLinearArgs, Threads(kMatrixLinearThreads), 2, F16,  \
    Int4, None, 64, HasExpertTile)                                                                 \
  X(reprise_experts_portable_mxfp4_f32, kExpertsPortableMxfp4, Block,                              \
    (ExpertsPortableBody<float, Mxfp4>), ExpertsLinearArgs, Threads(256), 0, F32, Mxfp4, None, 0,  \
    OnEveryDevice)                                                                                 \
  X(reprise_experts_portable_mxfp4_bf16, kExpertsPortableMxfp4, Block,                             \
    (ExpertsPortableBody<Bf16, Mxfp4>), ExpertsLinearArgs, Threads(256), 0, Bf16, Mxfp4, None, 0,  \
    OnEveryDevice)                                                                                 \
  X(reprise_experts_portable_mxfp4_f16, kExpertsPortableMxfp4, Block,                              \
    (ExpertsPortableBody<F16, Mxfp4>), ExpertsLinearArgs, Threads(256), 0, F16, Mxfp4, None, 0,    \
    OnEveryDevice)                                                                                 \
  X(reprise_experts_native_mxfp4_f32, kExpertsNativeMxfp4, Host, -, ExpertsLinearArgs, Threads(1), \
    0, F32, Mxfp4, None, 0, OnHost)                                                                \
  X(reprise_experts_native_mxfp4_bf16, kExpertsNativeMxfp4, Host, -, ExpertsLinearArgs,            \
    Threads(1), 0, Bf16, Mxfp4, None, 0, OnHost)                                                   \
  X(reprise_experts_native_mxfp4_f16, kExpertsNativeMxfp4, Host, -, ExpertsLinearArgs, Threads(1), \
    0, F16, Mxfp4, None, 0, OnHost)                                                                \
  X(reprise_experts_packed_mxfp4_bf16_16, kExpertsPackedMxfp4, Thread,                             \
    (ExpertsPackedBody<Bf16, Mxfp4, 16>), ExpertsLinearArgs, Threads(kMatrixLinearThreads),        \
    ExpertBlocks(16, 4), Bf16, Mxfp4, None, 16, HasExpertTile)                                     \
  X(reprise_experts_packed_mxfp4_bf16_64, kExpertsPackedMxfp4, Thread,                             \
    (ExpertsPackedBody<Bf16, Mxfp4, 64>), ExpertsLinearArgs, Threads(kMatrixLinearThreads), 2,     \
    Bf16, Mxfp4, None, 64, HasExpertTile)                                                          \
  X(reprise_experts_packed_mxfp4_f16_16, kExpertsPackedMxfp4, Thread,                              \
    (ExpertsPackedBody<F16, Mxfp4, 16>), ExpertsLinearArgs, Threads(kMatrixLinearThreads),         \
    ExpertBlocks(16, 4), F16, Mxfp4, None, 16, HasExpertTile)                                      \
  X(reprise_experts_packed_mxfp4_f16_64, kExpertsPackedMxfp4, Thread,                              \
    (ExpertsPackedBody<F16, Mxfp4, 64>), ExpertsLinearArgs, Threads(kMatrixLinearThreads), 2, F16, \
    Mxfp4, None, 64, HasExpertTile)

namespace reprise::kernels {

inline constexpr KernelFamily kExpertsRoute = {"experts", "experts_route"};
inline constexpr KernelFamily kExpertsCombine = {"experts", "experts_combine"};
inline constexpr KernelFamily kExpertsPortable = {"experts", "experts_portable"};
inline constexpr KernelFamily kExpertsNative = {"experts", "experts_native"};
inline constexpr KernelFamily kExpertsPacked = {"experts", "experts_packed"};
inline constexpr KernelFamily kExpertsPortableFp8 = {"experts", "experts_portable_fp8"};
inline constexpr KernelFamily kExpertsNativeFp8 = {"experts", "experts_native_fp8"};
inline constexpr KernelFamily kExpertsPackedFp8 = {"experts", "experts_packed_fp8"};
inline constexpr KernelFamily kExpertsPortableInt4 = {"experts", "experts_portable_int4"};
inline constexpr KernelFamily kExpertsNativeInt4 = {"experts", "experts_native_int4"};
inline constexpr KernelFamily kExpertsPackedInt4 = {"experts", "experts_packed_int4"};
inline constexpr KernelFamily kExpertsPortableMxfp4 = {"experts", "experts_portable_mxfp4"};
inline constexpr KernelFamily kExpertsNativeMxfp4 = {"experts", "experts_native_mxfp4"};
inline constexpr KernelFamily kExpertsPackedMxfp4 = {"experts", "experts_packed_mxfp4"};

inline constexpr KernelInstance kExpertsInstances[] = {
    REPRISE_EXPERTS_INSTANCES(REPRISE_INSTANCE_FACTS)  //
};

}  // namespace reprise::kernels

#endif  // REPRISE_KERNELS_EXPERTS_INSTANCES_H_
