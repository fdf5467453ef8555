// SPDX-License-Identifier: Apache-2.0
// The instruction sets that the host's native linear is compiled for. The catalogue's entry points
// (host_native.h) take the best one that the CPU runs; tests and benchmarks walk them all.
#ifndef REPRISE_KERNELS_LINEAR_HOST_NATIVE_TARGETS_H_
#define REPRISE_KERNELS_LINEAR_HOST_NATIVE_TARGETS_H_

#include <cstdint>
#include <span>

#include "kernels/linear/linear_args.h"
#include "runtime/device.h"

namespace reprise::kernels::on_host {

// What a block computes: tile `tile` of kNativeTileFeatures features of rows [0, num_rows), the
// weight row-major. x_rows: which rows of x they are of; nullptr: the same.
using NativeRowsFn = void (*)(const LinearArgs& args, int tile, int64_t num_rows,
                              const uint32_t* x_rows);

// One instruction set. Entry points as in host_native.h.
struct NativeLinearTarget {
  const char* name = nullptr;  // "avx512_bf16", "avx512", "avx2", "sse4", "baseline"
  runtime::HostKernelFn f32 = nullptr;
  runtime::HostKernelFn bf16 = nullptr;
  runtime::HostKernelFn f16 = nullptr;
  // The same activations, weights of 8 bits.
  runtime::HostKernelFn f32_e4m3 = nullptr;
  runtime::HostKernelFn bf16_e4m3 = nullptr;
  runtime::HostKernelFn f16_e4m3 = nullptr;
  // And of 4 bits.
  runtime::HostKernelFn f32_int4 = nullptr;
  runtime::HostKernelFn bf16_int4 = nullptr;
  runtime::HostKernelFn f16_int4 = nullptr;
  // The same, for others who know which rows they want.
  NativeRowsFn rows_f32 = nullptr;
  NativeRowsFn rows_bf16 = nullptr;
  NativeRowsFn rows_f16 = nullptr;
  NativeRowsFn rows_f32_e4m3 = nullptr;
  NativeRowsFn rows_bf16_e4m3 = nullptr;
  NativeRowsFn rows_f16_e4m3 = nullptr;
  NativeRowsFn rows_f32_int4 = nullptr;
  NativeRowsFn rows_bf16_int4 = nullptr;
  NativeRowsFn rows_f16_int4 = nullptr;
  // And of experts in 4-bit floats.
  NativeRowsFn rows_f32_mxfp4 = nullptr;
  NativeRowsFn rows_bf16_mxfp4 = nullptr;
  NativeRowsFn rows_f16_mxfp4 = nullptr;
};

// Those that this CPU and its operating system run, best first; never empty. Static storage.
// Thread: any.
std::span<const NativeLinearTarget> NativeLinearTargets();

}  // namespace reprise::kernels::on_host

#endif  // REPRISE_KERNELS_LINEAR_HOST_NATIVE_TARGETS_H_
