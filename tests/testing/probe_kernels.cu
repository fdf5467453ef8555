// SPDX-License-Identifier: Apache-2.0
// The probe kernels on CUDA; probe_args.h says what each does, probe_kernels.cc has them for the
// host.
#include "tests/testing/probe_args.h"

namespace rt = reprise::testing;

extern "C" __global__ void reprise_probe_affine(rt::ProbeAffineArgs args) {
  if (threadIdx.x == 0) *args.x = *args.x * args.mul + args.add;
}

extern "C" __global__ void reprise_probe_count(rt::ProbeCountArgs args) {
  extern __shared__ uint32_t shared[];
  __shared__ uint32_t bad;
  const uint32_t block = blockIdx.y * gridDim.x + blockIdx.x;
  if (threadIdx.x == 0) bad = 0;
  for (uint32_t i = threadIdx.x; i < args.shared_words; i += blockDim.x) shared[i] = block;
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < args.shared_words; i += blockDim.x) {
    // Another thread's word where there is one.
    if (shared[args.shared_words - 1 - i] != block) atomicAdd(&bad, 1u);
  }
  __syncthreads();
  if (threadIdx.x == 0 && bad == 0) atomicAdd(&args.counts[block], 1u);
}

extern "C" __global__ void reprise_probe_wait(rt::ProbeWaitArgs args) {
  if (threadIdx.x != 0) return;
  for (int i = 0; i < 10 * 1000 * 1000; ++i) {
    if (*static_cast<const volatile uint32_t*>(args.flag) != 0) return;
    __nanosleep(1000);
  }
}

extern "C" __global__ void reprise_probe_large(rt::ProbeLargeArgs args) {
  if (threadIdx.x != 0) return;
  uint32_t sum = 0;
  for (uint32_t word : args.words) sum += word;
  *args.sum = sum;
}

extern "C" __global__ void reprise_probe_fault(rt::ProbeFaultArgs args) {
  *reinterpret_cast<volatile uint32_t*>(args.illegal_address) = 1;
}
