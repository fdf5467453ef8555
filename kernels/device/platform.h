// SPDX-License-Identifier: Apache-2.0
// Which target a body is being compiled for, and the few words that differ. Bodies are compiled
// once per target into a namespace of that target (REPRISE_DEVICE_NS), so that one binary can carry
// all of them:
//
//   on_cuda                  nvcc
//   on_hip                   clang -x hip, one pass per architecture
//   on_host                  the CPU, block style only
//   on_mma, on_mfma, on_wmma the emulator of the tests, one per kind of matrix unit; the compiler
//   is
//                            told by REPRISE_EMULATE_MMA, _MFMA or _WMMA
#ifndef REPRISE_KERNELS_DEVICE_PLATFORM_H_
#define REPRISE_KERNELS_DEVICE_PLATFORM_H_

#include <cstddef>
#include <cstdint>

#define REPRISE_EMULATED 0
#define REPRISE_PRAGMA(text) _Pragma(#text)
#if defined(__CUDACC__)
#define REPRISE_ON_GPU 1
#define REPRISE_DEVICE_NS on_cuda
#define REPRISE_FN __device__ __forceinline__
#define REPRISE_UNROLL _Pragma("unroll")
#define REPRISE_UNROLL_BY(n) REPRISE_PRAGMA(unroll n)
#elif defined(__HIP__)
#define REPRISE_ON_GPU 1
#define REPRISE_DEVICE_NS on_hip
#define REPRISE_FN __attribute__((device)) inline __attribute__((always_inline))
#define REPRISE_UNROLL _Pragma("unroll")
#define REPRISE_UNROLL_BY(n) REPRISE_PRAGMA(unroll n)
#elif defined(REPRISE_EMULATE_MMA) || defined(REPRISE_EMULATE_MFMA) || defined(REPRISE_EMULATE_WMMA)
#undef REPRISE_EMULATED
#define REPRISE_EMULATED 1
#define REPRISE_ON_GPU 1
#if defined(REPRISE_EMULATE_MMA)
#define REPRISE_DEVICE_NS on_mma
#elif defined(REPRISE_EMULATE_MFMA)
#define REPRISE_DEVICE_NS on_mfma
#else
#define REPRISE_DEVICE_NS on_wmma
#endif
// As on a GPU: two calls of one wrapper are two places of the program.
#define REPRISE_FN inline __attribute__((always_inline))
#define REPRISE_UNROLL
#define REPRISE_UNROLL_BY(n)
#else
#define REPRISE_ON_GPU 0
#define REPRISE_DEVICE_NS on_host
#define REPRISE_FN inline
#define REPRISE_UNROLL
#define REPRISE_UNROLL_BY(n)
#endif

#endif  // REPRISE_KERNELS_DEVICE_PLATFORM_H_
