// SPDX-License-Identifier: Apache-2.0
// Kernels compiled for the emulator: what kernels/device/platform.h asks of a target. The build
// names this header as REPRISE_TARGET_HEADER, and the kind of matrix unit that is emulated by
// REPRISE_EMULATE_MMA, _MFMA or _WMMA; each has a namespace of its own, so that one program carries
// all three.
#ifndef REPRISE_TESTS_EMULATOR_DEVICE_PLATFORM_H_
#define REPRISE_TESTS_EMULATOR_DEVICE_PLATFORM_H_

#define REPRISE_ON_GPU 1
// As on a GPU: two calls of one wrapper are two places of the program.
#define REPRISE_FN inline __attribute__((always_inline))
#define REPRISE_SELDOM_FN inline
#define REPRISE_UNROLL
#define REPRISE_UNROLL_BY(n)
#define REPRISE_THREAD_HEADER "tests/emulator/device/thread.h"
#define REPRISE_MATRIX_HEADER "tests/emulator/device/matrix.h"

#if defined(REPRISE_EMULATE_MMA)
#define REPRISE_BULK_COPY 1
#define REPRISE_GROUP_PRODUCTS 1
#define REPRISE_GROUP_HEADER "tests/emulator/device/matrix_group.h"
#define REPRISE_DEVICE_NS on_mma
#define REPRISE_MATRIX_UNIT kMma
#define REPRISE_FRAGMENT_HEADER "kernels/device/matrix_mma.h"
#elif defined(REPRISE_EMULATE_MFMA)
#define REPRISE_BULK_COPY 0
#define REPRISE_GROUP_PRODUCTS 0
#define REPRISE_DEVICE_NS on_mfma
#define REPRISE_MATRIX_UNIT kMfma
#define REPRISE_FRAGMENT_HEADER "kernels/device/matrix_mfma.h"
#elif defined(REPRISE_EMULATE_WMMA)
#define REPRISE_BULK_COPY 0
#define REPRISE_GROUP_PRODUCTS 0
#define REPRISE_DEVICE_NS on_wmma
#define REPRISE_MATRIX_UNIT kWmma
#define REPRISE_FRAGMENT_HEADER "kernels/device/matrix_wmma.h"
#else
#error "emulated kernels are compiled for one kind of matrix unit: REPRISE_EMULATE_MMA, .."
#endif

#endif  // REPRISE_TESTS_EMULATOR_DEVICE_PLATFORM_H_
