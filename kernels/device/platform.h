// SPDX-License-Identifier: Apache-2.0
// Which target a body is being compiled for: the one place that chooses. Bodies are compiled once
// per target into a namespace of that target, so that one binary can carry all of them. A target
// says
//
//   REPRISE_DEVICE_NS        its namespace
//   REPRISE_ON_GPU           1: block and thread style; 0: block style only, run by a worker
//   REPRISE_FN               before every function of a body
//   REPRISE_SELDOM_FN        in its place, where a call is not made often and should take no
//                            registers of its caller's; of effect where calls are cheap, on CUDA
//   REPRISE_UNROLL, REPRISE_UNROLL_BY(n)    before loops
//   REPRISE_MATRIX_UNIT      its row in traits.h, a runtime::MatrixUnit
//   REPRISE_BULK_COPY        1 where it has bulk copies to shared memory
//   REPRISE_GROUP_PRODUCTS   1 where it has products of a warpgroup
//   REPRISE_THREAD_HEADER    where it provides the contract of thread.h
//   REPRISE_MATRIX_HEADER    where it provides the instructions that its fragments are made of
//   REPRISE_FRAGMENT_HEADER  where fragments of that unit provide the contract of matrix.h
//   REPRISE_GROUP_HEADER     where it provides the contract of matrix_group.h, if it does
//
// The last seven on GPUs only. Targets here: on_cuda (nvcc), on_hip (clang -x hip, one pass per
// architecture) and on_host (the CPU). A build that brings another target, as that of the tests
// does, defines REPRISE_TARGET_HEADER as the name of a header that says all this.
#ifndef REPRISE_KERNELS_DEVICE_PLATFORM_H_
#define REPRISE_KERNELS_DEVICE_PLATFORM_H_

#include <cstddef>
#include <cstdint>

#define REPRISE_PRAGMA(text) _Pragma(#text)
#if defined(REPRISE_TARGET_HEADER)
#include REPRISE_TARGET_HEADER
#elif defined(__CUDACC__)
#define REPRISE_DEVICE_NS on_cuda
#define REPRISE_ON_GPU 1
#define REPRISE_FN __device__ __forceinline__
#define REPRISE_SELDOM_FN __device__ __noinline__
#define REPRISE_UNROLL _Pragma("unroll")
#define REPRISE_UNROLL_BY(n) REPRISE_PRAGMA(unroll n)
#define REPRISE_MATRIX_UNIT kMma
#if __CUDA_ARCH__ >= 900
#define REPRISE_BULK_COPY 1
#else
#define REPRISE_BULK_COPY 0
#endif
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define REPRISE_GROUP_PRODUCTS 1
#elif __CUDA_ARCH__ == 900
#error "compiled for sm_90; allowed: sm_90a, whose kernels devices of 9.0 are taken to have"
#else
#define REPRISE_GROUP_PRODUCTS 0
#endif
#define REPRISE_GROUP_HEADER "kernels/device/cuda/matrix_group.h"
#define REPRISE_THREAD_HEADER "kernels/device/cuda/thread.h"
#define REPRISE_MATRIX_HEADER "kernels/device/cuda/matrix.h"
#define REPRISE_FRAGMENT_HEADER "kernels/device/matrix_mma.h"
#elif defined(__HIP__)
#define REPRISE_DEVICE_NS on_hip
#define REPRISE_ON_GPU 1
#define REPRISE_FN __attribute__((device)) inline __attribute__((always_inline))
#define REPRISE_SELDOM_FN REPRISE_FN
#define REPRISE_UNROLL _Pragma("unroll")
#define REPRISE_UNROLL_BY(n) REPRISE_PRAGMA(unroll n)
#define REPRISE_BULK_COPY 0
#define REPRISE_GROUP_PRODUCTS 0
#define REPRISE_THREAD_HEADER "kernels/device/hip/thread.h"
#define REPRISE_MATRIX_HEADER "kernels/device/hip/matrix.h"
#if defined(__GFX9__)
#define REPRISE_MATRIX_UNIT kMfma
#define REPRISE_FRAGMENT_HEADER "kernels/device/matrix_mfma.h"
#else
#define REPRISE_MATRIX_UNIT kWmma
#define REPRISE_FRAGMENT_HEADER "kernels/device/matrix_wmma.h"
#endif
#else
#define REPRISE_DEVICE_NS on_host
#define REPRISE_ON_GPU 0
#define REPRISE_FN inline
#define REPRISE_SELDOM_FN inline
#define REPRISE_UNROLL
#define REPRISE_UNROLL_BY(n)
#endif

#endif  // REPRISE_KERNELS_DEVICE_PLATFORM_H_
