// SPDX-License-Identifier: Apache-2.0
// Which device a body is being compiled for, and the few words that differ. Bodies are compiled
// once per device into a namespace of that device (REPRISE_DEVICE_NS), so that one binary can carry
// all of them.
#ifndef REPRISE_KERNELS_DEVICE_PLATFORM_H_
#define REPRISE_KERNELS_DEVICE_PLATFORM_H_

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define REPRISE_ON_GPU 1
#define REPRISE_DEVICE_NS on_cuda
#define REPRISE_FN __device__ __forceinline__
#define REPRISE_UNROLL _Pragma("unroll")
#else
#define REPRISE_ON_GPU 0
#define REPRISE_DEVICE_NS on_host
#define REPRISE_FN inline
#define REPRISE_UNROLL
#endif

#endif  // REPRISE_KERNELS_DEVICE_PLATFORM_H_
