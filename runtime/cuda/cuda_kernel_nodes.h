// SPDX-License-Identifier: Apache-2.0
// The arguments of a captured graph's kernels, by the CUDA driver. Part of the CUDA device: the
// runtime's calls know kernels of its own instance alone, and a graph holds those of cuBLAS too.
#ifndef REPRISE_RUNTIME_CUDA_CUDA_KERNEL_NODES_H_
#define REPRISE_RUNTIME_CUDA_CUDA_KERNEL_NODES_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "runtime/gpu/gpu_vendor.h"

namespace reprise::runtime {

// As GpuVendor's. Errors: Unimplemented where the driver is older than CUDA 12.4; Internal names
// the driver's call and error.
absl::Status ListCudaKernelNodes(cudaGraph_t graph, std::vector<GpuKernelNode>* nodes);
absl::Status SetCudaKernelArgs(cudaGraphExec_t exec, const GpuKernelNode& node,
                               std::span<const std::byte> args);

}  // namespace reprise::runtime

#endif  // REPRISE_RUNTIME_CUDA_CUDA_KERNEL_NODES_H_
