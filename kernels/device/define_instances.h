// SPDX-License-Identifier: Apache-2.0
// Defines the kernels of an op's list (kernels/kernel_instance.h) for the target that is being
// compiled. Every op has one source that does it, compiled once per target:
//
//   namespace reprise::kernels::REPRISE_DEVICE_NS {
//   REPRISE_OP_INSTANCES(REPRISE_DEFINE_INSTANCE)
//   }
#ifndef REPRISE_KERNELS_DEVICE_DEFINE_INSTANCES_H_
#define REPRISE_KERNELS_DEVICE_DEFINE_INSTANCES_H_

#include "kernels/device/block.h"
#include "kernels/kernel_instance.h"

#define REPRISE_DEFINE_INSTANCE(symbol, family, Style, body, Args, threads, min_blocks, \
                                Activation, Weight, Kv, tile, fits)                     \
  REPRISE_DEFINE_##Style##_INSTANCE(symbol, body, Args, threads, min_blocks, tile, fits)

#define REPRISE_DEFINE_Block_INSTANCE(symbol, body, Args, threads, min_blocks, tile, fits) \
  REPRISE_BLOCK_KERNEL(symbol, threads, min_blocks, body, Args)

#if REPRISE_ON_GPU
#define REPRISE_DEFINE_Thread_INSTANCE(symbol, body, Args, threads, min_blocks, tile, fits) \
  REPRISE_THREAD_KERNEL(symbol, fits(kTraits, tile), threads.Max(kTraits), min_blocks, body, Args)
#else
#define REPRISE_DEFINE_Thread_INSTANCE(symbol, body, Args, threads, min_blocks, tile, fits)
#endif

// For instances in thread style whose blocks come in clusters: an op has a list of its own of them.
#if REPRISE_ON_GPU
#define REPRISE_DEFINE_CLUSTER_INSTANCE(symbol, family, Style, body, Args, threads, min_blocks, \
                                        Activation, Weight, Kv, tile, fits)                     \
  REPRISE_CLUSTER_KERNEL(symbol, fits(kTraits, tile), threads.Max(kTraits), min_blocks, body, Args)
#else
#define REPRISE_DEFINE_CLUSTER_INSTANCE(symbol, family, Style, body, Args, threads, min_blocks, \
                                        Activation, Weight, Kv, tile, fits)
#endif

// The folder defines it itself, in on_host.
#define REPRISE_DEFINE_Host_INSTANCE(symbol, body, Args, threads, min_blocks, tile, fits)

#endif  // REPRISE_KERNELS_DEVICE_DEFINE_INSTANCES_H_
